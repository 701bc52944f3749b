// Depthwise and pointwise convolution as one rKernel, for Convs with a prologue (compiler/ir/ops.h); see separable_conv.cuh.
#pragma once

#include "kernels/family.h"

namespace tamp::kernels {

const Family& separable_conv();

}  // namespace tamp::kernels
