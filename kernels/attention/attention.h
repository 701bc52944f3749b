// Attention on tensor cores; see attention.cuh.
#pragma once

#include "kernels/catalogue.h"

namespace tamp::kernels {

const Family& attention();

}  // namespace tamp::kernels
