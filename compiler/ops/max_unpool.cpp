// MaxUnpool: elements at the places where MaxPool found them, zeros elsewhere.
#include "compiler/ops/operator.h"
#include "compiler/support/text.h"

namespace tamp::ops {

TensorTypes infer(const MaxUnpool& op, const Given& given) {
  given.expect(2);
  if (given.shape(1) != given.shape(0))
    throw bad_input("input I has shape {}, input X has shape {}", shape_text(given.shape(1)), shape_text(given.shape(0)));
  if (given.dtype(1) != DType::i64) throw bad_input("input I is {}, expected i64", name_of(given.dtype(1)));
  return {{given.dtype(0), op.shape}};
}

std::vector<Value> evaluate(const MaxUnpool&, const Call& call) {
  const int64_t count = element_count(call.input(0).shape), made = element_count(call.output().shape);
  const Numbers<double> x(call.input(0));
  const Numbers<int64_t> indices(call.input(1));
  std::vector<double> result(static_cast<size_t>(made));
  for (int64_t i = 0; i < count; ++i) {
    if (indices[i] >= 0 && indices[i] < made) result[static_cast<size_t>(indices[i])] = x[i];
  }
  return {output_from(call, result)};
}

Traits traits_of(const MaxUnpool&) { return {Layout::row_major, InF32::all}; }
int64_t own_work(const MaxUnpool&, const Given& given, const TensorTypes&) { return saturating_product({given.elements(0), kWorkOfRead}); }

}  // namespace tamp::ops
