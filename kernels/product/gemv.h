// Matrix products of at most eight rows with constant weights (gemv.cuh), and those with means of channels (gemv_of_sums.cuh).
#pragma once

#include "kernels/family.h"

namespace tamp::kernels {

const Family& gemv();

}  // namespace tamp::kernels
