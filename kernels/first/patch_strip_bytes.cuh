// patch_strip with results in bytes.
#pragma once

#include "kernels/first/patch_strip.cuh"
#include "kernels/vdevice/bytes.cuh"
