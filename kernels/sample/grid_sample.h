// GridSample.
#pragma once

#include "kernels/family.h"

namespace tamp::kernels {

const Family& grid_sample();

}  // namespace tamp::kernels
