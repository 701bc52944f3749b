#pragma once

#include "compiler/ir/graph.h"

namespace tamp::passes {

// y = MatMul(a, w) {} -> f32[1,2,4,32]                            =>  y = MatMul(a', w) {} -> f32[1,2,4,32]
// v = Reshape(y) -> f32[8,32]                                         v = Reshape(y) -> f32[2,128]
// n = Normalize(v, rows=[[0,4,1,5],[2,6,3,7]]) -> f32[2,128]          n = Normalize(v) -> f32[2,128]
//
// A normalisation that takes every row once, several side by side (Swin's patch merging: four), finds them side by side where all work on
// rows in front of it is in that order. It is, if it begins and ends at rOperators that take rows by a table: attention within windows and
// other such normalisations, whose tables become others, and a normalisation of a map's pixels, which gets a table. All else is work on
// each row alone and does not mind. The normalisation, now one of rows as they lie, may be no level of its own (passes/defer_normalize).
// Stages follow each other in a network, and the order of each is in terms of the one behind it.
Graph order_rows(Graph graph);

}  // namespace tamp::passes
