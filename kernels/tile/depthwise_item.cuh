// What bodies with a depthwise convolution have in common, for filters of kTaps x kTaps without dilation: the sums of an item. An item is
// kVector channels of kPixels neighbouring results of a row; neighbouring results share the elements that are loaded for them.
//
// kParts threads of a warp share an item, kWarp / kParts lanes apart. Thread `part` adds up rows part, part + kParts, .. of the filter,
// so that few loads follow each other; in the end each thread has kSlots / kParts of the item's sums. With 8 parts, 7 taps and 7 pixels
// lane 13 has row 3 of the filter (13 / 4) for item 1 (13 % 4) of the warp's 4 items; at the end it has pixel 3.
#pragma once

#include "kernels/tile/lean_epilogue.cuh"
#include "kernels/vdevice/window.cuh"

namespace rk {

// The input, in elements.
struct DepthwiseMap {
  int32_t height, width, row_stride, column_stride;
  const void* zeros;  // 16 bytes, to be read where there is no input
};

// What becomes of four results that are whole numbers: the numbers of a table, which begins with that of `low`.
struct NumberTable {
  const float* numbers;
  float low;
  RK_INLINE float one(float x) const { return load_weight1(numbers + static_cast<int>(x - low)); }
  RK_INLINE float4 of(const float4& v) const { return {one(v.x), one(v.y), one(v.z), one(v.w)}; }
};

// One of the two, without a branch: ?: of structs would choose between two places in memory.
RK_INLINE float4 chosen(bool first, const float4& a, const float4& b) {
  return {first ? a.x : b.x, first ? a.y : b.y, first ? a.z : b.z, first ? a.w : b.w};
}

template <int kPixels, int kParts>
struct DepthwiseParts {
  static constexpr int kItems = kWarp / kParts;  // of a warp
  static constexpr int kSlots = kPixels <= 1 ? 1 : kPixels <= 2 ? 2 : kPixels <= 4 ? 4 : 8;
  static constexpr int kOwn = kSlots / kParts;  // sums of a thread in the end
  static_assert((kParts & (kParts - 1)) == 0 && kParts <= kSlots && kPixels <= kSlots);

  RK_INLINE static int part() { return kParts == 1 ? 0 : lane_id() / kItems; }
  RK_INLINE static int item() { return lane_id() % kItems; }  // of the warp's
  RK_INLINE static int first() { return part() * kOwn; }      // the first of the thread's own pixels

  // How many own pixels exist, where the first of them is `left` pixels before the end of the row.
  RK_INLINE static int pixels(int left) { return min(left, min(kPixels - first(), kOwn)); }

  // Adds the sums of all parts and leaves each thread with its own pixels: in each step a thread gives half of its pixels to a thread
  // of the other half of the parts, and takes the other half of that thread's.
  RK_INLINE static void add(float4 (&acc)[kPixels], float4 (&own)[kOwn]) {
    const int me = part();
#pragma unroll
    for (int half = kParts / 2; half > 0; half /= 2) {
      const int kept = kOwn * half;
      const bool upper = (me & half) != 0;
#pragma unroll
      for (int i = 0; i < kSlots / 2; ++i) {
        if (i >= kept) continue;
        const float4 low = acc[i], high = i + kept < kPixels ? acc[i + kept < kPixels ? i + kept : 0] : splat(0.0f);
        acc[i] = add4(chosen(upper, high, low), shuffled(chosen(upper, low, high), half * kItems));
      }
    }
#pragma unroll
    for (int i = 0; i < kOwn; ++i) own[i] = i < kPixels ? acc[i < kPixels ? i : 0] : splat(0.0f);
  }
  RK_INLINE static float4 shuffled(const float4& v, int distance) {
    return {__shfl_xor_sync(kFullMask, v.x, distance), __shfl_xor_sync(kFullMask, v.y, distance), __shfl_xor_sync(kFullMask, v.z, distance),
            __shfl_xor_sync(kFullMask, v.w, distance)};
  }
};

// acc += products of this thread's rows of the filter. `in`: the first pixel of the thread's channels; `weights(row, kx)`: the channels'
// weights of tap row + kx. `exists`: whether there is an item; where there is none, nothing is read of the input.
template <int kVector, int kTaps, int kStride, int kPixels, int kParts, class In, class Weights>
RK_INLINE void depthwise_products(const DepthwiseMap& map, const In* in, const Weights& weights, bool exists, int32_t top, int32_t left,
                                  float4 (&acc)[kPixels]) {
  constexpr int kSeen = (kPixels - 1) * kStride + kTaps, kSteps = (kTaps + kParts - 1) / kParts;
  const int part = DepthwiseParts<kPixels, kParts>::part();
  // The loads of a small filter's rows are all under way together; a large one would run out of registers.
#pragma unroll(kTaps <= 3 ? kSteps : 1)
  for (int step = 0; step < kSteps; ++step) {
    const int ky = step * kParts + part;
    const int32_t y = top + ky;
    const bool is_tap = kTaps % kParts == 0 || ky < kTaps,
               row = exists && is_tap && static_cast<uint32_t>(y) < static_cast<uint32_t>(map.height);
    const In* from = in + (y * map.row_stride + left * map.column_stride);
    float4 x[kSeen];
#pragma unroll
    for (int i = 0; i < kSeen; ++i, from += map.column_stride) {
      // No predicate for each load: a GPU has only seven predicates, and the compiler would wait for the first loads to free them.
      const bool inside = row && static_cast<uint32_t>(left + i) < static_cast<uint32_t>(map.width);
      x[i] = load_channels_near<kVector>(inside ? from : static_cast<const In*>(map.zeros));
    }
    if constexpr (sizeof(In) == 1 && kTaps % kParts != 0) {
      if (!is_tap) {  // `zeros` may be the byte that is the number 0, which as it lies is none
#pragma unroll
        for (int i = 0; i < kSeen; ++i) x[i] = splat(0.0f);
      }
    }
    float4 weight[kTaps];
    const int row_of_filter = (is_tap ? ky : 0) * kTaps;  // no tap: any row will do, x is zero
#pragma unroll
    for (int kx = 0; kx < kTaps; ++kx) weight[kx] = weights(row_of_filter, kx);
#pragma unroll
    for (int kx = 0; kx < kTaps; ++kx) {
#pragma unroll
      for (int p = 0; p < kPixels; ++p) add_product(acc[p], x[p * kStride + kx], weight[kx]);
    }
  }
}

}  // namespace rk
