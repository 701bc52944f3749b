// rKernels of patch_conv.cuh: convolutions of few input channels on tensor cores.
#pragma once

#include "compiler/ir/fusion.h"

namespace tamp::kernels {

FusionPattern normalized_patches();  // whose pixels are normalised, too

}  // namespace tamp::kernels
