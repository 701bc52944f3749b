// rKernels of patch_strip.cuh: convolutions of few input channels where a vEU has several tiles.
#pragma once

#include "kernels/family.h"

namespace tamp::kernels {

const Family& patch_strip();

}  // namespace tamp::kernels
