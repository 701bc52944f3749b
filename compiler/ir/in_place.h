// Outputs that may lie where an input lies: a decoder's cache that stays in place from token to token.
#pragma once

#include <cstdint>
#include <vector>

#include "compiler/ir/graph.h"

namespace tamp {

// For each graph output the number of the input whose memory a caller may give it, or -1. Such an output is the input with some elements
// replaced (a Scatter), and nothing else reads the input. Each thread that stores an element of the output has read at most the same
// element of the input, so the order of rTasks does not matter. Needs placed tensors.
std::vector<int64_t> inputs_for_outputs(const Graph& graph);

}  // namespace tamp
