// GridSample in 3-D.
#pragma once

#include "kernels/family.h"

namespace tamp::kernels {

const Family& volume_sample();

}  // namespace tamp::kernels
