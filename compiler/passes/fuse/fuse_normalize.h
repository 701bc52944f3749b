#pragma once

#include "compiler/ir/estimator.h"
#include "compiler/ir/graph.h"

namespace tamp::passes {

// s = MatMul(a, w) epilogue{bias=b, residual=r}   =>   y, s = NormalizedMatMul(a, w, b, r, scale, shift) {keeps_sum}
// y = Normalize(s, scale, shift) {axes=[1]}
//
// A product of constant weights and the normalisation of its rows become one rOperator. The sum is a result of its own only where something
// else reads it. Reshapes that keep the last dimension may stand between the two. Needs: f32, no activation behind the product, a
// multiple of four columns, and scale and shift that are constants of one row or missing. Keeps: answers, the product's name, origins.
// Does nothing where `estimator` is empty. All products of a kind (rows, columns, k, and whether there is a residual) are changed, or none:
// none where the graph is not estimated to be clearly faster with the change.
Graph fuse_normalize(Graph graph, const GraphEstimator& estimator);

}  // namespace tamp::passes
