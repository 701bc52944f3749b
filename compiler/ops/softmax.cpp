// Softmax and LogSoftmax over the joint extent of neighbouring dimensions, with the largest element subtracted.
#include <cmath>
#include <limits>

#include "compiler/ops/functions.h"
#include "compiler/ops/operator.h"
#include "compiler/support/text.h"

namespace tamp::ops {
namespace {

// `count` elements, `stride` apart.
void softmax_row(double* row, int64_t count, int64_t stride, bool log) {
  double largest = -std::numeric_limits<double>::infinity();
  for (int64_t i = 0; i < count; ++i) largest = max_of(largest, row[i * stride]);
  double sum = 0;
  for (int64_t i = 0; i < count; ++i) sum += std::exp(row[i * stride] - largest);
  for (int64_t i = 0; i < count; ++i) {
    double& x = row[i * stride];
    x = log ? x - largest - std::log(sum) : std::exp(x - largest) / sum;
  }
}

}  // namespace

TensorTypes infer(const Softmax& op, const Given& given) {
  given.expect(1);
  if (op.first_axis < 0 || op.first_axis > op.last_axis || op.last_axis >= given.rank(0))
    throw bad_input("axes {} of input {}", shape_text({op.first_axis, op.last_axis}), shape_text(given.shape(0)));
  return {given.type(0)};
}

std::vector<Value> evaluate(const Softmax& op, const Call& call) {
  const Shape& shape = call.input(0).shape;
  const int64_t outer = product(shape, 0, op.first_axis);
  const int64_t count = product(shape, op.first_axis, op.last_axis + 1);
  const int64_t inner = product(shape, op.last_axis + 1, static_cast<int64_t>(shape.size()));
  const Numbers<double> x(call.input(0));
  std::vector<double> y(x.data(), x.data() + element_count(shape));
  for (int64_t o = 0; o < outer; ++o) {
    for (int64_t i = 0; i < inner; ++i) softmax_row(y.data() + o * count * inner + i, count, inner, op.log);
  }
  return {output_from(call, y)};
}

Traits traits_of(const Softmax&) { return {Layout::row_major, InF32::all}; }
int64_t own_work(const Softmax&, const Given& given, const TensorTypes&) { return (kWorkOfRead - 1) * given.elements(); }

}  // namespace tamp::ops
