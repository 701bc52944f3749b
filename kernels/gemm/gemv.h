// Matrix products of at most eight rows with constant weights; see gemv.cuh.
#pragma once

#include "kernels/catalogue.h"

namespace tamp::kernels {

const Family& gemv();

}  // namespace tamp::kernels
