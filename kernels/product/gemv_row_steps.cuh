// gemv_row.cuh whose row is made by elementwise steps.
#pragma once

#include "kernels/product/gemv_row.cuh"
#include "kernels/product/gemv_steps.cuh"
