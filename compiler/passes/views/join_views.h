#pragma once

#include "compiler/ir/graph.h"

namespace tamp::passes {

// x = MatMul(a, w) -> f32[5,2,36]                       =>  r = Reshape(x) -> f32[5,2,3,3,4]
// s = Slice(x) -> f32[5,2,12]                               s = Slice(r) -> f32[5,2,1,3,4]
// v = Reshape(s) -> f32[5,6,4]                              t = Transpose(s) -> f32[1,2,3,5,4]
// t = Transpose(v) {perm=[1,0,2]} -> f32[6,5,4]             q = Reshape(t) -> f32[2,3,5,4]
// q = Reshape(t) -> f32[2,3,5,4]
//
// Concerns a chain of views of which no strides can express some step in the middle, which then would be a copy, though its result as a
// whole can be expressed: `v` joins images and heads, and `q` takes them apart again. `cell` is that of passes/assign_layout.
Graph join_views(Graph graph, int64_t cell);

}  // namespace tamp::passes
