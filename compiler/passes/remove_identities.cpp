#include "compiler/passes/remove_identities.h"

#include <algorithm>

#include "compiler/passes/rewrite.h"
#include "compiler/support/text.h"

namespace tamp::passes {
namespace {

bool all_are(const std::vector<int64_t>& values, int64_t wanted) {
  return std::all_of(values.begin(), values.end(), [&](int64_t v) { return v == wanted; });
}

// Only dimensions of extent 1 change places: the elements stay in their order, but the shape must stay as well.
bool keeps_order(const Transpose& op, const Shape& shape) {
  int64_t last = -1;
  for (const int64_t d : op.perm) {
    if (shape[static_cast<size_t>(d)] == 1) continue;
    if (d < last) return false;
    last = d;
  }
  return true;
}

// Given that input and output have one shape and type.
bool changes_nothing(const OpAttrs& attrs, const Shape& shape) {
  return std::visit(overloaded{
                        [](const Elementwise& op) {
                          return op.steps.size() == 1 &&
                                 (op.steps[0].op == ElementwiseOp::identity || op.steps[0].op == ElementwiseOp::cast);
                        },
                        [](const Reshape&) { return true; },
                        [&](const Transpose& op) { return keeps_order(op, shape); },
                        [](const Slice& op) { return all_are(op.starts, 0) && all_are(op.steps, 1); },
                        [](const Concat&) { return true; },
                        [](const Pad& op) { return all_are(op.before, 0) && all_are(op.after, 0); },
                        [](const Conv&) { return false; },
                        [](const MatMul&) { return false; },
                        [](const Pool&) { return false; },
                        [](const Reduce&) { return false; },
                        [](const Softmax&) { return false; },
                        [](const Lrn&) { return false; },
                        [](const BatchNorm&) { return false; },
                        [](const Gather&) { return false; },
                        [](const Recurrent&) { return false; },
                    },
                    attrs);
}

bool is_identity(const Graph& graph, const ROperator& rop) {
  if (rop.inputs.size() != 1 || rop.outputs.size() != 1) return false;
  const Tensor &from = graph.tensor(rop.inputs[0]), &to = graph.tensor(rop.outputs[0]);
  return from.shape == to.shape && from.dtype == to.dtype && changes_nothing(rop.attrs, to.shape);
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
