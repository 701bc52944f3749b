// Transpose: the dimensions in another order.
#include <algorithm>

#include "compiler/ops/operator.h"
#include "compiler/support/text.h"

namespace tamp::ops {

TensorTypes infer(const Transpose& op, const Given& given) {
  given.expect(1);
  const Shape& x = given.shape(0);
  std::vector<int64_t> sorted = op.perm;
  std::sort(sorted.begin(), sorted.end());
  bool is_order = sorted.size() == x.size();
  for (size_t d = 0; is_order && d < sorted.size(); ++d) is_order = sorted[d] == static_cast<int64_t>(d);
  if (!is_order) throw bad_input("attribute 'perm' is {}, expected an order of the {} dimensions", shape_text(op.perm), x.size());
  Shape result;
  for (const int64_t from : op.perm) result.push_back(x[static_cast<size_t>(from)]);
  return {{given.dtype(0), result}};
}

std::vector<Value> evaluate(const Transpose& op, const Call& call) {
  const std::vector<int64_t> dense = dense_strides(call.input(0).shape);
  std::vector<int64_t> strides;
  for (const int64_t axis : op.perm) strides.push_back(dense[static_cast<size_t>(axis)]);
  return {strided_copy(call, 0, strides)};
}

Traits traits_of(const Transpose&) { return {Layout::view, InF32::none}; }
int64_t own_work(const Transpose&, const Given&, const TensorTypes&) { return 0; }

}  // namespace tamp::ops
