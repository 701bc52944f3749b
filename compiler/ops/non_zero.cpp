// NonZero: the positions of true elements, and their number.
#include <string>

#include "compiler/ops/operator.h"
#include "compiler/support/text.h"

namespace tamp::ops {

TensorTypes infer(const NonZero&, const Given& given) {
  given.expect(1);
  if (given.rank(0) != 1 || given.dtype(0) != DType::boolean)
    throw bad_input("input X is {}{}, expected bool of one dimension", name_of(given.dtype(0)), shape_text(given.shape(0)));
  return {{DType::i64, given.shape(0)}, {DType::i64, {1}}};
}

std::vector<Value> evaluate(const NonZero&, const Call& call) {
  const Numbers<int64_t> truths(call.input(0));
  const int64_t extent = call.input(0).shape[0];
  std::vector<int64_t> places;
  for (int64_t i = 0; i < extent; ++i) {
    if (truths[i] != 0) places.push_back(i);
  }
  const auto count = static_cast<int64_t>(places.size());
  places.resize(static_cast<size_t>(extent), -1);
  return {output_from(call, places), value_from(DType::i64, {1}, std::vector<int64_t>{count})};
}

Traits traits_of(const NonZero&) { return {Layout::row_major, InF32::none}; }

int64_t own_work(const NonZero&, const Given&, const TensorTypes&) { return 0; }

}  // namespace tamp::ops
