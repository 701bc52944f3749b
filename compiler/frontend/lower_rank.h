// Tensors of more dimensions than a body walks. Neighbours that lie one behind the other in all operands count as one; what has more than
// kMostWalked of them even so becomes a Gather by a constant table of places, or works on operands with one dimension.
#pragma once

#include <optional>

#include "compiler/frontend/builder.h"

namespace tamp::frontend {

inline constexpr size_t kMostWalked = 8;  // kNestRank of kernels/vdevice/numbers.cuh

// The result of a request that a body would have to walk in more dimensions; none if it need not, or if that cannot be said otherwise (the
// table would be too large, or the operator is none of those that only move elements, Elementwise and MatMul).
std::optional<TensorId> lower_rank(Builder& builder, const Builder::Request& request, const Shape& result);

}  // namespace tamp::frontend
