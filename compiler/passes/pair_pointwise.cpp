#include "compiler/passes/pair_pointwise.h"

#include <algorithm>
#include <optional>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "compiler/passes/rewrite.h"
#include "compiler/passes/sum_channels.h"

namespace tamp::passes {
namespace {

// The first rTask of a body takes 1 to 2 us longer than the next, since its code is not there yet, and no estimate holds that. So all pairs
// together must gain more; and a kind of pairs more than estimates are wrong by.
constexpr double kLeastPairsGainUs = 2.5, kLeastKindGainUs = 0.2;

// Pairs that are equal for the estimates: channels of x, y and z, pixels, whether there is a residual, and whether y is stored.
using PairKind = std::tuple<int64_t, int64_t, int64_t, int64_t, bool, bool>;

struct PairMatch {
  size_t first, second;
  bool keeps;  // whether y is stored
  PairKind kind;
};

bool is_plain_pointwise(const Graph& graph, const ROperator& rop) {
  const auto* conv = std::get_if<Conv>(&rop.attrs);
  if (!conv || !is_pointwise(*conv) || has_prologue(*conv) || rop.inputs.size() != 2 || !is_f32_constant(graph, rop.inputs[1]))
    return false;
  const Tensor &x = graph.tensor(rop.inputs[0]), &y = graph.tensor(rop.outputs[0]), &w = graph.tensor(rop.inputs[1]);
  if (rop.epilogue.bias.valid()) {
    const Tensor& bias = graph.tensor(rop.epilogue.bias);
    if (!is_f32_constant(graph, rop.epilogue.bias) || bias.shape != Shape{w.shape[0]}) return false;
  }
  return x.dtype == DType::f32 && y.dtype == DType::f32 && x.shape.size() == 4 && element_count(x.shape) > 0 && w.shape[0] % 4 == 0;
}

// Whether `rop` adds `y` to its own results and does nothing else with it. What reads y otherwise would have to wait for the whole pair.
bool only_adds(const ROperator& rop, TensorId y) {
  const bool is_residual =
      rop.epilogue.residual == y || (std::holds_alternative<PointwisePair>(rop.attrs) && operand(rop, kPairResidual) == y);
  return is_residual && std::count(rop.inputs.begin(),
                                   rop.inputs.begin() + static_cast<std::ptrdiff_t>(std::min(rop.inputs.size(), kPairResidual)), y) == 0;
}

std::optional<PairMatch> pair_at(const Graph& graph, const Uses& uses, size_t second) {
  const ROperator& rop = graph.rops[second];
  if (!is_plain_pointwise(graph, rop) || rop.epilogue.residual.valid()) return std::nullopt;
  const TensorId y = rop.inputs[0];
  const ROperatorId maker = uses.producer[y.index()];
  if (!maker.valid() || !is_plain_pointwise(graph, graph.rop(maker))) return std::nullopt;
  const ROperator& first = graph.rop(maker);
  const TensorId residual = first.epilogue.residual;
  // What the caller hands in lies row by row.
  if (residual.valid() && graph.tensor(residual).role == Role::input) return std::nullopt;
  if (residual.valid() && (first.epilogue.residual_after_activation || graph.tensor(residual).shape != graph.tensor(y).shape ||
                           graph.tensor(residual).dtype != DType::f32))
    return std::nullopt;
  for (const ROperatorId consumer : uses.consumers[y.index()]) {
    if (consumer.index() != second && !only_adds(graph.rop(consumer), y)) return std::nullopt;
  }
  const bool keeps = uses.is_output[y.index()] || uses.consumers[y.index()].size() > 1;
  const Shape &x = graph.tensor(first.inputs[0]).shape, &z = graph.tensor(rop.outputs[0]).shape;
  return PairMatch{maker.index(), second, keeps,
                   PairKind{x[1], graph.tensor(y).shape[1], z[1], x[0] * x[2] * x[3], residual.valid(), keeps}};
}

std::vector<PairMatch> pairs_of(const Graph& graph) {
  const Uses uses = uses_of(graph);
  std::vector<bool> taken(graph.rops.size(), false);
  std::vector<PairMatch> matches;
  for (size_t i = 0; i < graph.rops.size(); ++i) {
    const std::optional<PairMatch> match = pair_at(graph, uses, i);
    if (!match || taken[match->first] || taken[match->second]) continue;
    taken[match->first] = taken[match->second] = true;
    matches.push_back(*match);
  }
  return matches;
}

// The pair stands where the first convolution was: all that reads y comes behind.
Graph paired(Graph graph, const std::vector<PairMatch>& matches) {
  std::vector<bool> dead(graph.rops.size(), false);
  for (const PairMatch& match : matches) {
    ROperator& first = graph.rops[match.first];
    const ROperator& second = graph.rops[match.second];
    first.attrs = PointwisePair{activation_call(first.epilogue), activation_call(second.epilogue), match.keeps};
    first.inputs = {first.inputs[0], first.inputs[1], second.inputs[1], first.epilogue.bias, second.epilogue.bias, first.epilogue.residual};
    first.inputs = without_last_none(std::move(first.inputs));
    first.epilogue = {};
    const TensorId y = first.outputs[0];
    first.outputs = {second.outputs[0]};
    if (match.keeps) first.outputs.push_back(y);
    first.origin.insert(first.origin.end(), second.origin.begin(), second.origin.end());
    dead[match.second] = true;
  }
  return remove_dead(erase_rops(std::move(graph), dead));
}

}  // namespace

Graph pair_pointwise(Graph graph, const GraphEstimator& estimator) {
  if (!estimator || pairs_of(graph).empty()) return graph;
  const double before_us = estimator(graph);
  double now_us = before_us;
  Graph made = graph;
  std::set<PairKind> tried;
  for (;;) {
    std::vector<PairMatch> matches = pairs_of(made);
    const auto next = std::find_if(matches.begin(), matches.end(), [&](const PairMatch& match) { return !tried.contains(match.kind); });
    if (next == matches.end()) return gains(before_us, now_us, kLeastPairsGainUs) ? made : graph;
    const PairKind kind = next->kind;
    tried.insert(kind);
    std::erase_if(matches, [&](const PairMatch& match) { return match.kind != kind; });
    Graph changed = paired(made, matches);
    const double us = estimator(changed);
    if (!gains(now_us, us, kLeastKindGainUs * static_cast<double>(matches.size()))) continue;
    now_us = us;
    made = std::move(changed);
  }
}

}  // namespace tamp::passes
