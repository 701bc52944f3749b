#pragma once

#include "compiler/ir/graph.h"

namespace tamp::passes {

// p = MatMul(x, w) -> f32[1,7,7,96]                                 =>  p' = MatMul(x, w') -> f32[1,7,7,96]
// a = Elementwise(p, b) {add(i0, i1)} -> f32[1,7,7,96]                  a' = Elementwise(p', b') {add(i0, i1)} -> f32[1,7,7,96]
// t = Transpose(a) {perm=[0,3,1,2]} -> f32[1,96,7,7]                    y = Transpose(a') {perm=[0,3,1,2]} -> f32[1,96,7,7]
// y = Elementwise(t, s) {mul(i0, i1)} -> f32[1,96,7,7]
//
// with the columns of w, and b, times s: a constant of one factor per output channel of a MatMul or Conv with constant weights that nobody
// else reads. Behind canonicalise, which leaves constant biases in epilogues.
Graph fold_scales(Graph graph);

}  // namespace tamp::passes
