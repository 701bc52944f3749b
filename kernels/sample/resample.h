// Resample.
#pragma once

#include "kernels/catalogue.h"

namespace tamp::kernels {

const Family& resample();

}  // namespace tamp::kernels
