// Merging convolutions that read the same input into one convolution (IOS-Merge, docs/policies.md). Policies do not call passes. A policy
// that considers merging asks a Merger instead, which returns the graph that the pass would make.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "compiler/ir/graph.h"

namespace tamp {

// Names of the rOperators that become one rOperator.
using Merge = std::vector<std::string>;

struct Merger {
  std::vector<Merge> classes;  // any two or more rOperators of a class may be merged
  // The placed graph with these merges and no other change. Error (bad input) if a merge is not possible.
  std::function<Graph(const std::vector<Merge>& merges)> merged;
};

}  // namespace tamp
