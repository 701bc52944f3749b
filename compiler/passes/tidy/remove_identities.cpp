#include "compiler/passes/tidy/remove_identities.h"

#include "compiler/ops/ops.h"
#include "compiler/passes/rewrite.h"

namespace tamp::passes {
namespace {

bool is_identity(const Graph& graph, const ROperator& rop) {
  if (rop.inputs.size() != 1 || rop.outputs.size() != 1) return false;
  const Tensor &from = graph.tensor(rop.inputs[0]), &to = graph.tensor(rop.outputs[0]);
  return from.shape == to.shape && from.dtype == to.dtype && (keeps_order(graph, rop) || ops::is_identity(rop.attrs));
}

}  // namespace

Graph remove_identities(Graph graph) {
  Uses uses = uses_of(graph);
  Replacements replacements(graph);
  for (const ROperator& rop : graph.rops) {
    if (!is_identity(graph, rop)) continue;
    const TensorId from = replacements.resolve(rop.inputs[0]), to = rop.outputs[0];
    if (uses.is_output[to.index()]) {
      if (uses.is_output[from.index()] || graph.tensor(from).role != Role::activation) continue;
      graph.tensor(from).name = graph.tensor(to).name;
      uses.is_output[from.index()] = true;
    }
    replacements.replace(to, from);
  }
  return remove_dead(replacements.apply(std::move(graph)));
}

}  // namespace tamp::passes
