#include "compiler/passes/fuse/fuse_regions.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "compiler/ir/fused.h"
#include "compiler/passes/by_kind.h"
#include "compiler/passes/rewrite.h"

namespace tamp::passes {

Graph with_fused(Graph graph, const std::string& title, const std::vector<FusionRegion>& regions) {
  std::vector<ROperator> around;  // added in the end, since rOperators have numbers until then
  std::vector<bool> dead(graph.rops.size(), false);
  for (const FusionRegion& region : regions) {
    RegionSteps joined = region.join(graph);
    for (const size_t rop : region.rops) dead[rop] = true;
    const size_t at = *std::min_element(region.rops.begin(), region.rops.end());
    dead[at] = false;
    graph.rops[at] = fuse(graph, title, joined.steps, joined.results, joined.operands);
    around.insert(around.end(), std::make_move_iterator(joined.around.begin()), std::make_move_iterator(joined.around.end()));
  }
  graph = erase_rops(std::move(graph), dead);
  graph.rops.insert(graph.rops.end(), std::make_move_iterator(around.begin()), std::make_move_iterator(around.end()));
  return remove_dead(sort_topologically(std::move(graph)));
}

namespace {

bool have_estimates(Graph graph, const FusionPattern& pattern, const std::vector<FusionRegion>& regions, const Estimator& estimator) {
  return estimator && std::all_of(regions.begin(), regions.end(), [&](const FusionRegion& region) {
           const RegionSteps joined = region.join(graph);
           return estimator(graph, fuse(graph, pattern.title, joined.steps, joined.results, joined.operands)).has_value();
         });
}

}  // namespace

Graph fuse_regions(Graph graph, const FusionPattern& pattern, const GraphEstimator& graphs, const Estimator& estimator) {
  if (!graphs || pattern.regions(graph).empty()) return graph;
  const auto least_us = [&](const std::vector<FusionRegion>& regions) {
    return pattern.least_us_of_kind + pattern.least_us_of_region * static_cast<double>(regions.size());
  };
  const auto changed = [&](const Graph& from, const std::vector<FusionRegion>& regions) -> std::optional<Graph> {
    if (pattern.needs_estimate && !have_estimates(from, pattern, regions, estimator)) return std::nullopt;
    return with_fused(from, pattern.title, regions);
  };
  Graph made = change_by_kind(graph, graphs, least_us, pattern.regions, changed);
  const bool is_worth = pattern.least_us_of_all == 0 || gains(graphs(graph), graphs(made), pattern.least_us_of_all);
  return is_worth ? made : graph;
}

}  // namespace tamp::passes
