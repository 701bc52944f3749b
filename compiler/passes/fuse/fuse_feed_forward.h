#pragma once

#include "compiler/ir/estimator.h"
#include "compiler/ir/graph.h"

namespace tamp::passes {

// n = Normalize(x, scale, shift) {axes=[1]}         =>   z = FeedForward(x, scale * v, w, c + shift * v, d, r) {act=gelu, normalize}
// y = MatMul(n, v) epilogue{bias=c, act=gelu}
// z = MatMul(y, w) epilogue{bias=d, residual=r}
//
// The feed-forward part of a transformer's block, as one rOperator whose rTasks keep y to themselves: two levels less, or one where there
// is no Normalize in front. Reshapes that keep the last dimension may stand between them. Needs: f32, constant weights, one of the
// activations that the body has, y read by the second product alone, and no more than kMostFeedColumns columns of x and z; a Normalize is
// taken where the first product alone reads it. Then, where a Normalize is all that reads z, that is the FeedForward's, too:
//   m = Normalize(z, g, h) {axes=[1]}               =>   m = FeedForward(.., r, g, h) {act=gelu, normalize, normalize_result}
// Keeps: answers, names, origins. Does nothing where `estimator` is empty. All feed-forward
// parts of a kind (rows, columns) are changed, or none: none where the graph is not estimated to be clearly faster.
Graph fuse_feed_forward(Graph graph, const GraphEstimator& estimator);

inline constexpr int64_t kMostFeedColumns = 192;

}  // namespace tamp::passes
