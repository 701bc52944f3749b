#include "compiler/passes/fuse/normalize_patches.h"

#include <optional>
#include <utility>
#include <vector>

#include "compiler/passes/rewrite.h"
#include "compiler/passes/row_products.h"

namespace tamp::passes {
namespace {

constexpr double kLeastPatchGainUs = 0.3;  // a further body in the program costs what no estimate holds

struct NormalizedPatches {
  size_t conv, transpose, normalize;
  TensorId pixels;  // their order, if it is another one
};

// A convolution that is nothing but a product with constants and a bias.
bool is_plain_conv(const Graph& graph, const ROperator& rop) {
  const auto* const conv = std::get_if<Conv>(&rop.attrs);
  if (!conv || has_prologue(*conv) || conv->group != 1 || rop.inputs.size() != 2 || !is_f32_constant(graph, rop.inputs[1])) return false;
  const Tensor& made = graph.tensor(rop.outputs[0]);
  return made.dtype == DType::f32 && made.shape.size() == 4 && made.shape[1] % 4 == 0 && made.shape[1] > 0 &&
         is_row_or_none(graph, rop.epilogue.bias, made.shape[1]) && !rop.epilogue.residual.valid() &&
         rop.epilogue.activation == Activation::none;
}

std::optional<NormalizedPatches> match(const Graph& graph, const Uses& uses, size_t at) {
  ROperator normalize = graph.rops[at];
  if (!std::holds_alternative<Normalize>(normalize.attrs)) return std::nullopt;
  const TensorId pixels = operand(normalize, kNormalizeRows);
  if (pixels.valid()) {
    const Tensor& table = graph.tensor(pixels);
    if (table.shape.size() != 1 || !permutation_of(table, graph.tensor(normalize.inputs[0]).shape[0])) return std::nullopt;
    normalize.inputs.resize(kNormalizeRows);
  }
  if (!normalizes_rows(graph, normalize)) return std::nullopt;
  ROperatorId rows = uses.maker_for_one(normalize.inputs[0]);
  while (pixels.valid() && rows.valid() && std::holds_alternative<Reshape>(graph.rop(rows).attrs))
    rows = uses.maker_for_one(graph.rop(rows).inputs[0]);
  const auto* const transpose = rows.valid() ? std::get_if<Transpose>(&graph.rop(rows).attrs) : nullptr;
  if (!transpose || transpose->perm != std::vector<int64_t>{0, 2, 3, 1}) return std::nullopt;
  const ROperatorId conv = uses.maker_for_one(graph.rop(rows).inputs[0]);
  if (!conv.valid() || !is_plain_conv(graph, graph.rop(conv))) return std::nullopt;
  if (graph.tensor(graph.rop(rows).outputs[0]).shape.back() != graph.tensor(normalize.inputs[0]).shape.back()) return std::nullopt;
  return NormalizedPatches{conv.index(), rows.index(), at, pixels};
}

Graph with_normalized(Graph graph, const NormalizedPatches& found) {
  ROperator &conv = graph.rops[found.conv], &transpose = graph.rops[found.transpose];
  const ROperator normalize = graph.rops[found.normalize];
  const auto plain = std::get<Conv>(conv.attrs);
  const auto& norm = std::get<Normalize>(normalize.attrs);
  conv.attrs = NormalizedConv{plain.kernel, plain.strides, plain.dilations, plain.pads_begin, plain.pads_end, norm.centered, norm.epsilon};
  conv.inputs.insert(conv.inputs.end(), {conv.epilogue.bias, operand(normalize, 1), operand(normalize, 2), found.pixels});
  conv.inputs = without_last_none(std::move(conv.inputs));
  conv.epilogue = {};
  conv.origin.insert(conv.origin.end(), normalize.origin.begin(), normalize.origin.end());
  const Tensor& rows = graph.tensor(normalize.outputs[0]);
  const TensorId map = add_like(graph, conv.outputs[0], rows.name + ".map", Shape(graph.tensor(conv.outputs[0]).shape));
  conv.outputs = {map};
  transpose.inputs = {map};
  if (!found.pixels.valid()) {
    transpose.outputs = normalize.outputs;
    std::vector<bool> dead(graph.rops.size(), false);
    dead[found.normalize] = true;
    return remove_dead(erase_rops(std::move(graph), dead));
  }
  const Tensor& pixels = graph.tensor(transpose.outputs[0]);
  const TensorId ordered = add_like(graph, normalize.outputs[0], pixels.name + ".ordered", Shape(pixels.shape));
  graph.rops[found.transpose].outputs = {ordered};
  ROperator& view = graph.rops[found.normalize];
  view.attrs = Reshape{graph.tensor(view.outputs[0]).shape};
  view.inputs = {ordered};
  return remove_dead(std::move(graph));
}

}  // namespace

Graph normalize_patches(Graph graph, const GraphEstimator& estimator) {
  if (!estimator) return graph;
  std::optional<double> now_us;
  Uses uses = uses_of(graph);
  for (size_t at = 0; at < graph.rops.size(); ++at) {
    const std::optional<NormalizedPatches> found = match(graph, uses, at);
    if (!found) continue;
    Graph made = with_normalized(graph, *found);
    if (!now_us) now_us = estimator(graph);
    const double us = estimator(made);
    if (!gains(*now_us, us, kLeastPatchGainUs)) continue;
    now_us = us;
    graph = std::move(made);
    uses = uses_of(graph);
    --at;
  }
  return graph;
}

}  // namespace tamp::passes
