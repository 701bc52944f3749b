// Convolutions on the same input that become one (IOS-Merge, docs/policies.md): what a policy that wants that may ask. As Estimator is for
// passes, this is for policies: they know nothing of passes, but may see a graph that a pass made for them.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "compiler/ir/graph.h"

namespace tamp {

// Names of the rOperators that become one.
using Merge = std::vector<std::string>;

struct Merger {
  std::vector<Merge> classes;  // of each, any two or more may be merged
  // The placed graph with these merged, and nothing else. Error (bad input) if one of them cannot be.
  std::function<Graph(const std::vector<Merge>& merges)> merged;
};

}  // namespace tamp
