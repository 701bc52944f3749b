// A normalisation of rows, the product that makes queries, keys and values of them, and attention, in one rTask; see self_attention.cuh.
#pragma once

#include <optional>

#include "compiler/ir/fused.h"
#include "compiler/ir/fusion.h"
#include "kernels/family.h"

namespace tamp::kernels {

FusionPattern self_attentions();

// Y = Attention(Q, K, V, scores, table), with Q, K and V the thirds of N(X) * W + B, each of all heads side by side. N normalises rows.
struct SelfAttentionSteps {
  FusedView view;
  const Normalize& normalize() const { return *view.as<Normalize>(0); }
  const Attention& attention() const { return *view.as<Attention>(kAttention); }

  static constexpr size_t kProduct = 1, kAttention = 7;  // numbers of steps; between these are views
};
std::optional<SelfAttentionSteps> self_attention_steps(const ROperator& rop);

}  // namespace tamp::kernels
