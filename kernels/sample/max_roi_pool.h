// MaxRoiPool.
#pragma once

#include "kernels/family.h"

namespace tamp::kernels {

const Family& max_roi_pool();

}  // namespace tamp::kernels
