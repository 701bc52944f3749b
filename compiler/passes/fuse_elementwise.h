#pragma once

#include "compiler/ir/graph.h"

namespace tamp::passes {

// a = Elementwise(x, y) {mul(i0, i1)} -> f32[2,3]     =>  b = Elementwise(x, y) {mul(i0, i1), tanh(s0)} -> f32[2,3]
// b = Elementwise(a) {tanh(i0)} -> f32[2,3]
//
// Chains and diamonds. Needs: only the one rOperator reads `a`, `a` is no graph output and has the shape of what it is fused into
// (so a value is never computed twice). At most 8 operands and 16 steps, which is what the device's bodies hold.
Graph fuse_elementwise(Graph graph);

}  // namespace tamp::passes
