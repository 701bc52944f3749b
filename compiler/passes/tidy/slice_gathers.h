#pragma once

#include "compiler/ir/graph.h"

namespace tamp::passes {

// i = const i64[] {2}                                  =>  y.slice = Slice(x) {starts=[2,0]} -> f32[1,3]
// y = Gather(x, i) {axis=0} -> f32[3]                      y = Reshape(y.slice) -> f32[3]
//
// Needs: indices that are constant and evenly spaced, as in x[t] of an unrolled loop. Slice and Reshape are views and cost nothing.
Graph slice_gathers(Graph graph);

}  // namespace tamp::passes
