#pragma once

#include "compiler/ir/graph.h"

namespace tamp::passes {

// y = Conv(x, w, b) {...}           =>  y = Conv(x, w) {...} epilogue{bias=b}
// y = MatMul(x, w, c) {beta=0.5}    =>  y = MatMul(x, w) epilogue{bias=y.bias}       c constant, a vector along the columns
//                                       y = MatMul(x, w) epilogue{residual=c}        c of the output's shape, beta 1
//                                       y.product = MatMul(x, w)                     anything else
//                                       y = Elementwise(y.product, c, beta) {mul(i1, i2), add(i0, s0)}
//
// From here on Conv and MatMul have two operands and beta is 1. Changes f32 only.
Graph canonicalise(Graph graph);

}  // namespace tamp::passes
