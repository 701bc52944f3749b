// Squeezing maps to parts of hidden values; see squeeze.cuh and depthwise_squeeze.cuh.
#pragma once

#include "kernels/catalogue.h"

namespace tamp::kernels {

const Family& squeeze();

}  // namespace tamp::kernels
