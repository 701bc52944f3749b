#pragma once

#include "compiler/ir/graph.h"

namespace tamp::passes {

// y = Conv(x, w, b) {...}           =>  y = Conv(x, w) {...} epilogue{bias=b}
// y = MatMul(x, w, c) {beta=0.5}    =>  y = MatMul(x, w) epilogue{bias=y.bias}       c constant, a vector along the columns
//                                       y = MatMul(x, w) epilogue{residual=c}        c of the output's shape, beta 1
//                                       y.product = MatMul(x, w)                     anything else
//                                       y = Elementwise(y.product, c, beta) {mul(i1, i2), add(i0, s0)}
// t = Transpose(w) {perm=[1,0]}     =>  y = MatMul(x, w) {trans_b=1}                w constant, too large for fold_constants
// y = MatMul(x, t)
//
// j = Expand(i) -> i64[1,2,1,64]    =>  y = Scatter(x, i, u) {axis=2}              i = i64[1,1,1,1]: an index for a whole row
// y = Scatter(x, j, u) {axis=2}
//
// From here on Conv and MatMul have two operands and beta is 1. Operands and epilogues change in f32 only.
Graph canonicalise(Graph graph);

}  // namespace tamp::passes
