// Makes one rOperator of two pointwise convolutions that follow each other, where the whole graph is faster by estimated time: a rTask then
// computes both for its pixels, and a level of the program is gone. The last convolution of a residual block and the first of the next one
// are such a pair, with the residual sum between them.
//
//   y = Conv(x, c) epilogue{bias=b, residual=r, act=relu}      z, y = PointwisePair(x, c, d, b, e, r) {first_act=relu, second_act=relu,
//   z = Conv(y, d) epilogue{bias=e, act=relu}                                                          keeps_first=1}
#pragma once

#include "compiler/ir/estimator.h"
#include "compiler/ir/graph.h"

namespace tamp::passes {

Graph pair_pointwise(Graph graph, const GraphEstimator& estimator);

}  // namespace tamp::passes
