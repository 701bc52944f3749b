// The family of ChannelExcite: a map is multiplied by a gate for each channel; see excite.cuh.
#pragma once

#include "kernels/family.h"

namespace tamp::kernels {

const Family& excite();

}  // namespace tamp::kernels
