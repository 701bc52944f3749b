// The gated feed-forward part of a transformer in one rTask for its rows; see gated_feed_forward.cuh.
#pragma once

#include "compiler/ir/fused.h"
#include "compiler/ir/fusion.h"
#include "kernels/family.h"

namespace tamp::kernels {

FusionPattern gated_feed_forwards();
// Z = (silu(X W1) * (X W2)) W3 [+ R]: products by W1 and by W2, their product, the product by W3; or none if the rOperator is another.
std::optional<FusedView> gated_feed_forward_steps(const ROperator& rop);

// Sizes that the body takes: of x, of the product in the middle, and of z.
bool has_gated_body(int64_t k, int64_t inner, int64_t columns);

}  // namespace tamp::kernels
