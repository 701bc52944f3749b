// Squeeze-and-excite of quantised networks. All that lies between two of its steps are whole numbers:
//   mean   = rounded(scale * sum of the channel's pixels)
//   hidden = table[rounded(FW * mean + HB)]               the table only where something follows the rounding, such as silu
//   gate   = table[rounded(W * hidden + B)]
//   y      = rounded(scale * x * gate)
// It is two rOperators, with the depthwise convolution that makes the map in the first, or without. There are two ways to cut it:
//   - The first is a TileSums; the second, a Fused "rounded excitation", begins with S, sums of channels over tiles.
//   - The first goes up to FW * mean, in parts of kSqueezeBlock channels, and the second begins with S, these parts, as ChannelExcite does.
// The more channels there are, the better is the second: each rTask of the second rOperator computes all that this begins with.
// The steps of the second are Reduce and Reshape, Elementwise and Conv (or a Slice, where S has rows too many, and Elementwise alone), a
// lookup (kernels/tile/requantised.h), Conv, a lookup, Elementwise. Those of the first are Conv and lookup, then TileSums; or Reduce,
// Elementwise and a ChannelSqueeze of the means.
#pragma once

#include <optional>

#include "compiler/ir/fusion.h"
#include "compiler/ir/graph.h"
#include "kernels/tile/requantised.h"

namespace tamp::kernels {

struct RoundedTo {
  float scale = 1, low = 0, high = 0;
};
struct RoundedProduct {
  TensorId weights, bias;  // bias: none for zeros
  WholeRange sums{};       // what a sum may be when it is rounded
  TensorId table;          // none: the rounded sum itself; else its first number is that of sums.low
};
struct RoundedExcitation {
  TensorId map, sums;
  RoundedTo mean;  // where `hidden` has weights; without, S are parts of products with means
  RoundedProduct hidden, gate;
  RoundedTo out;
};
// None if the rOperator is another.
std::optional<RoundedExcitation> rounded_excitation_of(const Graph& graph, const ROperator& rop);

// The first half. `sums`: S.
struct ChannelSums {
  TensorId map, sums;               // map: what is summed
  int64_t rows = 1;                 // of a tile
  std::optional<ROperator> conv{};  // makes the map, as if that were its only result
  Lookup lookup{};                  // behind the convolution; no table if there is none
  TensorId weights{};               // FW, if S are parts of products with means
  RoundedTo mean{};                 // there
};
std::optional<ChannelSums> channel_sums_of(const Graph& graph, const ROperator& rop);

FusionPattern rounded_excitations();
FusionPattern summed_depthwise();

}  // namespace tamp::kernels
