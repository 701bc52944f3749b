// y = max or average over a window of x, for the usual pooling of convolutional networks: channels-last tensors, a small square
// window known to nvcc, no epilogue. An item is four channels of a strip of kPixels neighbouring output pixels, whose windows
// overlap: every input of the strip is loaded once, all of them before the first is used, so the body costs one trip to L2.
// The code is short, since most networks run it once, and code that runs once costs more than its arithmetic.
// Example: kKernel 3, kStride 2, kPixels 2, pad 1. A strip needs 5 columns of the input. Strip 3 is output pixels 6 and 7 and begins at
// input column 6 * 2 - 1 = 11: pixel 6 takes columns 11 to 13, pixel 7 columns 13 to 15.
//
// Rows are combined first, then columns, for every pixel in the same order. If the window has a NaN, the result is NaN. Value is the type
// of x in memory, Out that of y.
#pragma once

#include "kernels/vdevice/fast_math.cuh"
#include "kernels/vdevice/window.cuh"

namespace rk {

struct PoolStripArgs {  // in tables
  WindowArgs window;
  int32_t counted_from;                   // an average counts the taps from this coordinate on
  int32_t counted_height, counted_width;  // and below these
};

// Combines acc and v. For a place outside of the input, an average adds nothing; a maximum gets the nearest input as v, which changes
// nothing, since that input is in the same window.
template <bool kAverage>
RK_INLINE void pool_take(float4& acc, const float4& v, bool inside) {
  if constexpr (kAverage) {
    const float4 taken = {inside ? v.x : 0.0f, inside ? v.y : 0.0f, inside ? v.z : 0.0f, inside ? v.w : 0.0f};
    acc = float4{acc.x + taken.x, acc.y + taken.y, acc.z + taken.z, acc.w + taken.w};
  } else {
    acc = float4{max_nan(acc.x, v.x), max_nan(acc.y, v.y), max_nan(acc.z, v.z), max_nan(acc.w, v.w)};
  }
}

// How many of the kKernel coordinates from `first` on lie in [from, end).
template <int kKernel>
RK_INLINE int32_t pool_counted(int32_t first, int32_t from, int32_t end) {
  return min(first + kKernel, end) - max(first, from);
}

RK_INLINE int32_t pool_nearest(int32_t at, int32_t extent) { return min(max(at, 0), extent - 1); }

RK_INLINE bool pool_inside(int32_t at, int32_t extent) { return static_cast<uint32_t>(at) < static_cast<uint32_t>(extent); }

// The columns of the strip, each the combination of its kKernel rows. Offsets are below 2^31 elements.
template <int kKernel, int kColumns, bool kAverage, class Value>
RK_INLINE void pool_columns(const WindowArgs& w, const Value* in, int32_t start, int32_t top, int32_t left, float4 (&column)[kColumns]) {
  float4 v[kKernel][kColumns];
  int32_t across[kColumns];
#pragma unroll
  for (int x = 0; x < kColumns; ++x) across[x] = pool_nearest(left + x, w.width) * w.in_strides[3];
#pragma unroll
  for (int y = 0; y < kKernel; ++y) {
    const int32_t row = start + pool_nearest(top + y, w.height) * w.in_strides[2];
#pragma unroll
    for (int x = 0; x < kColumns; ++x) v[y][x] = load4(in + static_cast<uint32_t>(row + across[x]));
  }
#pragma unroll
  for (int x = 0; x < kColumns; ++x) {
    column[x] = kAverage ? splat(0.0f) : v[0][x];
#pragma unroll
    for (int y = kAverage ? 0 : 1; y < kKernel; ++y) pool_take<kAverage>(column[x], v[y][x], pool_inside(top + y, w.height));
  }
}

template <class Veu, int kKernel, int kStride, int kPixels, bool kAverage, class Value = float, class Out = Value>
RK_BODY void pool_strip(const Task<Veu>& caller) {
  constexpr int kColumns = (kPixels - 1) * kStride + kKernel;
  const Task<Veu> task = caller;  // a copy in registers, since the caller's task is in a stack frame
  const PoolStripArgs& args = task.template arguments<PoolStripArgs>();
  const WindowArgs& w = args.window;
  const Value* const in = values_at<Value>(task, w.in);
  Out* const out = values_at<Out>(task, w.out);
  const uint32_t end = min((task.index + 1) * w.items_per_rtask, w.items);
  task.await_inputs();
#pragma unroll 1
  for (uint32_t number = task.index * w.items_per_rtask + threadIdx.x; number < end; number += Veu::kComputeThreads) {
    uint32_t block, strip, line;
    const int32_t batch =
        static_cast<int32_t>(divide(divide(divide(number, w.channel_blocks, block), w.column_blocks, strip), w.rows, line));
    const int32_t channel = static_cast<int32_t>(block) * 4, row = static_cast<int32_t>(line),
                  first = static_cast<int32_t>(strip) * kPixels;
    const int32_t top = row * kStride - w.pad[0], left = first * kStride - w.pad[1];
    float4 column[kColumns];
    pool_columns<kKernel, kColumns, kAverage>(w, in, batch * w.in_strides[0] + channel, top, left, column);
    const int32_t rows = pool_counted<kKernel>(top, args.counted_from, args.counted_height);
    uint32_t to = static_cast<uint32_t>(batch * w.out_strides[0] + row * w.out_strides[2] + first * w.out_strides[3] + channel);
#pragma unroll
    for (int p = 0; p < kPixels; ++p, to += static_cast<uint32_t>(w.out_strides[3])) {
      const int32_t from = left + p * kStride;
      float4 v = kAverage ? splat(0.0f) : column[p * kStride];
#pragma unroll
      for (int x = kAverage ? 0 : 1; x < kKernel; ++x) pool_take<kAverage>(v, column[p * kStride + x], pool_inside(from + x, w.width));
      if (kAverage) {
        const float share = reciprocal_fast(static_cast<float>(rows * pool_counted<kKernel>(from, args.counted_from, args.counted_width)));
        v = float4{v.x * share, v.y * share, v.z * share, v.w * share};
      }
      if (first + p < w.out_width) store4(out + to, v);
    }
  }
}

}  // namespace rk
