// Floats as 16-bit numbers, for packed weights, and whether activations may be 16 bits wide.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "compiler/ir/dtype.h"
#include "compiler/ir/tensor.h"

namespace tamp::kernels {

// Whether f32 activations may lie in memory as 16 bits. If not, all tensors of 16 bits come from the model, and their arithmetic rounds
// after every step.
inline bool has_narrow_activations(Precision precision) { return precision == Precision::fp16 || precision == Precision::bf16; }

// To nearest, ties to even; NaN stays NaN, a value that is too large becomes infinite.
uint16_t half_of(float x);
uint16_t bfloat_of(float x);
// Two of them in a word, halves or bfloats as the precision says; `low` is first in memory.
uint32_t narrow_pair(Precision precision, float low, float high);
// Of `count` values times `factor`, faster than one by one.
void halves_of(const float* values, int64_t count, float factor, uint16_t* halves);
float float_of_half(uint16_t half);
float float_of_bfloat(uint16_t bfloat);

// Exponent of the power of two by which the values are divided before they become halves. After the division the largest magnitude is
// 2^14 to 2^15. Infinities and NaN are ignored, since a division does not change them. The power is always a normal float.
int half_exponent(std::span<const float> values);

// What values are divided by before they become halves: that power of two; or, where all values are whole multiples of a step, 2 to 255
// of them, that step, so that halves lose nothing of quantised weights. Example: of 0.03, -0.015 and 0.1 it is 0.005, and the halves are
// 6, -3 and 20.
float half_scale(std::span<const float> values);

// What values are divided by before they become signed bytes: a step of which all are whole multiples, at most 127 of them (or -128).
// None where there is no such step.
std::optional<float> byte_scale(std::span<const float> values);

// Whether halves can stand for the values times `factor` without a scale: the largest finite magnitude is at most 65504 and at least
// 2^-10. Halves lose bits below 2^-14, which does not matter beside values so much larger. Zeros fit.
bool halves_hold(const float* values, int64_t count, float factor = 1);
// The same of the floats of a constant. What was found is remembered as long as the constant exists, since a compilation asks hundreds of
// times about the same weights.
bool halves_hold(const TensorData& floats, float factor = 1);

}  // namespace tamp::kernels
