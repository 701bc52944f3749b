// Convolutions and matrix products with constant weights as a product of tiles; see implicit_gemm.cuh.
#pragma once

#include "kernels/family.h"

namespace tamp::kernels {

const Family& implicit_gemm();

}  // namespace tamp::kernels
