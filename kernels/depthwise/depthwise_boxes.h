// Depthwise convolution with large filters, inputs by boxes; alone, or with the moments of its pixels: a Fused of the Conv, the Transpose
// that makes rows of its pixels, their Moments, and a copy of the convolution's result where that is wanted rounded as well.
#pragma once

#include "kernels/family.h"

namespace tamp::kernels {

const Family& depthwise_boxes();

}  // namespace tamp::kernels
