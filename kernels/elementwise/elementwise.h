// Elementwise chains and copies: Elementwise, and Transpose, Reshape and Slice where they are not views.
#pragma once

#include "kernels/family.h"

namespace tamp::kernels {

const Family& elementwise();

}  // namespace tamp::kernels
