// The match begins at the product and goes backwards, behind all passes that give products and convolutions their epilogues.
#include "compiler/passes/fuse/pool_by_sums.h"

#include <optional>
#include <utility>

#include "compiler/ir/fused.h"
#include "compiler/passes/fuse/sum_channels.h"
#include "compiler/passes/rewrite.h"

namespace tamp::passes {
namespace {

// A further body in the program costs what no estimate holds, so a small gain is none.
constexpr double kLeastPoolGainUs = 0.3;
// Each rTask of the product reads all parts. With resnet50's 2048 channels in two parts that costs more than the level: 242.9 us instead of
// 239.9 in tf32 on an H200. With mobilenet_v2's 1280 it is 132.9 instead of 135.3.
constexpr int64_t kMostChannels = 1280;

struct PooledMatch {
  size_t conv, product;
  std::vector<size_t> between;  // the pooling and the views behind it
};

struct PooledMatcher {
  const Graph& graph;
  const Uses& uses;

  // The product at `rop` and what it needs of means.
  std::optional<PooledMatch> match(size_t rop) const {
    const ROperator& product = graph.rops[rop];
    const auto* matmul = std::get_if<MatMul>(&product.attrs);
    if (!matmul || matmul->trans_a || product.inputs.size() != 2 || !is_f32_constant(graph, product.inputs[1])) return std::nullopt;
    if (graph.tensor(product.inputs[0]).shape.size() != 2 || graph.tensor(product.inputs[1]).shape.size() != 2) return std::nullopt;
    PooledMatch match{0, rop, {}};
    TensorId at = product.inputs[0];
    ROperatorId maker = uses.maker_for_one(at);
    for (; maker.valid() && std::holds_alternative<Reshape>(graph.rop(maker).attrs); maker = uses.maker_for_one(at)) {
      match.between.push_back(maker.index());
      at = graph.rop(maker).inputs[0];
    }
    if (!maker.valid() || !is_mean_of_channels(graph, graph.rop(maker))) return std::nullopt;
    match.between.push_back(maker.index());
    const TensorId map = graph.rop(maker).inputs[0];
    // The views in between leave images and channels as they are.
    const Shape means(graph.tensor(map).shape.begin(), graph.tensor(map).shape.begin() + 2);
    const ROperatorId conv = uses.producer[map.index()];
    if (graph.tensor(product.inputs[0]).shape != means || !conv.valid() || !can_sum(graph.rop(conv))) return std::nullopt;
    match.conv = conv.index();
    return match;
  }

  bool can_sum(const ROperator& rop) const {
    const auto* conv = std::get_if<Conv>(&rop.attrs);
    if (!conv || has_prologue(*conv) || rop.inputs.size() != 2 || !is_f32_constant(graph, rop.inputs[1])) return false;
    if (rop.epilogue.residual.valid() && rop.epilogue.residual_after_activation) return false;
    const int64_t channels = graph.tensor(rop.outputs[0]).shape[1];
    return is_f32_map(graph, rop.inputs[0]) && channels % 4 == 0 && channels <= kMostChannels;
  }
};

// The product with the sums of tiles, added up to `pooled`.
ROperator product_of_sums(const Graph& graph, const PooledMatch& match, TensorId sums, TensorId pooled) {
  ROperator product = graph.rops[match.product];
  const Shape& map = graph.tensor(graph.rops[match.conv].outputs[0]).shape;
  std::get<MatMul>(product.attrs).alpha /= static_cast<float>(map[2] * map[3]);
  product.inputs[0] = pooled;
  for (const size_t step : match.between) prepend_origin(product, graph.rops[step]);
  const ROperator add{product.name, Reduce{ReduceKind::sum, {2}, /*keepdims=*/false}, {}, {sums}, {pooled}, {}};
  return fuse(graph, "product with sums of channels", {add, product}, product.outputs);
}

// The graph with the tile for which both rOperators take the shortest estimated time; none where there is no body for either.
std::optional<Graph> with_sums(Graph graph, const PooledMatch& match, const Estimator& estimator) {
  const ROperator conv = graph.rops[match.conv];
  const Shape map = graph.tensor(conv.outputs[0]).shape;
  const Tensor of_map = graph.tensor(conv.outputs[0]);
  const TensorId sums = add_sums(graph, of_map), pooled = add_like(graph, sums, of_map.name + ".pooled", Shape{map[0], map[1]});
  std::optional<double> least_us;
  std::vector<int64_t> best;
  for (const std::vector<int64_t>& tile : tiles_for_sums(map)) {
    graph.tensor(sums).shape = shape_of_sums(map, tile);
    const std::optional<Estimate> first = estimator(graph, summed_conv(graph, conv, sums, tile)),
                                  second = estimator(graph, product_of_sums(graph, match, sums, pooled));
    if (!first || !second || (least_us && first->us + second->us >= *least_us)) continue;
    least_us = first->us + second->us;
    best = tile;
  }
  if (!least_us) return std::nullopt;
  graph.tensor(sums).shape = shape_of_sums(map, best);
  ROperator product = product_of_sums(graph, match, sums, pooled);
  graph.rops[match.conv] = summed_conv(graph, conv, sums, best);
  graph.rops[match.product] = std::move(product);
  std::vector<bool> dead(graph.rops.size(), false);
  for (const size_t step : match.between) dead[step] = true;
  return remove_dead(erase_rops(std::move(graph), dead));
}

}  // namespace

Graph pool_by_sums(Graph graph, const Estimator& estimator, const GraphEstimator& graphs) {
  if (!estimator || !graphs) return graph;
  std::optional<double> now_us;
  Uses uses = uses_of(graph);
  for (size_t at = 0; at < graph.rops.size(); ++at) {
    const std::optional<PooledMatch> match = PooledMatcher{graph, uses}.match(at);
    std::optional<Graph> made = match ? with_sums(graph, *match, estimator) : std::nullopt;
    if (!made) continue;
    if (!now_us) now_us = graphs(graph);
    const double us = graphs(*made);
    if (!gains(*now_us, us, kLeastPoolGainUs)) continue;
    at -= graph.rops.size() - made->rops.size();
    now_us = us;
    graph = std::move(*made);
    uses = uses_of(graph);
  }
  return graph;
}

}  // namespace tamp::passes
