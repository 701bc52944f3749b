// Convolutions and matrix products with constant weights on tensor cores, inputs by boxes; see staged_conv.cuh.
#pragma once

#include "kernels/family.h"

namespace tamp::kernels {

const Family& staged_conv();

}  // namespace tamp::kernels
