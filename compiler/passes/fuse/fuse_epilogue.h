#pragma once

#include "compiler/ir/graph.h"

namespace tamp::passes {

// a = Conv(x, w) {...}                     =>  y = Conv(x, w) {...} epilogue{residual=r, act=relu}
// s = Elementwise(a, r) {add(i0, i1)}
// y = Elementwise(s) {relu(i0)}
//
// Moves into a Conv or MatMul what it can do to its accumulator before it stores: add or subtract a constant per channel (columns of a
// MatMul), add a tensor of its output's shape before or after the activation, one activation (also x * sigmoid(x) = silu). Needs: only the
// fused rOperators read the intermediate, which is no graph output. The fused rOperator takes the place of the last one it absorbed, so
// that all its operands are made before it. Where two products are added, either could take the other's result as its residual. The one
// further from the graph's inputs does, so that the other's work overlaps with the work that leads to the first.
Graph fuse_epilogue(Graph graph);

}  // namespace tamp::passes
