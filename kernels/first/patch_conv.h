// rKernels of patch_conv.cuh: convolutions of few input channels on tensor cores.
#pragma once

#include <optional>

#include "compiler/ir/fused.h"
#include "compiler/ir/fusion.h"

namespace tamp::kernels {

FusionPattern normalized_patches();  // whose pixels are normalised, too
FusionPattern quantised_patches();   // whose input is quantised first
// The steps of such a Fused: the quantisation, x / step rounded between two bounds, and the convolution. None of other rOperators.
std::optional<FusedView> quantised_patches_of(const ROperator& rop);

}  // namespace tamp::kernels
