// Slice: evenly spaced elements along each dimension.

#include "compiler/ops/operator.h"
#include "compiler/support/text.h"

namespace tamp::ops {

TensorTypes infer(const Slice& op, const Given& given) {
  given.expect(1);
  const Shape& x = given.shape(0);
  given.expect_entries(op.starts, "starts", x.size());
  given.expect_entries(op.steps, "steps", x.size());
  given.expect_entries(op.extents, "extents", x.size());
  const bool is_empty = element_count(op.extents) == 0;  // nothing is read, so starts may lie anywhere
  for (size_t d = 0; d < x.size(); ++d) {
    if (op.steps[d] == 0) throw bad_input("step 0 along axis {}", d);
    const int64_t last = op.starts[d] + (op.extents[d] - 1) * op.steps[d];
    if (is_empty || (op.starts[d] >= 0 && op.starts[d] < x[d] && last >= 0 && last < x[d])) continue;
    throw bad_input("starts {} and steps {} of {} elements leave the input {}", shape_text(op.starts), shape_text(op.steps),
                    shape_text(op.extents), shape_text(x));
  }
  return {{given.dtype(0), op.extents}};
}

std::vector<Value> evaluate(const Slice& op, const Call& call) {
  std::vector<int64_t> strides = dense_strides(call.input(0).shape);
  int64_t offset = 0;
  for (size_t d = 0; d < strides.size(); ++d) {
    offset += op.starts[d] * strides[d];
    strides[d] *= op.steps[d];
  }
  return {strided_copy(call, offset, strides)};
}

Traits traits_of(const Slice& op) { return {Layout::view, InF32::none, /*is_identity=*/op == whole_slice(op.extents)}; }
int64_t own_work(const Slice&, const Given&, const TensorTypes&) { return 0; }

}  // namespace tamp::ops
