// PoolIndices: the second result of MaxPool.
#pragma once

#include "kernels/catalogue.h"

namespace tamp::kernels {

const Family& pool_indices();

}  // namespace tamp::kernels
