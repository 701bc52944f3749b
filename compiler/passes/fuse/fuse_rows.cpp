#include "compiler/passes/fuse/fuse_rows.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>

#include "compiler/ir/products.h"
#include "compiler/passes/fuse/defer_normalize.h"
#include "compiler/passes/fuse/fuse_regions.h"

namespace tamp::passes {
namespace {

Graph fused_in_best_order(const Graph& graph, std::vector<FusionPattern> patterns, const Estimator& estimator,
                          const GraphEstimator& graphs) {
  std::erase_if(patterns, [&](const FusionPattern& pattern) { return pattern.regions(graph).empty(); });
  std::vector<size_t> order(patterns.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::optional<Graph> best;
  double best_us = 0;
  do {
    Graph made = graph;
    for (const size_t i : order) made = fuse_regions(std::move(made), patterns[i], graphs, estimator);
    const double us = order.size() > 1 ? graphs(made) : 0;
    if (best && !(us < best_us)) continue;
    best = std::move(made);
    best_us = us;
  } while (std::next_permutation(order.begin(), order.end()));
  return *std::move(best);
}

}  // namespace

Graph fuse_rows(const Graph& graph, const std::vector<FusionPattern>& patterns, const Estimator& estimator, const GraphEstimator& graphs,
                bool rounds) {
  if (!graphs) return graph;
  Graph fused = fused_in_best_order(graph, patterns, estimator, graphs);
  if (std::none_of(fused.rops.begin(), fused.rops.end(), normalizes_in_sums)) return fused;
  const Graph deferred = defer_normalize(graph, graphs, rounds);
  if (std::none_of(deferred.rops.begin(), deferred.rops.end(), is_by_moments)) return fused;
  return graphs(deferred) < graphs(defer_normalize(fused, graphs, rounds)) ? graph : fused;
}

}  // namespace tamp::passes
