// Two pointwise convolutions, one behind the other, in one rTask; see pointwise_pair.cuh.
#pragma once

#include "compiler/ir/fused.h"
#include "compiler/ir/fusion.h"

namespace tamp::kernels {

FusionPattern pointwise_pairs();
// Y = act(conv(X, FW) + FB + R), Z = act(conv(Y, W) + B): both steps, or none if the rOperator is another.
std::optional<FusedView> pointwise_pair_steps(const ROperator& rop);

}  // namespace tamp::kernels
