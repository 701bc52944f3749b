// normalize_rows_quantised of whole numbers in bytes.
#pragma once

#include "kernels/reduce/normalize_rows.cuh"
#include "kernels/vdevice/bytes.cuh"
