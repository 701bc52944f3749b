// What bodies with a depthwise convolution have in common, filters of kTaps x kTaps without dilation: the sums of an item, which is kVector
// channels of kPixels neighbouring results of a row; they share the elements that they load.
//
// kParts threads of a warp share an item, kWarp / kParts lanes apart: thread `part` has rows part, part + kParts, .. of the filter, so that
// few loads follow each other, and in the end kPixels / kParts of the sums. With 8 parts, 7 taps and 7 pixels lane 13 has row 3 of the
// filter for item 1 of the warp's 4 items; at the end it has pixel 3.
#pragma once

#include "kernels/conv/lean_epilogue.cuh"
#include "kernels/vdevice/window.cuh"

namespace rk {

// The input, in elements.
struct DepthwiseMap {
  int32_t height, width, row_stride, column_stride;
  const void* zeros;  // 16 bytes, to be read where there is no input
};

// Of both, without branches; ?: of structs would choose between two places in memory.
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
  RK_INLINE static int first() { return part() * kOwn; }      // of the thread's own pixels

  // How many of them there are, `left` pixels before the end of the row.
  RK_INLINE static int pixels(int left) { return min(left, min(kPixels - first(), kOwn)); }

  // The thread's own of the sums over all parts: half of the pixels go to the other half of the threads, and so on.
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

// acc += products of this thread's rows of the filter. `in`: the channels' first pixel; `weights(row, kx)`: the channels' of tap row + kx.
// Where there is no item, `exists` is false, and nothing is read of the input.
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
      // Not by a predicate for each load: there are seven, and the compiler would wait for the first loads before it issues the others.
      const bool inside = row && static_cast<uint32_t>(left + i) < static_cast<uint32_t>(map.width);
      x[i] = load_channels_near<kVector>(inside ? from : static_cast<const In*>(map.zeros));
    }
    float4 weight[kTaps];
    const int row_of_filter = (is_tap ? ky : 0) * kTaps;  // any one for zeros
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
