// Makes one rOperator of steps that some family has a body for. before: products, normalisations, attention. after: Fused in the place of
// some of them, and views around these.
#pragma once

#include "compiler/ir/estimator.h"
#include "compiler/ir/fusion.h"

namespace tamp::passes {

// Changes all regions of a kind or none, whichever the whole graph is estimated to be faster with. `estimator`: for patterns that need it.
Graph fuse_regions(Graph graph, const FusionPattern& pattern, const GraphEstimator& graphs, const Estimator& estimator = {});

// The graph with a Fused in the place of each region.
Graph with_fused(Graph graph, const std::string& title, const std::vector<FusionRegion>& regions);

}  // namespace tamp::passes
