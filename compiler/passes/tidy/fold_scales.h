#pragma once

#include "compiler/ir/graph.h"

namespace tamp::passes {

// p = MatMul(x, w) -> f32[1,7,7,96]                                 =>  p' = MatMul(x, w') -> f32[1,7,7,96]
// a = Elementwise(p, b) {add(i0, i1)} -> f32[1,7,7,96]                  a' = Elementwise(p', b') {add(i0, i1)} -> f32[1,7,7,96]
// t = Transpose(a) {perm=[0,3,1,2]} -> f32[1,96,7,7]                    y = Transpose(a') {perm=[0,3,1,2]} -> f32[1,96,7,7]
// y = Elementwise(t, s) {mul(i0, i1)} -> f32[1,96,7,7]
//
// w' is w with its columns multiplied by s, and b' is b times s. Needs: a constant s with one factor per output channel of a MatMul or
// Conv, and constant weights. Runs after canonicalise, which has put constant biases into epilogues.
Graph fold_scales(Graph graph);

}  // namespace tamp::passes
