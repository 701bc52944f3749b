#include "compiler/ir/fusion.h"

#include <algorithm>
#include <utility>

namespace tamp {

std::function<std::vector<FusionRegion>(const Graph&)> regions_at_each(
    std::function<std::optional<FusionRegion>(const Graph& graph, const Uses& uses, size_t at)> region_at) {
  return [region_at = std::move(region_at)](const Graph& graph) {
    const Uses uses = uses_of(graph);
    std::vector<bool> taken(graph.rops.size(), false);
    std::vector<FusionRegion> regions;
    for (size_t at = 0; at < graph.rops.size(); ++at) {
      std::optional<FusionRegion> region = region_at(graph, uses, at);
      if (!region || std::any_of(region->rops.begin(), region->rops.end(), [&](size_t rop) { return taken[rop]; })) continue;
      for (const size_t rop : region->rops) taken[rop] = true;
      regions.push_back(*std::move(region));
    }
    return regions;
  };
}

}  // namespace tamp
