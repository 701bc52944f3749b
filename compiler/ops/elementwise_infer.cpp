// Types, work and layout of an Elementwise, found without computing it.
#include "compiler/ops/operator.h"

namespace tamp::ops {
TensorTypes infer(const Elementwise& op, const Given& given) {
  given.expect(given.count());  // none may be absent
  if (op.steps.empty()) throw bad_input("no steps");
  Shape joint = op.shape;
  for (size_t i = 0; i < given.count(); ++i) joint = broadcast(joint, given.shape(i));
  if (!op.shape.empty() && joint != op.shape) throw bad_input("the inputs do not broadcast to the shape that they are repeated to");
  std::vector<DType> made;  // by each step
  for (const ElementwiseStep& step : op.steps) {
    if (static_cast<int>(step.operands.size()) != arity_of(step.op))
      throw bad_input("{} has the wrong number of operands", name_of(step.op));
    for (const int32_t v : step.operands) {
      const bool known = v >= 0 ? static_cast<size_t>(v) < given.count() : static_cast<size_t>(-1 - v) < made.size();
      if (!known) throw bad_input("step {} uses operand {}", made.size(), v);
    }
    const int32_t leader = step.operands[step.op == ElementwiseOp::where ? 1 : 0];
    made.push_back(row_of(step.op).result == rk::functions::Result::truth ? DType::boolean
                   : leader >= 0                                          ? given.dtype(static_cast<size_t>(leader))
                                                                          : made[static_cast<size_t>(-1 - leader)]);
  }
  return {{op.dtype.value_or(made.back()), joint}};
}

Traits traits_of(const Elementwise& op) {
  const bool copies = op.steps.size() == 1 && (op.steps[0].op == ElementwiseOp::identity || op.steps[0].op == ElementwiseOp::cast);
  return {Layout::like_equal, InF32::none, /*is_identity=*/copies};
}

int64_t own_work(const Elementwise& op, const Given&, const TensorTypes& results) {
  constexpr int64_t kPerStep = 15;
  int64_t per_element = 0;
  for (const ElementwiseStep& step : op.steps) per_element += kPerStep + static_cast<int64_t>(2 * row_of(step.op).price);  // Pow: 95
  return saturating_product({element_count(results[0].shape), per_element});
}

}  // namespace tamp::ops
