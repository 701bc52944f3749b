// split_k_sum with results in bytes.
#pragma once

#include "kernels/tile/split_k_sum.cuh"
#include "kernels/vdevice/bytes.cuh"
