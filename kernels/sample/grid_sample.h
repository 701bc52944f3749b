// GridSample.
#pragma once

#include "kernels/catalogue.h"

namespace tamp::kernels {

const Family& grid_sample();

}  // namespace tamp::kernels
