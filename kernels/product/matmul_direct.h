// Products of two activations, batched and broadcast; also any other MatMul that no other family takes.
#pragma once

#include "kernels/family.h"

namespace tamp::kernels {

const Family& matmul_direct();

}  // namespace tamp::kernels
