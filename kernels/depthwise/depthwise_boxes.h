// Depthwise convolution with large filters, inputs by boxes; alone (Conv), or with the moments of its pixels (MomentConv).
#pragma once

#include "kernels/family.h"

namespace tamp::kernels {

const Family& depthwise_boxes();

}  // namespace tamp::kernels
