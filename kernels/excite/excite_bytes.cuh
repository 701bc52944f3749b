// excite_rounded of whole numbers in bytes.
#pragma once

#include "kernels/excite/excite.cuh"
#include "kernels/vdevice/bytes.cuh"
