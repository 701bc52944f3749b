// The passes in their order. A pass is a function from Graph to Graph in a file of its own. Its folder is the act of the pipeline that it
// belongs to: tidy, recognise, views, fuse, place. Files beside this one are what passes of several acts use.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "compiler/ir/estimator.h"
#include "compiler/ir/fusion.h"
#include "compiler/ir/graph.h"

namespace tamp::passes {

struct Pass {
  std::string name;
  std::function<Graph(Graph graph)> run;
};

// The passes that must run before rKernels can be chosen; after the last one every tensor is placed. Without an estimator the passes that
// need it do nothing. `cell` and `placed_estimator`: as of assign_layout; `rounds`: as of defer_normalize. `fusions`: what
// the rKernels' families have bodies for.
std::vector<Pass> pipeline(const Estimator& estimator = {}, int64_t cell = 4, const GraphEstimator& graph_estimator = {},
                           const PlacedEstimator& placed_estimator = {}, bool rounds = false,
                           const std::vector<FusionPattern>& fusions = {});

}  // namespace tamp::passes
