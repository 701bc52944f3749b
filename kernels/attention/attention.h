// Attention on tensor cores; see attention.cuh.
#pragma once

#include "kernels/family.h"

namespace tamp::kernels {

const Family& attention();

}  // namespace tamp::kernels
