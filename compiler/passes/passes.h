// The passes in their order. A pass is a function from Graph to Graph in a file of its own.
#pragma once

#include <string>
#include <vector>

#include "compiler/ir/graph.h"

namespace tamp::passes {

struct Pass {
  std::string name;
  Graph (*run)(Graph graph);
};

// What must be done before rKernels can be chosen; after the last one every tensor is placed.
const std::vector<Pass>& pipeline();

}  // namespace tamp::passes
