#pragma once

#include "compiler/ir/estimator.h"
#include "compiler/ir/graph.h"

namespace tamp::passes {

//   x = Conv(i, d) {group=C}                              s, x = ChannelSqueeze(i, w, d) {rows=2, ..}
//   m = Reduce(x) {kind=mean, axes=[2,3]}                 y = ChannelExcite(x, s, v) {hidden_act=relu, gate_act=sigmoid}
//   h = Conv(m, w) act=relu                         =>
//   g = Conv(h, v) act=sigmoid
//   y = Elementwise(x, g) {mul(i0, i1)}
//
// Squeeze-and-excite becomes two rOperators. The pooling and the first product become ChannelSqueeze, together with the convolution that
// makes x if that is depthwise. The second product and the multiplication become ChannelExcite. Another convolution that makes x adds up
// its channels, and both products and the multiplication become ChannelExcite, where that is faster by estimated time:
//
//   x, s = Fused(i, d) {x = Conv(i, d), s = TileSums(x) {tile=[2,14]}}
//   y = ChannelExcite(x, s, v, , , w) {hidden_act=relu, gate_act=sigmoid}
//
// Nothing is changed where another rOperator reads m, h or g. ChannelSqueeze::rows, which says into how many parts the pooling is cut, and
// TileSums::tile are chosen by estimated time.
Graph recognise_excitation(Graph graph, const Estimator& estimator);

}  // namespace tamp::passes
