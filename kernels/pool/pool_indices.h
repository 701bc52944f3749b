// PoolIndices: the second result of MaxPool.
#pragma once

#include "kernels/family.h"

namespace tamp::kernels {

const Family& pool_indices();

}  // namespace tamp::kernels
