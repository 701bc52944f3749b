#include "compiler/passes/fuse/fuse_regions.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
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

// Gives regions of one kind the way to join that takes least time. None if the families estimate none of them.
std::optional<std::vector<FusionRegion>> with_best_way(Graph graph, const FusionPattern& pattern, std::vector<FusionRegion> regions,
                                                       const Estimator& estimator) {
  if (regions.front().ways.empty()) return regions;
  std::optional<double> best;
  size_t way = 0;
  for (size_t i = 0; i < regions.front().ways.size() && estimator; ++i) {
    const RegionSteps joined = regions.front().ways[i](graph);
    std::vector<ROperator> made = joined.around;
    made.push_back(fuse(graph, pattern.title, joined.steps, joined.results, joined.operands));
    double us = 0;
    for (const ROperator& rop : made) {
      const std::optional<Estimate> estimate = estimator(graph, rop);
      us += estimate ? estimate->us : std::numeric_limits<double>::infinity();
    }
    if (!std::isfinite(us) || (best && *best <= us)) continue;
    best = us;
    way = i;
  }
  if (!best) return std::nullopt;
  for (FusionRegion& region : regions) region.join = region.ways[way];
  return regions;
}

}  // namespace

Graph fuse_regions(Graph graph, const FusionPattern& pattern, const GraphEstimator& graphs, const Estimator& estimator) {
  if (!graphs || pattern.regions(graph).empty()) return graph;
  const auto least_us = [&](const std::vector<FusionRegion>& regions) {
    return pattern.least_us_of_kind + pattern.least_us_of_region * static_cast<double>(regions.size());
  };
  const auto changed = [&](const Graph& from, const std::vector<FusionRegion>& of_kind) -> std::optional<Graph> {
    const std::optional<std::vector<FusionRegion>> regions = with_best_way(from, pattern, of_kind, estimator);
    if (!regions || (pattern.needs_estimate && !have_estimates(from, pattern, *regions, estimator))) return std::nullopt;
    return with_fused(from, pattern.title, *regions);
  };
  Graph made = change_by_kind(graph, graphs, least_us, pattern.regions, changed);
  const bool is_worth = pattern.least_us_of_all == 0 || gains(graphs(graph), graphs(made), pattern.least_us_of_all);
  return is_worth ? made : graph;
}

}  // namespace tamp::passes
