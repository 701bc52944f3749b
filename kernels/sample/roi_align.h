// RoiAlign.
#pragma once

#include "kernels/family.h"

namespace tamp::kernels {

const Family& roi_align();

}  // namespace tamp::kernels
