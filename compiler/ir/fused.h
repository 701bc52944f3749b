// A Fused (ops.h): how passes make one, and how its steps are seen from outside.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "compiler/ir/graph.h"

namespace tamp {

// The Fused of `steps`, rOperators on tensors of `graph` in topological order. Its operands are all that the steps read and do not make:
// `operands` first, in that order, then the others in the order in which they are read. Its results are `results`. A step that is a Fused
// itself is its steps. The name is the last step's, the origin that of all.
ROperator fuse(const Graph& graph, std::string title, const std::vector<ROperator>& steps, const std::vector<TensorId>& results,
               const std::vector<TensorId>& operands = {});

// The steps of a Fused as a graph of their own, of which may be asked whatever is asked of graphs: operands and results have the types,
// values and places of `graph`. Tensors between steps have no place.
Graph steps_of(const Graph& graph, const ROperator& rop);

// Calls f(graph, rop) for the rOperator, or, if it is a Fused, for each of its steps.
void for_each_step(const Graph& graph, const ROperator& rop, auto&& f) {
  if (!std::holds_alternative<Fused>(rop.attrs)) return f(graph, rop);
  const Graph steps = steps_of(graph, rop);
  for (const ROperator& step : steps.rops) f(steps, step);
}

// A family's view of a Fused: its steps, each with the operands and results of the whole rOperator that it touches.
class FusedView {
 public:
  // None if the rOperator is no Fused.
  static std::optional<FusedView> of(const ROperator& rop);

  const Graph& body() const { return *body_; }
  size_t count() const { return body_->rops.size(); }
  const ROperator& step(size_t i) const { return body_->rops[i]; }
  // The attributes of step `i`, or null if there is no such step or it is another operator.
  template <class Op>
  const Op* as(size_t i) const {
    return i < count() ? std::get_if<Op>(&step(i).attrs) : nullptr;
  }
  // The operand or the result of the whole rOperator that the body's tensor is; none for a tensor between steps.
  TensorId outside(TensorId inside) const;
  // The step that makes the body's tensor, or null.
  const ROperator* maker_of(TensorId inside) const;
  TensorId input(size_t step, size_t i) const { return outside(operand(this->step(step), i)); }
  TensorId output(size_t step, size_t i = 0) const;
  TensorId bias(size_t step) const { return outside(this->step(step).epilogue.bias); }
  TensorId residual(size_t step) const { return outside(this->step(step).epilogue.residual); }
  // The step as a rOperator of the whole one's tensors; none for those between steps.
  ROperator alone(size_t step) const;
  // Whether operand `i` of step `to` is the first result of step `from`.
  bool feeds(size_t from, size_t to, size_t i = 0) const { return operand(step(to), i) == step(from).outputs[0]; }
  // Whether there is a step `to` that copies it, which is how a body hands on its result in a further type.
  bool copies(size_t from, size_t to) const {
    const auto* const op = as<Elementwise>(to);
    return op && op->steps.size() == 1 && op->steps[0].op == ElementwiseOp::identity && feeds(from, to);
  }

 private:
  FusedView(const ROperator& rop, const Graph& body) : rop_(&rop), body_(&body) {}

  const ROperator* rop_;
  const Graph* body_;
};

// The name for people: a Fused's title, else the operator's name.
std::string title_of(const ROperator& rop);

}  // namespace tamp
