#pragma once

#include "compiler/ir/estimator.h"
#include "compiler/ir/graph.h"

namespace tamp::passes {

//   x = Conv(i, c) epilogue{bias=b, act=relu} -> f32[1,64,7,7]        x, s = Fused(i, c, b) {x = Conv(i, c) .., s = TileSums(x)
//   {tile=[2,7]}} m = Reduce(x) {kind=mean, axes=[2,3]} -> f32[1,64,1,1]       =>   y = Fused(s, w, d) {m = Reduce(s) {kind=sum, axes=[2]},
//   y = MatMul(m, w) {alpha=0.0204} ..} v = Reshape(m) -> f32[1,64] y = MatMul(v, w) epilogue{bias=d} -> f32[1,10]
//
// The end of most convolutional networks, without a level for the pooling: the convolution adds up its channels, tile by tile, and the
// product adds up the tiles' sums. The convolution may have a residual (as in ResNet), and its map other readers. Nothing is changed where
// another rOperator reads m or v. `estimator` chooses the tile; the change is made where `graphs` says that the whole graph is faster by
// it.
Graph pool_by_sums(Graph graph, const Estimator& estimator, const GraphEstimator& graphs);

}  // namespace tamp::passes
