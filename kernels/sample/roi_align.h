// RoiAlign.
#pragma once

#include "kernels/catalogue.h"

namespace tamp::kernels {

const Family& roi_align();

}  // namespace tamp::kernels
