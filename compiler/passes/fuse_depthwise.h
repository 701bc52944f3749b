#pragma once

#include "compiler/ir/estimator.h"
#include "compiler/ir/graph.h"

namespace tamp::passes {

// r = Elementwise(x) {relu(i0)}                 =>  y = Conv(x, w, none, d) {kernel=[1,1], input_act=relu, depthwise_kernel=[3,3], ...}
// m = Conv(r, d) {kernel=[3,3], group=32}
// y = Conv(m, w) {kernel=[1,1]}
//
// A depthwise convolution goes in front of the pointwise one that alone reads it, its bias and activation with it; then an
// activation goes in front of all the convolutions that read it, each of which computes it again, if that leaves no reader.
// Needs: constant f32 weights, two spatial dimensions, canonical operands. Keeps: answers, order, origin.
// Does nothing where `estimator` is empty or has no estimate for the Conv with its prologue.
Graph fuse_depthwise(Graph graph, const Estimator& estimator);

}  // namespace tamp::passes
