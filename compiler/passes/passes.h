// The passes in their order. A pass is a function from Graph to Graph in a file of its own.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "compiler/ir/graph.h"
#include "compiler/passes/fuse_depthwise.h"
#include "compiler/passes/stack_recurrences.h"

namespace tamp::passes {

struct Pass {
  std::string name;
  std::function<Graph(Graph graph)> run;
};

// What the passes may ask about the vDevice; left out, the passes that need it do nothing.
struct Target {
  RecurrentCost recurrent_us;
  ProductCost product_us;
  TakesPrologue takes_prologue{};  // empty: no rKernel does
};

// What must be done before rKernels can be chosen; after the last one every tensor is placed.
std::vector<Pass> pipeline(const Target& target = {});

}  // namespace tamp::passes
