#pragma once

#include <vector>

#include "compiler/ir/merge.h"

namespace tamp::passes {

// a = Conv(x, v) {kernel=[1,1]}                           y = Conv(x, vw) {kernel=[3,3], pads=[1,1,1,1]}
// b = Conv(x, w) {kernel=[3,3], pads=[1,1,1,1]}       =>  a = Slice(y) {channels of v}
// y = Concat(a, b) {axis=1}                               b = Slice(y) {channels of w}
//
// Several convolutions become one, which has the output channels of all of them, one after the other. The result of each is a slice of the
// merged result. The merged kernel covers the kernels of all at the same place of the input, and is zero where one of them has no tap. Zero
// times infinity or NaN is NaN, so such inputs may give a NaN that was not there before. If a Concat joins the results, channels have the
// Concat's order; the Concat then costs nothing. Keeps: shapes, order, origin, answers of finite inputs. Not run by itself: a policy says
// which merges pay (schedule/ios_merge.h). Error (bad input) names the rOperators that are not of one class of mergeable().
Graph merge_convolutions(Graph graph, const std::vector<Merge>& merges);

// Convolutions of which any two may become one, in the order of the graph: the same input, strides, dilations and output extents, one
// group, constant weights, no residual, no depthwise convolution in front, and the same activations. One epilogue is all that a body
// applies to its channels, so different activations are not merged; biases are, with zeros where there is none.
std::vector<Merge> mergeable(const Graph& graph);

}  // namespace tamp::passes
