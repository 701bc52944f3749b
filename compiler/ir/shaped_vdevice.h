// A vDevice as the rKernels of one program see it: what its file says, and what is chosen for the program.
#pragma once

#include "compiler/ir/vdevice.h"

namespace tamp {

using ShapedVDevice = VDevice;

}  // namespace tamp
