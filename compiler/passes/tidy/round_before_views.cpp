#include "compiler/passes/tidy/round_before_views.h"

#include <utility>

#include "compiler/passes/rewrite.h"

namespace tamp::passes {
namespace {

bool moves(const ROperator& rop) { return std::holds_alternative<Reshape>(rop.attrs) || std::holds_alternative<Transpose>(rop.attrs); }

// What rounds, the division in front of it, and the views in front of that, the last one first.
struct Rounding {
  const ROperator *rounded = nullptr, *quotient = nullptr;
  std::vector<const ROperator*> views;
};

std::optional<Rounding> rounding_at(const Graph& graph, const Uses& uses, const ROperator& rop) {
  const ElementwiseStep* const step = single_step(rop);
  if (!step || step->op != ElementwiseOp::rounded) return std::nullopt;
  const ROperatorId maker = uses.maker_for_one(rop.inputs[0]);
  const ElementwiseStep* const division = maker.valid() ? single_step(graph.rop(maker)) : nullptr;
  if (!division || division->op != ElementwiseOp::div || graph.rop(maker).inputs.size() != 2) return std::nullopt;
  Rounding found{&rop, &graph.rop(maker), {}};
  TensorId x = found.quotient->inputs[0];
  if (!scalar_value(graph, found.quotient->inputs[1]) || graph.tensor(x).shape != graph.tensor(rop.outputs[0]).shape) return std::nullopt;
  for (ROperatorId view = uses.maker_for_one(x); view.valid() && moves(graph.rop(view)); view = uses.maker_for_one(x)) {
    found.views.push_back(&graph.rop(view));
    x = graph.rop(view).inputs[0];
  }
  const bool is_made = uses.producer[x.index()].valid();
  return !found.views.empty() && is_made && graph.tensor(x).dtype == DType::f32 ? std::optional(found) : std::nullopt;
}

// The same in front of the views.
std::vector<ROperator> in_front(Graph& graph, const Rounding& of) {
  const TensorId x = of.views.back()->inputs[0];
  const Shape shape = graph.tensor(x).shape;
  const auto tensor = [&](TensorId like, const Shape& of_shape) {
    return add_like(graph, x, graph.tensor(like).name + ".moved", of_shape);
  };
  ROperator quotient = *of.quotient, rounded = *of.rounded;
  quotient.inputs[0] = x;
  quotient.outputs = {tensor(quotient.outputs[0], shape)};
  rounded.inputs = quotient.outputs;
  rounded.outputs = {tensor(rounded.outputs[0], shape)};
  std::vector<ROperator> made = {std::move(quotient), std::move(rounded)};
  for (size_t i = of.views.size(); i-- > 0;) {
    ROperator view = *of.views[i];
    view.inputs[0] = made.back().outputs[0];
    const TensorId to = view.outputs[0];
    view.outputs = {i == 0 ? of.rounded->outputs[0] : tensor(to, graph.tensor(to).shape)};
    made.push_back(std::move(view));
  }
  return made;
}

}  // namespace

Graph round_before_views(Graph graph) {
  const Graph before = graph;
  const Uses uses = uses_of(before);
  std::vector<std::vector<ROperator>> made(before.rops.size());
  for (size_t i = 0; i < before.rops.size(); ++i) {
    const std::optional<Rounding> found = rounding_at(before, uses, before.rops[i]);
    if (!found) continue;
    made[i] = in_front(graph, *found);
    // The views are gone by remove_dead, but their names are taken until then; so are those of the rOperators that are replaced.
    for (ROperator& rop : made[i]) rop.name += ".first";
  }
  return remove_dead(replace_rops(std::move(graph), std::move(made)));
}

}  // namespace tamp::passes
