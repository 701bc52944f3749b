#pragma once

#include "compiler/ir/estimator.h"
#include "compiler/ir/graph.h"

namespace tamp::passes {

// r = Elementwise(x) {relu(i0)}                 =>  y = Conv(x, w, none, d) {kernel=[1,1], input_act=relu, depthwise_kernel=[3,3], ...}
// m = Conv(r, d) {kernel=[3,3], group=32}
// y = Conv(m, w) {kernel=[1,1]}
//
// A depthwise convolution, with its bias and activation, becomes the prologue of the pointwise convolution that is its only reader. Then an
// activation whose readers are all convolutions moves into these convolutions; each of them computes the activation again. Needs: constant
// f32 weights, two spatial dimensions, canonical operands. Keeps: answers, order, origin. Does nothing where `estimator` is empty or has no
// estimate for the Conv with its prologue.
Graph fuse_depthwise(Graph graph, const Estimator& estimator);

}  // namespace tamp::passes
