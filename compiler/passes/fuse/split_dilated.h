#pragma once

#include "compiler/ir/estimator.h"
#include "compiler/ir/graph.h"

namespace tamp::passes {

// y = Conv(x, w) {kernel=[3,3], dilations=[12,12], pads=[12,12,12,12]} epilogue{bias=b, act=relu} -> f32[1,256,65,65]   =>
//   s0 = Slice(x) {starts=[0,0,0,0]} -> f32[1,2048,53,53]
//   y0 = Conv(s0, w0) {kernel=[1,1], pads=[12,12,0,0]} -> f32[1,256,65,65]
//   ..
//   s8 = Slice(x) {starts=[0,0,12,12]} -> f32[1,2048,53,53]
//   y = Conv(s8, w8) {kernel=[1,1], pads=[0,0,12,12]} epilogue{bias=b, residual=y7, act=relu} -> f32[1,256,65,65]
//
// The taps of a dilated convolution are so far apart that no box of shared memory holds the pixels of a tile (DeepLab: 12, 24 and 36 pixels
// in a map of 65). One after another they are pointwise convolutions of a part of the map, each with the sum of those before as its
// residual. The Slices are views. (In fp16 and bf16 the sums between taps are rounded like other activations: with 1024 channels the error
// is 6.2e-4 instead of 4.6e-4, and 4.7e-3 instead of 2.2e-3.) Needs: constant f32 weights, a dilation above 1, no strides, no prologue and
// no residual. Keeps: answers but for the order of sums, epilogue, name, origin. Taps that read nothing but padding are left out. Does
// nothing where `estimator` is empty or where the graph is not estimated to be faster.
Graph split_dilated(Graph graph, const GraphEstimator& estimator);

}  // namespace tamp::passes
