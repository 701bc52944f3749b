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
// Squeeze-and-excite: the pooling with the first product, and the second product with the multiplication, each one rOperator; the first
// together with the convolution that makes x if that is depthwise, and by itself if not. Where somebody else reads m, h or g, nothing is
// changed. Parts of the pooling (ChannelSqueeze::rows) are chosen by time.
Graph recognise_excitation(Graph graph, const Estimator& estimator);

}  // namespace tamp::passes
