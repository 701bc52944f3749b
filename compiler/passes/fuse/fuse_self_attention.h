#pragma once

#include "compiler/ir/estimator.h"
#include "compiler/ir/graph.h"

namespace tamp::passes {

// n = Normalize(x, scale, shift) {axes=[1]}       =>   y = SelfAttention(x, scale * w, b + shift * w, bias, rows) {heads=..}
// m = MatMul(n, w) epilogue{bias=b}
// y = Attention(queries, keys and values of m, bias, rows)
//
// Queries, keys and values are views of m that put the heads of a row side by side. Three levels become one, or two where the product makes
// its rows' normalisation itself. Needs: f32, constant weights and bias, windows of up to kMostSelfRows rows, heads of kSelfHeadSize
// columns, and that nothing else reads n, m or the views. Keeps: answers, names, origins. Does nothing where `estimator` is empty. All
// matches of a kind (rows, columns, heads, windows) are changed, or none: none where the graph is not estimated to be clearly faster.
Graph fuse_self_attention(Graph graph, const GraphEstimator& estimator);

inline constexpr int64_t kMostSelfRows = 64, kSelfHeadSize = 32;

}  // namespace tamp::passes
