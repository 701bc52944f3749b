// Fused: every question is put to the steps.
#include "compiler/ir/fused.h"

#include <algorithm>

#include "compiler/ops/operator.h"
#include "compiler/support/text.h"

namespace tamp::ops {
namespace {

std::string text_of(const TensorType& type) { return name_of(type.dtype) + shape_text(type.shape); }
TensorType type_of(const Graph& graph, TensorId id) { return {graph.tensor(id).dtype, graph.tensor(id).shape}; }

// The step that makes the tensor, or null.
const ROperator* maker_of(const Graph& body, TensorId made) {
  for (const ROperator& step : body.rops) {
    if (std::find(step.outputs.begin(), step.outputs.end(), made) != step.outputs.end()) return &step;
  }
  return nullptr;
}

// Whether the tensor is an operand of the whole, of this shape.
bool is_operand(const Graph& body, TensorId id, const Shape& shape) {
  return std::find(body.inputs.begin(), body.inputs.end(), id) != body.inputs.end() && body.tensor(id).shape == shape;
}

// How a step likes its result; where it follows an operand, as the step likes it that makes the operand, or as that of the whole lies.
Layout layout_of_made(const Graph& body, TensorId made) {
  const ROperator* const step = maker_of(body, made);
  const bool takes_numbers = step && std::holds_alternative<Gather>(step->attrs) && body.tensor(step->inputs[0]).shape.size() == 1;
  if (takes_numbers) return layout_of_made(body, step->inputs[1]);  // a table of numbers, whose results lie as their places
  const Layout own = step ? layout_of(step->attrs) : Layout::row_major;
  const auto is_followed = [&](TensorId id) { return is_operand(body, id, body.tensor(made).shape); };
  if (own == Layout::like_equal && std::any_of(step->inputs.begin(), step->inputs.end(), is_followed)) return own;
  return own == Layout::row_major || own == Layout::channels_last ? own : layout_of_made(body, step->inputs[0]);
}

// The value in another float type.
Value cast_to(const Value& value, DType dtype) {
  if (value.dtype == dtype) return value;
  const Numbers<double> numbers(value);
  return value_from(dtype, value.shape, std::vector<double>(numbers.data(), numbers.data() + element_count(value.shape)));
}

}  // namespace

TensorTypes infer(const Fused& op, const Given& given) {
  const Graph& body = *op.body;
  given.expect(body.inputs.size());
  for (size_t i = 0; i < given.count(); ++i) {
    const TensorType expected = type_of(body, body.inputs[i]);
    if (given.type(i) != expected) throw bad_input("operand {} is {}, expected {}", i, text_of(given.type(i)), text_of(expected));
  }
  verify(body);
  verify_shapes(body);
  TensorTypes types;
  for (const TensorId id : body.outputs) types.push_back(type_of(body, id));
  return types;
}

std::vector<Value> evaluate(const Fused& op, const Call& call) {
  std::vector<Value> operands;
  for (size_t i = 0; i < call.rop.inputs.size(); ++i) operands.push_back(cast_to(call.input(i), op.body->tensor(op.body->inputs[i]).dtype));
  std::vector<Value> results = run(*op.body, operands);
  for (size_t i = 0; i < results.size(); ++i) results[i] = cast_to(results[i], call.graph.tensor(call.rop.outputs[i]).dtype);
  return results;
}

Traits traits_of(const Fused& op) { return {layout_of_made(*op.body, op.body->outputs[0]), InF32::all}; }
Layout layout_of(const OpAttrs& attrs, size_t result) {
  const auto* const fused = std::get_if<Fused>(&attrs);
  return fused ? layout_of_made(*fused->body, fused->body->outputs[result]) : layout_of(attrs);
}
int64_t own_work(const Fused& op, const Given&, const TensorTypes&) {
  int64_t work = 0;
  for (const ROperator& step : op.body->rops) work = saturating_sum(work, work_of(*op.body, step));
  return work;
}

}  // namespace tamp::ops
