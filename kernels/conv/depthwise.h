// Depthwise convolution, one filter per channel.
#pragma once

#include "kernels/catalogue.h"

namespace tamp::kernels {

const Family& depthwise();

}  // namespace tamp::kernels
