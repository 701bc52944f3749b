#pragma once

#include "compiler/ir/estimator.h"
#include "compiler/ir/graph.h"

namespace tamp::passes {

// n = Normalize(x, scale, shift) {axes=[1]} -> f32[1,64]         =>   q = PrologueMatMul(w, scale, shift, x) {normalize}
// q = MatMul(n, w) -> f32[1,64]                                       k = PrologueMatMul(v, scale, shift, x) {normalize}
// k = MatMul(n, v) -> f32[1,64]
//
// g = Elementwise(a, b) {sigmoid(i0), mul(s0, i0), mul(s1, i1)}  =>   y = PrologueMatMul(w, , , a, b) {steps=[..]}
// y = MatMul(g, w)
//
// The product of at most kMostPrologueRows rows computes them itself, elementwise steps, a normalisation or both, so that they are no level
// of the program. All that reads the rows must be such a product; each computes them anew. Reshapes, and Transposes that
// move dimensions of one element alone, may stand between the two. Example: [1,1,1,768] to [1,768,1,1] to [1,768]. Needs: f32, constant
// weights, operands of the steps that all have the shape of the rows, and a normalisation along the last dimension whose scale and shift
// are constants of one row or missing. Keeps: answers, the products' names, origins. Does nothing where an estimator is empty. All of a
// kind (rows, k, what makes them, the products' columns) are changed, or none: none where the graph is not estimated to be faster with the
// change.
Graph fuse_prologue(Graph graph, const Estimator& estimator, const GraphEstimator& graphs);

inline constexpr int64_t kMostPrologueRows = 8;

// fuse_prologue and fuse_normalize. A normalisation between two products of few rows can become part of either: of both orders of the two
// passes the one is taken whose graph is estimated to be faster.
Graph fuse_rows(const Graph& graph, const Estimator& estimator, const GraphEstimator& graphs, bool rounds = false);

}  // namespace tamp::passes
