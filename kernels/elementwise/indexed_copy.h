// Pad, and Gather with constant indices: copies whose source no strides describe.
#pragma once

#include "kernels/family.h"

namespace tamp::kernels {

const Family& indexed_copy();

}  // namespace tamp::kernels
