// depthwise of whole numbers in bytes.
#pragma once

#include "kernels/depthwise/depthwise.cuh"
#include "kernels/vdevice/bytes.cuh"
