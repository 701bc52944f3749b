// Convolution from its definition: groups of few channels, and whatever no other family takes.
#pragma once

#include "kernels/family.h"

namespace tamp::kernels {

const Family& direct();

}  // namespace tamp::kernels
