// Rows of queries, keys and values in memory, four neighbouring elements at a time.
#pragma once

#include "kernels/tile/attention_inverse.cuh"
#include "kernels/vdevice/fast_math.cuh"
#include "kernels/vdevice/values.cuh"

namespace rk {

// How rows of q, k, v and out lie. kVectors: whole groups of four aligned elements; kWholeVectors: that, and the rows have all kSize
// elements; kElements: any way.
enum AttentionRows : int { kElements, kVectors, kWholeVectors };  // in tables

RK_INLINE float exp_fast(float x) { return exp2_fast(x * kLog2E); }

// x * log2(e), but finite if x is.
RK_INLINE float finite_times_log2e(float x) {
  constexpr float kLargest = 3.40282347e38f;
  const float y = x * kLog2E;
  return x - x == 0.0f ? fminf(fmaxf(y, -kLargest), kLargest) : y;
}

// An entry of a table of rows, which nobody writes.
RK_INLINE int32_t load_row_number(const int32_t* p) { return __float_as_int(load_weight1(reinterpret_cast<const float*>(p))); }

// Four neighbours of a row as they lie in memory: float4, or uint2 where they have 16 bits each.
template <class In>
using AttentionFour = std::conditional_t<sizeof(In) == 2, uint2, float4>;

// The four elements from `at` on of a row that ends at `end`; zeros behind the end.
template <int kLie, class In>
RK_INLINE AttentionFour<In> attention_load(const In* row, int32_t stride, int at, int end) {
  if constexpr (kLie != kElements) {
    AttentionFour<In> four{};
    if (kLie == kWholeVectors || at < end) {
      if constexpr (sizeof(In) == 2)
        four = load_pairs2(row + at);
      else
        four = load4(row + at);
    }
    return four;
  } else {
    float4 v{0, 0, 0, 0};
    if (at < end) v.x = load1(row + static_cast<int64_t>(at) * stride);
    if (at + 1 < end) v.y = load1(row + static_cast<int64_t>(at + 1) * stride);
    if (at + 2 < end) v.z = load1(row + static_cast<int64_t>(at + 2) * stride);
    if (at + 3 < end) v.w = load1(row + static_cast<int64_t>(at + 3) * stride);
    if constexpr (sizeof(In) == 2)
      return uint2{pair_of<In>(v.x, v.y), pair_of<In>(v.z, v.w)};
    else
      return v;
  }
}

// The same, to be widened to floats.
template <int kLie, class In>
RK_INLINE Raw4<In> attention_raw(const In* row, int32_t stride, int at, int end) {
  return {attention_load<kLie>(row, stride, at, end)};
}

}  // namespace rk
