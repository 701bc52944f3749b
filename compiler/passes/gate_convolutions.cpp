#include "compiler/passes/gate_convolutions.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "compiler/ir/gated_conv.h"
#include "compiler/passes/rewrite.h"

namespace tamp::passes {
namespace {

bool all_are(const std::vector<int64_t>& values, int64_t wanted) {
  return std::all_of(values.begin(), values.end(), [&](int64_t value) { return value == wanted; });
}

bool is_plain_product(const Graph& graph, const ROperator& rop) {
  const auto* conv = std::get_if<Conv>(&rop.attrs);
  if (!conv || has_prologue(*conv) || conv->group != 1 || rop.inputs.size() != 2 || !is_f32_constant(graph, rop.inputs[1])) return false;
  return conv->kernel.size() == 2 && all_are(conv->kernel, 1) && all_are(conv->strides, 1) && all_are(conv->pads_begin, 0) &&
         all_are(conv->pads_end, 0) && element_count(graph.tensor(rop.outputs[0]).shape) > 0;
}

// The ChannelExcite whose result the convolution reads, if it can be a part of it.
std::optional<size_t> excitation_before(const Graph& graph, const Uses& uses, const ROperator& conv) {
  const TensorId y = conv.inputs[0];
  const ROperatorId producer = uses.producer[y.index()];
  if (!producer.valid() || uses.is_output[y.index()] || uses.consumers[y.index()].size() != 1) return std::nullopt;
  const ROperator& rop = graph.rop(producer);
  const auto* excite = std::get_if<ChannelExcite>(&rop.attrs);
  if (!excite || is_gated_conv(rop) || (excite->gate.kind != Activation::sigmoid && excite->gate.kind != Activation::hard_sigmoid))
    return std::nullopt;
  const bool has_epilogue = rop.epilogue.bias.valid() || rop.epilogue.residual.valid() || rop.epilogue.activation != Activation::none;
  const bool of_sums = rop.inputs.size() > kExciteFirstWeights && rop.inputs[kExciteFirstWeights].valid();
  if (has_epilogue || of_sums || conv.epilogue.residual == y) return std::nullopt;
  return producer.index();
}

Graph gated(Graph graph, size_t excite_at, size_t conv_at) {
  const ROperator excite = graph.rops[excite_at];
  ROperator& conv = graph.rops[conv_at];
  const TensorId weights = conv.inputs[1];
  conv.attrs = excite.attrs;
  conv.inputs = excite.inputs;
  conv.inputs.resize(kGatedProduct);
  conv.inputs.push_back(weights);
  prepend_origin(conv, excite);
  std::vector<bool> dead(graph.rops.size(), false);
  dead[excite_at] = true;
  return remove_dead(erase_rops(std::move(graph), dead));
}

}  // namespace

Graph gate_convolutions(Graph graph, const GraphEstimator& estimator) {
  if (!estimator) return graph;
  std::optional<double> now_us;
  for (size_t at = 0; at < graph.rops.size(); ++at) {
    if (!is_plain_product(graph, graph.rops[at])) continue;
    const std::optional<size_t> excite = excitation_before(graph, uses_of(graph), graph.rops[at]);
    if (!excite) continue;
    Graph tried = gated(graph, *excite, at);
    if (!now_us) now_us = estimator(graph);
    const double us = estimator(tried);
    if (!(us < *now_us)) continue;
    at -= graph.rops.size() - tried.rops.size();
    now_us = us;
    graph = std::move(tried);
  }
  return graph;
}

}  // namespace tamp::passes
