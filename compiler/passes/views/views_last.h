#pragma once

#include "compiler/ir/graph.h"

namespace tamp::passes {

// a = MatMul(x, w) -> f32[197,768]                           =>  a = MatMul(x, w) -> f32[197,768]
// v = Reshape(a) -> f32[1,197,768]                               r' = Reshape(r) -> f32[197,768]
// y = Elementwise(v, r) {add(i0, i1)} -> f32[1,197,768]          s = Elementwise(a, r') {add(i0, i1)} -> f32[197,768]
//                                                                y = Reshape(s) -> f32[1,197,768]
//
// Moves views behind an elementwise step, so that fuse_epilogue finds the step right behind the product. The views in between must leave
// all elements where they are in row-major order, each must have one reader, and other operands must have the result's shape, be scalars,
// or vary along its last dimension alone. The views may also be Transposes if an epilogue can take the step; other operands of the result's
// shape are then transposed back.
Graph views_last(Graph graph);

}  // namespace tamp::passes
