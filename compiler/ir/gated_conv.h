// A ChannelExcite (compiler/ir/ops.h) with a pointwise convolution behind it: CW[M,C,1,1] comes behind the other inputs, and the result is
// Z[N,M,H,W] = conv(Y, CW), with the convolution's epilogue. passes/gate_convolutions makes it; its body is kernels/conv/gated_conv.cuh.
#pragma once

#include "compiler/ir/graph.h"

namespace tamp {

// The places of its inputs; that of kExciteFirstWeights is left out.
inline constexpr size_t kGatedSums = 1, kGatedWeights = 2, kGatedHiddenBias = 3, kGatedBias = 4, kGatedProduct = 6;

inline bool is_gated_conv(const ROperator& rop) {
  return std::holds_alternative<ChannelExcite>(rop.attrs) && rop.inputs.size() > kGatedProduct && rop.inputs[kGatedProduct].valid();
}

}  // namespace tamp
