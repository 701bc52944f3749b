// Floats as 16-bit numbers, for packed weights.
#pragma once

#include <cstdint>

namespace tamp::kernels {

// To nearest, ties to even; NaN stays NaN, what is too large becomes infinite.
uint16_t half_of(float x);
uint16_t bfloat_of(float x);

// The power of two by which numbers up to `largest` in magnitude are divided before they become halves: the largest is 2^14 to 2^15
// then. The exponent of a normal float, whatever `largest`.
int half_exponent(float largest);

}  // namespace tamp::kernels
