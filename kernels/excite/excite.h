// Gates of channels; see excite.cuh.
#pragma once

#include "kernels/catalogue.h"

namespace tamp::kernels {

const Family& excite();

}  // namespace tamp::kernels
