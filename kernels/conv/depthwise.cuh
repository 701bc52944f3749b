// Depthwise convolution, one filter per channel: y[oh, ow, c] = sum of x[ih, iw, c] * w[tap, c]. An item is kVector channels (4
// where pixels are aligned, of which the last ones may not exist, else 1) of kPixels neighbouring pixels of a row. Weights are
// packed as [tap][pitch]. In: of x in memory; Out: of y and the residual.
#pragma once

#include "kernels/conv/lean_epilogue.cuh"
#include "kernels/vdevice/window.cuh"

namespace rk {

struct DepthwiseArgs {
  WindowArgs window;
  EpilogueArgs epilogue;
  TensorRef weights;
  int32_t channels, pitch;
};
static_assert(sizeof(DepthwiseArgs) <= 768, "an argument slot has 768 bytes");

// window_store for 4 channels, of which only `left` may exist.
template <class Out, int kPixels, class Veu>
RK_INLINE void depthwise_store(const Task<Veu>& task, const DepthwiseArgs& args, const WindowItem& item, float4 (&acc)[kPixels]) {
  const WindowArgs& w = args.window;
  const int32_t channel = item.channel_block * 4, column = item.column_block * kPixels, left = args.channels - channel;
  const float* const bias = task.address(args.epilogue.bias);
  const float4 b = bias != nullptr ? load_channels4(bias + channel, 1, left >= 4, left) : splat(0.0f);
  const int64_t* const s = args.epilogue.residual_strides;
  const Out* residual = values_at<Out>(task, args.epilogue.residual);
  if (residual != nullptr) residual += item.batch * s[0] + channel + item.row * s[2] + column * s[3];
  Out* out = values_at<Out>(task, w.out) + window_offset(w.out_strides, item.batch, channel, item.row, column);
  const int32_t pixels = min(w.out_width - column, kPixels);
  // Not unrolled; the accumulators move up instead of being picked by an index.
#pragma unroll 1
  for (int32_t p = 0; p < pixels; ++p, out += w.out_strides[3]) {
    const float4 r = residual != nullptr ? load4(residual + p * s[3]) : splat(0.0f);
    store_left(out, left, finish4(args.epilogue, add4(acc[0], b), r));
#pragma unroll
    for (int i = 0; i + 1 < kPixels; ++i) acc[i] = acc[i + 1];
  }
}

template <class Out, int kVector, int kPixels, class Veu>
RK_INLINE void depthwise_finish(const Task<Veu>& task, const DepthwiseArgs& args, const WindowItem& item, float4 (&acc)[kPixels]) {
  if constexpr (kVector == 4)
    depthwise_store<Out>(task, args, item, acc);
  else
    window_store<kVector, kPixels, Out>(task, args.window, args.epilogue, item, acc);
}

// Filter kTaps x kTaps, stride kStride along the row, no dilation: pixels share the elements that they load.
template <int kVector, int kTaps, int kStride, int kPixels, class In>
RK_INLINE void depthwise_square(const WindowArgs& w, const In* in, const float* weights, int32_t pitch, int32_t top, int32_t left,
                                float4 (&acc)[kPixels]) {
  constexpr int kSeen = (kPixels - 1) * kStride + kTaps;
  const int32_t height = w.height, width = w.width;
  const int64_t row_stride = w.in_strides[2], column_stride = w.in_strides[3];
  // The loads of a small filter's rows are all under way together; a large one would run out of registers.
#pragma unroll(kTaps <= 3 ? kTaps : 1)
  for (int ky = 0; ky < kTaps; ++ky) {
    const int32_t y = top + ky;
    const bool row = y >= 0 && y < height;
    float4 x[kSeen];
#pragma unroll
    for (int i = 0; i < kSeen; ++i) {
      const int32_t column = left + i;
      x[i] = splat(0.0f);
      if (row && column >= 0 && column < width) x[i] = load_channels<kVector>(in + y * row_stride + column * column_stride);
    }
#pragma unroll
    for (int kx = 0; kx < kTaps; ++kx) {
      const float4 weight = load_weights<kVector>(weights + (ky * kTaps + kx) * pitch);
#pragma unroll
      for (int p = 0; p < kPixels; ++p) add_product(acc[p], x[p * kStride + kx], weight);
    }
  }
}

template <class Veu, int kVector, int kTaps, int kStride, int kPixels, class In = float, class Out = float>
RK_BODY void depthwise(const Task<Veu>& caller) {
  const Task<Veu> task = caller;  // in registers: the caller's is in its stack frame
  const DepthwiseArgs& args = task.template arguments<DepthwiseArgs>();
  const WindowArgs& w = args.window;
  const uint32_t limit = (task.index + 1) * w.items_per_rtask;
  const uint32_t end = limit < w.items ? limit : w.items;
#pragma unroll 1
  for (uint32_t number = task.index * w.items_per_rtask + threadIdx.x; number < end; number += Veu::kComputeThreads) {
    const WindowItem item = window_item(w, number);
    const int32_t channel = item.channel_block * kVector;
    const int32_t column = item.column_block * kPixels;
    const In* const in = values_at<In>(task, w.in) + window_offset(w.in_strides, item.batch, channel, 0, 0);
    float4 acc[kPixels];
#pragma unroll
    for (int p = 0; p < kPixels; ++p) acc[p] = splat(0.0f);
    depthwise_square<kVector, kTaps, kStride, kPixels>(w, in, task.address(args.weights) + channel, args.pitch,
                                                       item.row * w.stride[0] - w.pad[0], column * kStride - w.pad[1], acc);
    depthwise_finish<Out, kVector, kPixels>(task, args, item, acc);
  }
}

// Any filter, stride and dilation, one pixel an item; kBatch taps are loaded together.
template <class Veu, int kVector, class In = float, class Out = float>
RK_BODY void depthwise_any(const Task<Veu>& caller) {
  const Task<Veu> task = caller;  // in registers: the caller's is in its stack frame
  constexpr int kBatch = 5;
  const DepthwiseArgs& args = task.template arguments<DepthwiseArgs>();
  const WindowArgs& w = args.window;
  const int32_t columns = w.kernel[1], taps = w.kernel[0] * columns;
  const int32_t height = w.height, width = w.width, row_step = w.dilation[0], column_step = w.dilation[1], pitch = args.pitch;
  const int64_t row_stride = w.in_strides[2], column_stride = w.in_strides[3];
  const uint32_t limit = (task.index + 1) * w.items_per_rtask;
  const uint32_t end = limit < w.items ? limit : w.items;
#pragma unroll 1
  for (uint32_t number = task.index * w.items_per_rtask + threadIdx.x; number < end; number += Veu::kComputeThreads) {
    const WindowItem item = window_item(w, number);
    const int32_t channel = item.channel_block * kVector;
    const In* const in = values_at<In>(task, w.in) + window_offset(w.in_strides, item.batch, channel, 0, 0);
    const float* weights = task.address(args.weights) + channel;
    const int32_t left = item.column_block * w.stride[1] - w.pad[1];
    int32_t y = item.row * w.stride[0] - w.pad[0], x = left, kx = 0;
    float4 acc[1] = {splat(0.0f)};
#pragma unroll 1
    for (int32_t tap = 0; tap < taps; tap += kBatch) {
      float4 v[kBatch], weight[kBatch];
#pragma unroll
      for (int b = 0; b < kBatch; ++b, weights += pitch) {
        const bool inside = tap + b < taps && y >= 0 && y < height && x >= 0 && x < width;
        v[b] = weight[b] = splat(0.0f);
        if (inside) {
          v[b] = load_channels<kVector>(in + y * row_stride + x * column_stride);
          weight[b] = load_weights<kVector>(weights);
        }
        x += column_step;
        if (++kx < columns) continue;
        kx = 0;
        x = left;
        y += row_step;
      }
#pragma unroll
      for (int b = 0; b < kBatch; ++b) add_product(acc[0], v[b], weight[b]);
    }
    depthwise_finish<Out, kVector, 1>(task, args, item, acc);
  }
}

}  // namespace rk
