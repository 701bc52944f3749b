// Recurrent networks of one cell, of every kind; see recurrent_direct.cuh.
#pragma once

#include "kernels/family.h"

namespace tamp::kernels {

const Family& recurrent_direct();

}  // namespace tamp::kernels
