// GridSample in 3-D.
#pragma once

#include "kernels/catalogue.h"

namespace tamp::kernels {

const Family& volume_sample();

}  // namespace tamp::kernels
