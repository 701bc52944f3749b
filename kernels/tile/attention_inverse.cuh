// The end of attention's softmax.
#pragma once

#include "kernels/tile/numbers.cuh"
#include "kernels/vdevice/fast_math.cuh"

namespace rk {

// What a query's weighted sum of values is multiplied by: 1 / the sum of its weights. All of them are 0 where every key is masked; unless
// that gives NaN, the inverse is a large number then, and 0 times it is 0.
RK_INLINE float attention_inverse(float sum, int32_t weightless) {
  constexpr float kLeastNormal = 1.17549435e-38f;
  return reciprocal_fast(weightless == kWeightlessNan ? sum : fmaxf(sum, kLeastNormal));
}
// Whether the query gets zeros although its weighted sum is NaN.
RK_INLINE bool attention_drops(float sum, int32_t weightless) { return weightless == kWeightlessZero && sum != sum; }

}  // namespace rk
