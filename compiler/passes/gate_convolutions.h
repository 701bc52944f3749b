// Puts the multiplication of squeeze-and-excite into the pointwise convolution behind it, where the whole program is faster for it by
// estimated time: there is a level less, but each rTask of the convolution computes gates.
//
//   y = ChannelExcite(x, s, v, hb, vb) {..}         ->   z = ChannelExcite(x, s, v, hb, vb, , w) {..} epilogue{..}
//   z = Conv(y, w) {kernel=[1,1]} epilogue{..}
//
// Not where anything else reads y, where s are sums of channels (of a SummedConv), or where the gates may be greater than 1.
#pragma once

#include "compiler/ir/estimator.h"
#include "compiler/ir/graph.h"

namespace tamp::passes {

Graph gate_convolutions(Graph graph, const GraphEstimator& estimator);

}  // namespace tamp::passes
