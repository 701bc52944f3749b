// A copy of whole dense tensors, whatever their element type.
#pragma once

#include "kernels/family.h"

namespace tamp::kernels {

const Family& byte_copy();

}  // namespace tamp::kernels
