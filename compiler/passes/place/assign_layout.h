#pragma once

#include "compiler/ir/estimator.h"
#include "compiler/ir/graph.h"

namespace tamp::passes {

// a = Conv(x, w) {...} -> f32[1,8,4,4]           buf3 = buffer f32[192] arena
// b = Conv(x, v) {...} -> f32[1,4,4,4]       =>  y = view f32[1,12,4,4] @ buf3+0 strides[0,1,48,12]
// y = Concat(a, b) {axis=1}                      a = Conv(x, w) {...} -> f32[1,8,4,4] @ buf3+0 strides[0,1,48,12]
//                                                b = Conv(x, v) {...} -> f32[1,4,4,4] @ buf3+8 strides[0,1,48,12]
//
// Gives every tensor its place and fills Graph::buffers. Transpose, Slice, Reshape and Concat become strides and are gone afterwards; where
// strides cannot express the view, a copy (Elementwise of one step `identity`) is put in. Left are Conv, MatMul, Pool, Reduce, Softmax,
// Lrn, Elementwise, Pad and Gather. A tensor that no rOperator makes any more is a view of memory that other rOperators write. Graph inputs
// and outputs are row-major in buffers of their own. The operand of a Conv with a prologue is copied where boxes cannot be cut from it
// (compiler/ir/tensor.h, lies_for_boxes). `cell`: how many elements of an activation fill 16 bytes: 4, or 8 where activations may become
// 16-bit later. With an `estimator`, an operand that makes its reader slow where it lies (passes/wanted_order.h) is copied if copying and
// then reading takes less time.
Graph assign_layout(Graph graph, int64_t cell = 4, const PlacedEstimator& estimator = {});

}  // namespace tamp::passes
