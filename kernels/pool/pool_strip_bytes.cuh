// pool_strip of whole numbers in bytes (pool_bytes.cuh).
#pragma once

#include "kernels/pool/pool_strip.cuh"
#include "kernels/vdevice/bytes.cuh"
