#pragma once

#include <vector>

#include "compiler/ir/merge.h"

namespace tamp::passes {

// a = Conv(x, v) {kernel=[1,1]}                           y = Conv(x, vw) {kernel=[3,3], pads=[1,1,1,1]}
// b = Conv(x, w) {kernel=[3,3], pads=[1,1,1,1]}       =>  a = Slice(y) {channels of v}
// y = Concat(a, b) {axis=1}                               b = Slice(y) {channels of w}
//
// Convolutions become one whose output channels are theirs, one after the other; what each made is a slice of its result. Kernels are
// padded with zeros to one that covers all of them at the same place of the input, so an input that is infinite or NaN may make a NaN that
// was not there. Channels have the order in which a Concat wants them, if one does: it then costs nothing.
// Keeps: shapes, order, origin, answers of finite inputs. Not run by itself: a policy says which merges pay (schedule/ios_merge.h).
// Error (bad input) names the rOperators that are not of one class of mergeable().
Graph merge_convolutions(Graph graph, const std::vector<Merge>& merges);

// Convolutions of which any two may become one, in the order of the graph: the same input, strides, dilations and output extents, one
// group, constant weights, no residual, no depthwise convolution in front, and the same activations. One epilogue is all that a body
// applies to its channels, so different activations are not merged; biases are, with zeros where there is none.
std::vector<Merge> mergeable(const Graph& graph);

}  // namespace tamp::passes
