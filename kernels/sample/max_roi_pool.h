// MaxRoiPool.
#pragma once

#include "kernels/catalogue.h"

namespace tamp::kernels {

const Family& max_roi_pool();

}  // namespace tamp::kernels
