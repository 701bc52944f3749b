// Floats as 16-bit numbers: packed weights, and where activations may be.
#pragma once

#include <cstdint>
#include <vector>

#include "compiler/ir/dtype.h"

namespace tamp::kernels {

// Whether f32 activations may lie in memory as 16 bits. Where not, tensors of 16 bits are a model's own, whose arithmetic rounds after
// every step.
inline bool has_narrow_activations(Precision precision) { return precision == Precision::fp16 || precision == Precision::bf16; }

// To nearest, ties to even; NaN stays NaN, what is too large becomes infinite.
uint16_t half_of(float x);
uint16_t bfloat_of(float x);

// Exponent of the power of two by which the values are divided before they become halves: the largest in magnitude is 2^14 to 2^15
// then. Infinities and NaN do not count, they stay what they are. The power is a normal float whatever the values.
int half_exponent(const std::vector<float>& values);

// Whether halves can stand for the values times `factor` without a scale: the largest finite magnitude is no more than 65504, and so
// far above 2^-14 (where halves lose bits) that what is lost does not count beside it. Zeros fit.
bool halves_hold(const float* values, int64_t count, float factor = 1);

}  // namespace tamp::kernels
