// Resample.
#pragma once

#include "kernels/family.h"

namespace tamp::kernels {

const Family& resample();

}  // namespace tamp::kernels
