// Moments of rows as their makers store them (Moments of compiler/ir/ops.h): of each kMomentColumns neighbours the
// mean, and the sum of the squares around it. Eight lanes that are neighbours have 32 neighbouring channels of a row, four each.
#pragma once

#include "kernels/tile/numbers.cuh"
#include "kernels/vdevice/values.cuh"

namespace rk {

template <int LANES>
RK_INLINE float sum_of_lanes(float v) {
#pragma unroll
  for (int step = LANES / 2; step > 0; step /= 2) v += __shfl_xor_sync(kFullMask, v, step);
  return v;
}
// Moments are of what the next product reads. Else a row of equal values that 16 bits cannot hold would be apart from its mean.
template <class Value>
RK_INLINE float4 as_stored(const float4& v) {
  if constexpr (sizeof(Value) == 4)
    return v;
  else
    return Raw4<Value>{uint2{pair_of<Value>(v.x, v.y), pair_of<Value>(v.z, v.w)}}.floats();
}
template <class Value>
RK_INLINE float2 as_stored(const float2& v) {
  if constexpr (sizeof(Value) == 4)
    return v;
  else
    return floats_of<Value>(pair_of<Value>(v.x, v.y));
}
// Mean and squares of the 32 values that eight neighbouring lanes have, four each. Every lane of the warp calls it.
RK_INLINE float2 moments_of(const float4& v) {
  const float mean = sum_of_lanes<8>(sum_of4(v)) * (1.0f / kMomentColumns);
  const float4 apart = {v.x - mean, v.y - mean, v.z - mean, v.w - mean};
  return {mean, sum_of_lanes<8>((apart.x * apart.x + apart.y * apart.y) + (apart.z * apart.z + apart.w * apart.w))};
}

// Moments of a row, combined by Chan's formula in the same order everywhere: their mean, and the squares around a mean.
template <int PARTS>
RK_INLINE float mean_of(const float2 (&moments)[PARTS]) {
  float mean = 0.0f;
#pragma unroll
  for (int i = 0; i < PARTS; ++i) mean += moments[i].x;
  return mean * (1.0f / PARTS);
}
template <int PARTS>
RK_INLINE float squares_around(float mean, const float2 (&moments)[PARTS]) {
  float squares = 0.0f;
#pragma unroll
  for (int i = 0; i < PARTS; ++i) {
    const float apart = moments[i].x - mean;
    squares += fmaf(kMomentColumns * apart, apart, moments[i].y);
  }
  return squares;
}

// As moments_of, of four pixels, of each of which 16 neighbouring lanes have 32 channels, two each. Of its pixels a lane gives half to a
// lane of the other half of the 16, and takes the other half of that lane's; then so again; so in the end each four lanes have all of one
// pixel: lanes 8 to 11 pixel 2. Means and squares of as many values are combined by Chan's formula, always in the same order. Every lane of
// the warp calls it.
struct PixelMoments {
  float2 moments;
  int pixel;
  bool writes;  // one lane of each pixel
};
RK_INLINE PixelMoments moments_of_pixels(const float2 (&values)[4]) {
  float2 moments[4];
#pragma unroll
  for (int p = 0; p < 4; ++p) {
    const float apart = values[p].x - values[p].y;
    moments[p] = {0.5f * (values[p].x + values[p].y), 0.5f * apart * apart};
  }
  const int lane = lane_id();
  const auto combine = [](const float2& own, const float2& given, int distance, float half_count) {
    const float2 other = {__shfl_xor_sync(kFullMask, given.x, distance), __shfl_xor_sync(kFullMask, given.y, distance)};
    const float apart = own.x - other.x;
    return float2{0.5f * (own.x + other.x), fmaf(apart * apart, half_count, own.y + other.y)};
  };
  const auto chosen = [](bool first, const float2& a, const float2& b) { return float2{first ? a.x : b.x, first ? a.y : b.y}; };
  const bool upper = (lane & 8) != 0, odd = (lane & 4) != 0;
#pragma unroll
  for (int p = 0; p < 2; ++p)
    moments[p] = combine(chosen(upper, moments[p + 2], moments[p]), chosen(upper, moments[p], moments[p + 2]), 8, 1.0f);
  float2 all = combine(chosen(odd, moments[1], moments[0]), chosen(odd, moments[0], moments[1]), 4, 2.0f);
  all = combine(all, all, 2, 4.0f);
  all = combine(all, all, 1, 8.0f);
  return {all, lane >> 2 & 3, (lane & 3) == 0};
}

}  // namespace rk
