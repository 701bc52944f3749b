// channel_sums and depthwise_sums of whole numbers in bytes.
#pragma once

#include "kernels/excite/channel_sums.cuh"
#include "kernels/vdevice/bytes.cuh"
