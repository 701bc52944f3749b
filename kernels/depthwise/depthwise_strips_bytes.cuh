// depthwise_strips of whole numbers in bytes.
#pragma once

#include "kernels/depthwise/depthwise_strips.cuh"
#include "kernels/vdevice/bytes.cuh"
