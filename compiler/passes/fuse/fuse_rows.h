#pragma once

#include <vector>

#include "compiler/ir/estimator.h"
#include "compiler/ir/fusion.h"

namespace tamp::passes {

// Products with what makes their rows, or with what is done to the rows of their sums: the patterns of FusionTime::products. A
// normalisation between two products can become part of either, or of both by moments (defer_normalize, which comes behind). So the
// patterns are tried in every order, and the graph is taken that is estimated to be fastest: of these orders, and with defer_normalize
// behind them, of them and of the graph as it is. Does nothing where `graphs` is empty.
Graph fuse_rows(const Graph& graph, const std::vector<FusionPattern>& patterns, const Estimator& estimator, const GraphEstimator& graphs,
                bool rounds = false);

}  // namespace tamp::passes
