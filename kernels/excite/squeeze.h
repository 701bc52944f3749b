// The family of ChannelSqueeze: a map is averaged by channel and multiplied to hidden values, in parts; see squeeze.cuh and
// depthwise_squeeze.cuh.
#pragma once

#include "kernels/family.h"

namespace tamp::kernels {

const Family& squeeze();

}  // namespace tamp::kernels
