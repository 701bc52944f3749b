// gemv_row.cuh whose row is made by elementwise steps.
#pragma once

#include "kernels/gemm/gemv_row.cuh"
#include "kernels/gemm/gemv_steps.cuh"
