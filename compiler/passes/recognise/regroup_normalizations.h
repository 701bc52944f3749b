#pragma once

#include "compiler/ir/graph.h"

namespace tamp::passes {

// r = Reshape(x) {shape=[2,4,-1]} -> f32[2,4,600]               c = Reshape(x) -> f32[2,4,6,10,10]
// n = Normalize(r, ones[4,1], zeros[4,1]) {axes=[2]}        =>  n = Normalize(c, s[4,6,1,1], b[4,6,1,1]) {axes=[2,3,4]}
// u = Reshape(n) -> f32[2,24,10,10]                             y = Reshape(n) -> f32[2,24,10,10]
// k = u * s[24,1,1];  y = k + b[24,1,1]
//
// Group normalisation as exporters write it. No strides express the flattened groups of a channels-last map, so it would be copied into
// another order, and what comes next would find it there; cutting the channels alone is a view of any order. One group needs no view:
// axes 1, 2 and 3 of x. So do groups of one channel. Factors behind it are folded where they are constants of channels.
Graph regroup_normalizations(Graph graph);

}  // namespace tamp::passes
