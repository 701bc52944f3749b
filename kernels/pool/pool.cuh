// y = max or average over a window of x; an item is one output pixel, kVector channels. Taps are loaded kBatch at a time, so
// that a 3x3 window costs one latency. Padding is -inf for max and not counted for average, or counted (count_include_pad)
// as far as the pads reach, not the overhang of ceil_mode. If the window has a NaN, the result is NaN. Value is the type of x in memory,
// Out that of y and the residual.
//
// Example: x f32[1,64,56,56] with channels last (steps of 1 a channel, 64 a column, 3584 a row), 3x3 window, stride 2, padding 1,
// kVector 4. The item of row 5, column 7 and channel block 3 has channels 12 to 15. Its window begins at row 5 * 2 - 1 = 9 and column
// 7 * 2 - 1 = 13 of x, so its first tap is element 9 * 3584 + 13 * 64 + 12 = 33100.
#pragma once

#include "kernels/vdevice/window.cuh"

namespace rk {

struct PoolArgs {  // in tables
  WindowArgs window;
  EpilogueArgs epilogue;
  int32_t average;
  int32_t counted_height, counted_width;  // a tap counts up to here, from the first input element on
  int32_t count_pads;
};

RK_INLINE float pool_one(bool average, float acc, float v) { return average ? acc + v : (v != v || v > acc ? v : acc); }

RK_INLINE float4 pool_step(bool average, const float4& acc, const float4& v) {
  return float4{pool_one(average, acc.x, v.x), pool_one(average, acc.y, v.y), pool_one(average, acc.z, v.z), pool_one(average, acc.w, v.w)};
}

template <int kVector, class Value>
RK_INLINE float4 pool_window(const PoolArgs& args, const Value* in, int32_t top, int32_t left) {
  constexpr int kBatch = 9;
  const WindowArgs& w = args.window;
  const bool average = args.average != 0;
  const float4 nothing = splat(average ? 0.0f : -INFINITY);
  const int32_t columns = w.kernel[1], taps = w.kernel[0] * columns;
  const int32_t height = w.height, width = w.width, row_step = w.dilation[0], column_step = w.dilation[1];
  const int64_t row_stride = w.in_strides[2], column_stride = w.in_strides[3];
  const bool count_pads = args.count_pads != 0;
  const int32_t counted_height = args.counted_height, counted_width = args.counted_width;
  float4 acc = nothing;
  int32_t y = top, x = left, kx = 0, counted = 0;
#pragma unroll 1
  for (int32_t tap = 0; tap < taps; tap += kBatch) {
    float4 v[kBatch];
#pragma unroll
    for (int b = 0; b < kBatch; ++b) {
      const bool exists = tap + b < taps;
      const bool inside = exists && y >= 0 && y < height && x >= 0 && x < width;
      v[b] = nothing;
      if (inside) v[b] = load_channels<kVector>(in + y * row_stride + x * column_stride);
      counted += exists && (count_pads ? y < counted_height && x < counted_width : inside);
      x += column_step;
      if (++kx < columns) continue;
      kx = 0;
      x = left;
      y += row_step;
    }
#pragma unroll
    for (int b = 0; b < kBatch; ++b) acc = pool_step(average, acc, v[b]);
  }
  if (!average) return acc;
  const float n = static_cast<float>(counted);
  return float4{acc.x / n, acc.y / n, acc.z / n, acc.w / n};
}

template <class Veu, int kVector, class Value = float, class Out = Value>
RK_BODY void pool(const Task<Veu>& caller) {
  const Task<Veu> task = caller;  // a copy in registers, since the caller's task is in a stack frame
  const PoolArgs& args = task.template arguments<PoolArgs>();
  const WindowArgs& w = args.window;
  const uint32_t limit = (task.index + 1) * w.items_per_rtask;
  const uint32_t end = limit < w.items ? limit : w.items;
  task.await_inputs();
#pragma unroll 1
  for (uint32_t number = task.index * w.items_per_rtask + threadIdx.x; number < end; number += Veu::kComputeThreads) {
    const WindowItem item = window_item(w, number);
    const int32_t channel = item.channel_block * kVector;
    const Value* const in = values_at<Value>(task, w.in) + window_offset(w.in_strides, item.batch, channel, 0, 0);
    float4 acc[1] = {pool_window<kVector>(args, in, item.row * w.stride[0] - w.pad[0], item.column_block * w.stride[1] - w.pad[1])};
    window_store<kVector, 1, Out>(task, w, args.epilogue, item, acc);
  }
}

}  // namespace rk
