#pragma once

#include "compiler/ir/graph.h"

namespace tamp::passes {

// Whether the rOperator takes rows of a matrix of f32 by constant numbers that all exist.
bool gathers_rows(const Graph& graph, const ROperator& rop);

// g = Gather(x, table) {axis=0} -> f32[8,32]                =>  n' = Normalize(x, rows=table as [4,2]) {axes=[1]} -> f32[4,64]
// v = Reshape(g) -> f32[1,2,2,64]                               n = Reshape(n') -> f32[1,2,2,64]
// n = Normalize(v) {axes=[3]} -> f32[1,2,2,64]
//
// A normalisation of gathered rows that nothing else reads takes them where they are, one or several side by side for each of its own
// (Swin's patch merging: four). The last sweep of passes/move_rows.
Graph take_rows(Graph graph);

}  // namespace tamp::passes
