// Loops of run time in a graph that is not placed. What a loop runs follows from the data: all that depends on results of its LoopBegin,
// and not by way of its LoopEnd. So passes may do what they like with rOperators in loops: one that needs nothing of an iteration is
// outside.
#pragma once

#include <cstdint>
#include <vector>

#include "compiler/ir/graph.h"

namespace tamp {

inline bool is_of_loop(const OpAttrs& attrs) { return std::holds_alternative<LoopBegin>(attrs) || std::holds_alternative<LoopEnd>(attrs); }
bool has_loops(const Graph& graph);  // placed or not

// LoopBegin::loop of the loops that a rOperator or a tensor is in, outermost first.
struct LoopNests {
  std::vector<std::vector<int64_t>> of_rop, of_tensor;
};
LoopNests loop_nests(const Graph& graph);

// Whether `inner` is `outer` or in it; all is in loop -1. Of Graph::loops.
bool is_in_loop(const Graph& graph, int32_t inner, int32_t outer);

}  // namespace tamp
