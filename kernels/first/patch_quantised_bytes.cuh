// patch_quantised with results in bytes.
#pragma once

#include "kernels/first/patch_quantised.cuh"
#include "kernels/vdevice/bytes.cuh"
