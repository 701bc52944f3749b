// Recurrent networks as gangs: every cell spread over some vEUs for its whole sequence; see recurrent_gang.cuh.
#pragma once

#include "kernels/family.h"

namespace tamp::kernels {

const Family& recurrent_gang();

}  // namespace tamp::kernels
