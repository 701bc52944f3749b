// Depthwise convolution, one filter per channel.
#pragma once

#include "kernels/family.h"

namespace tamp::kernels {

const Family& depthwise();

}  // namespace tamp::kernels
