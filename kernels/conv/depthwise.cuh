// Depthwise convolution of channels-last tensors, one filter per channel: y[oh, ow, c] = sum of x[ih, iw, c] * w[tap, c].
// An item is four channels of kPixels neighbouring pixels of a row. Weights are packed as [tap][c].
#pragma once

#include "kernels/vdevice/window.cuh"

namespace rk {

struct DepthwiseArgs {
  WindowArgs window;
  EpilogueArgs epilogue;
  TensorRef weights;
  int32_t channels;
};
static_assert(sizeof(DepthwiseArgs) <= 768, "an argument slot has 768 bytes");

// Filter kTaps x kTaps, stride kStride along the row, no dilation: pixels share the elements that they load.
template <int kTaps, int kStride, int kPixels>
RK_INLINE void depthwise_square(const WindowArgs& w, const float* in, const float* weights, int32_t channels, int32_t top, int32_t left,
                                float4 (&acc)[kPixels]) {
  constexpr int kSeen = (kPixels - 1) * kStride + kTaps;
  // The loads of a small filter's rows are all under way together; a large one would run out of registers.
#pragma unroll (kTaps <= 3 ? kTaps : 1)
  for (int ky = 0; ky < kTaps; ++ky) {
    const int32_t y = top + ky;
    const bool row = y >= 0 && y < w.height;
    float4 x[kSeen];
#pragma unroll
    for (int i = 0; i < kSeen; ++i) {
      const int32_t column = left + i;
      x[i] = splat(0.0f);
      if (row && column >= 0 && column < w.width) {
        x[i] = load4(in + static_cast<int64_t>(y) * w.in_strides[2] + static_cast<int64_t>(column) * w.in_strides[3]);
      }
    }
#pragma unroll
    for (int kx = 0; kx < kTaps; ++kx) {
      const float4 weight = load_weight4(weights + (ky * kTaps + kx) * channels);
#pragma unroll
      for (int p = 0; p < kPixels; ++p) add_product(acc[p], x[p * kStride + kx], weight);
    }
  }
}

template <class Veu, int kTaps, int kStride, int kPixels>
RK_BODY void depthwise(const Task<Veu>& task) {
  const DepthwiseArgs& args = task.template arguments<DepthwiseArgs>();
  const WindowArgs& w = args.window;
  const uint32_t limit = (task.index + 1) * w.items_per_rtask;
  const uint32_t end = limit < w.items ? limit : w.items;
#pragma unroll 1
  for (uint32_t number = task.index * w.items_per_rtask + threadIdx.x; number < end; number += Veu::kComputeThreads) {
    const WindowItem item = window_item(w, number);
    const int32_t channel = item.channel_block * 4;
    const int32_t column = item.column_block * kPixels;
    const float* const in = task.address(w.in) + window_offset(w.in_strides, item.batch, channel, 0, 0);
    float4 acc[kPixels];
#pragma unroll
    for (int p = 0; p < kPixels; ++p) acc[p] = splat(0.0f);
    depthwise_square<kTaps, kStride, kPixels>(w, in, task.address(args.weights) + channel, args.channels, item.row * w.stride[0] - w.pad[0],
                                              column * kStride - w.pad[1], acc);
#pragma unroll
    for (int p = 0; p < kPixels; ++p) {
      if (column + p < w.out_width) window_store<4>(task, w, args.epilogue, item.batch, channel, item.row, column + p, acc[p]);
    }
  }
}

// Any filter, stride and dilation, one pixel an item; kBatch taps are loaded together.
template <class Veu>
RK_BODY void depthwise_any(const Task<Veu>& task) {
  constexpr int kBatch = 5;
  const DepthwiseArgs& args = task.template arguments<DepthwiseArgs>();
  const WindowArgs& w = args.window;
  const int32_t taps = w.kernel[0] * w.kernel[1];
  const uint32_t limit = (task.index + 1) * w.items_per_rtask;
  const uint32_t end = limit < w.items ? limit : w.items;
#pragma unroll 1
  for (uint32_t number = task.index * w.items_per_rtask + threadIdx.x; number < end; number += Veu::kComputeThreads) {
    const WindowItem item = window_item(w, number);
    const int32_t channel = item.channel_block * 4;
    const float* const in = task.address(w.in) + window_offset(w.in_strides, item.batch, channel, 0, 0);
    const float* weights = task.address(args.weights) + channel;
    const int32_t left = item.column_block * w.stride[1] - w.pad[1];
    int32_t y = item.row * w.stride[0] - w.pad[0], x = left, kx = 0;
    float4 acc = splat(0.0f);
#pragma unroll 1
    for (int32_t tap = 0; tap < taps; tap += kBatch) {
      float4 v[kBatch], weight[kBatch];
#pragma unroll
      for (int b = 0; b < kBatch; ++b, weights += args.channels) {
        const bool inside = tap + b < taps && y >= 0 && y < w.height && x >= 0 && x < w.width;
        v[b] = weight[b] = splat(0.0f);
        if (inside) {
          v[b] = load4(in + static_cast<int64_t>(y) * w.in_strides[2] + static_cast<int64_t>(x) * w.in_strides[3]);
          weight[b] = load_weight4(weights);
        }
        x += w.dilation[1];
        if (++kx < w.kernel[1]) continue;
        kx = 0;
        x = left;
        y += w.dilation[0];
      }
#pragma unroll
      for (int b = 0; b < kBatch; ++b) add_product(acc, v[b], weight[b]);
    }
    window_store<4>(task, w, args.epilogue, item.batch, channel, item.row, item.column_block, acc);
  }
}

}  // namespace rk
