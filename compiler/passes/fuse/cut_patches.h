#pragma once

#include "compiler/ir/estimator.h"
#include "compiler/ir/graph.h"

namespace tamp::passes {

// y = Conv(x, w) {kernel=[8,8], strides=[8,8]}   =>   b = Reshape(x) -> f32[1,3,4,8,4,8]
//                                                     t = Transpose(b) {perm=[0,2,4,1,3,5]} -> f32[1,4,4,3,8,8]
//                                                     r = Reshape(t) -> f32[1,4,4,192]
//                                                     p = Transpose(r) {perm=[0,3,1,2]} -> f32[1,192,4,4]
//                                                     y = Conv(p, w') {kernel=[1,1]}
//
// A convolution that reads every pixel once at most, as a vision transformer's first, becomes a product of patches. The first Reshape and
// both Transposes are views, and assign_layout makes one copy of the second Reshape. Rows and columns that no patch holds are cut off
// first. Needs: constant f32 weights, kernel equal to strides, no pads, dilations, groups or prologue. Keeps: answers, epilogue, name,
// origin. Does nothing where `estimator` is empty, or where the graph is not estimated to be clearly faster with the copy and the product.
// `cell`: as of assign_layout.
Graph cut_patches(Graph graph, const GraphEstimator& estimator, int64_t cell);

}  // namespace tamp::passes
