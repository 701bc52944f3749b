// Floats as 16-bit numbers, for packed weights.
#pragma once

#include <cstdint>

namespace tamp::kernels {

// To nearest, ties to even; NaN stays NaN, what is too large becomes infinite.
uint16_t half_of(float x);
uint16_t bfloat_of(float x);

}  // namespace tamp::kernels
