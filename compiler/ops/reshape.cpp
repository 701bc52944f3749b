// Reshape: the same elements in the same order.
#include "compiler/ops/operator.h"
#include "compiler/support/text.h"

namespace tamp::ops {

TensorTypes infer(const Reshape& op, const Given& given) {
  given.expect(1);
  if (element_count(given.shape(0)) != element_count(op.shape)) {
    throw bad_input("{} elements of {} do not fit shape {}", element_count(given.shape(0)), shape_text(given.shape(0)),
                    shape_text(op.shape));
  }
  return {{given.dtype(0), op.shape}};
}

std::vector<Value> evaluate(const Reshape& op, const Call& call) { return {Value{call.output().dtype, op.shape, call.input(0).data}}; }

Traits traits_of(const Reshape&) { return {Layout::view, InF32::none, /*is_identity=*/true}; }
int64_t own_work(const Reshape&, const Given&, const TensorTypes&) { return 0; }

}  // namespace tamp::ops
