// Outputs that may lie where an input lies: a decoder's cache that stays in place from token to token.
#pragma once

#include <cstdint>
#include <vector>

#include "compiler/ir/graph.h"

namespace tamp {

// For each graph output the number of the input whose memory a caller may give it, or -1. Such an output is the input with some elements
// replaced (a Scatter). Each thread that stores an element of the output has read at most the same element of the input, so the order of
// the Scatter's rTasks does not matter.
//
// Nothing else reads the input, but for Fused attentions of a step whose own first step with it is a Scatter to the same place
// (passes/recognise/step_attention). What such a Fused makes does not depend on what the input has at that place, whatever that is: its
// body (rk::attention_step_placed) takes the own row instead, and looks at no value there. All other elements are stored by nobody, since
// the Scatter's rTasks leave alone what no index names where input and output are one. So the Fused's result is the same before, behind and
// beside the Scatter, and there is no Wait between the two. The two places are equal in every run because they are one element of an input
// that the caller gives. Needs placed tensors.
std::vector<int64_t> inputs_for_outputs(const Graph& graph);
// Whether the rOperator is a Scatter whose result may lie so.
bool may_stay_in_place(const Graph& graph, const ROperator& rop);

}  // namespace tamp
