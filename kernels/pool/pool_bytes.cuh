// pool, pool_strip and pool_walk of whole numbers in bytes. A maximum of the bytes is that of the numbers, wherever they begin; the result
// begins there, too. An average of bytes that begin at 0 is not whole, and is stored in another type.
#pragma once

#include "kernels/pool/pool.cuh"
#include "kernels/vdevice/bytes.cuh"
