// rKernels of patch_conv.cuh: convolutions of few input channels on tensor cores.
#pragma once

#include "kernels/family.h"

namespace tamp::kernels {

const Family& patch_conv();

}  // namespace tamp::kernels
