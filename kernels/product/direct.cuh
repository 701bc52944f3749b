// Convolution straight from its definition, for any attribute and layout: y[m] = sum over taps and over the channels c of m's group of
// x[c] * w[tap, c, m]. An item is kOutputs output channels (1, or 4 of one group) of kPixels pixels of a row; kInputs channels (1, or 4
// that are one aligned vector) are taken per step. Good for groups of few channels; also the last resort.
//
// Example: 4 groups, each of 6 input and 8 output channels, kOutputs 4, kPixels 2. The item with channel block 5 and column block 3
// computes output channels 20 to 23 of columns 6 and 7; these are of group 2 (20 / 8), so it reads input channels 12 to 17.
#pragma once

#include "kernels/vdevice/window.cuh"

namespace rk {

struct DirectArgs {  // in tables
  WindowArgs window;
  EpilogueArgs epilogue;
  TensorRef weights;
  int32_t weight_strides[4];  // output channel, channel within the group, row, column
  int32_t weights_constant;   // 0: this program computes the weights, and they are read as an activation
  int32_t group_channels;
  Divisor group_outputs;
};

RK_INLINE float4 scaled(const float4& acc, float x, const float4& w) {
  return float4{acc.x + x * w.x, acc.y + x * w.y, acc.z + x * w.z, acc.w + x * w.w};
}

// What the loops need, read once: a load under a condition is not moved out of a loop by the compiler.
struct DirectSteps {
  int64_t channel, row, column;               // input strides
  int64_t weight, weight_row, weight_column;  // strides from channel to channel, row to row, column to column
  int32_t rows, columns, height, width, group_channels;
  int32_t column_stride, row_dilation, column_dilation;
  bool weights_constant;

  RK_INLINE explicit DirectSteps(const DirectArgs& a)
      : channel(a.window.in_strides[1]),
        row(a.window.in_strides[2]),
        column(a.window.in_strides[3]),
        weight(a.weight_strides[1]),
        weight_row(a.weight_strides[2]),
        weight_column(a.weight_strides[3]),
        rows(a.window.kernel[0]),
        columns(a.window.kernel[1]),
        height(a.window.height),
        width(a.window.width),
        group_channels(a.group_channels),
        column_stride(a.window.stride[1]),
        row_dilation(a.window.dilation[0]),
        column_dilation(a.window.dilation[1]),
        weights_constant(a.weights_constant != 0) {}
};

template <int kOutputs>
RK_INLINE float4 direct_weight(const DirectSteps& steps, const float* p) {
  if (kOutputs == 4) return load_weight4(p);
  return float4{steps.weights_constant ? load_weight1(p) : load1(p), 0, 0, 0};
}

// acc[p] += sum over the group's channels of one tap. x[p] is null outside the input.
template <int kOutputs, int kInputs, int kPixels>
RK_INLINE void direct_tap(const DirectSteps& steps, const float* const (&x)[kPixels], const float* weights, float4 (&acc)[kPixels]) {
#pragma unroll 2
  for (int32_t c = 0; c < steps.group_channels; c += kInputs, weights += kInputs * steps.weight) {
    float4 v[kPixels], weight[kInputs];
#pragma unroll
    for (int p = 0; p < kPixels; ++p) {
      v[p] = splat(0.0f);
      if (x[p] != nullptr) v[p] = load_channels<kInputs>(x[p] + c * steps.channel);
    }
#pragma unroll
    for (int i = 0; i < kInputs; ++i) weight[i] = direct_weight<kOutputs>(steps, weights + i * steps.weight);
#pragma unroll
    for (int p = 0; p < kPixels; ++p) {
      acc[p] = scaled(acc[p], v[p].x, weight[0]);
      if (kInputs != 4) continue;
      acc[p] = scaled(acc[p], v[p].y, weight[kInputs > 1 ? 1 : 0]);
      acc[p] = scaled(acc[p], v[p].z, weight[kInputs > 2 ? 2 : 0]);
      acc[p] = scaled(acc[p], v[p].w, weight[kInputs > 3 ? 3 : 0]);
    }
  }
}

template <int kOutputs, int kInputs, int kPixels>
RK_INLINE void direct_window(const DirectSteps& steps, const float* in, const float* weights, int32_t top, int32_t left,
                             float4 (&acc)[kPixels]) {
#pragma unroll 1
  for (int32_t ky = 0; ky < steps.rows; ++ky) {
    const int32_t y = top + ky * steps.row_dilation;
    if (y < 0 || y >= steps.height) continue;
    const float* const row = in + y * steps.row;
    const float* tap = weights + ky * steps.weight_row;
#pragma unroll 1
    for (int32_t kx = 0; kx < steps.columns; ++kx, tap += steps.weight_column) {
      const float* x[kPixels];
#pragma unroll
      for (int p = 0; p < kPixels; ++p) {
        const int32_t column = left + p * steps.column_stride + kx * steps.column_dilation;
        x[p] = column >= 0 && column < steps.width ? row + column * steps.column : nullptr;
      }
      direct_tap<kOutputs, kInputs, kPixels>(steps, x, tap, acc);
    }
  }
}

template <class Veu, int kOutputs, int kInputs, int kPixels>
RK_BODY void direct(const Task<Veu>& caller) {
  const Task<Veu> task = caller;  // in registers; the caller's copy is in memory
  const DirectArgs& args = task.template arguments<DirectArgs>();
  const WindowArgs& w = args.window;
  const DirectSteps steps(args);
  const uint32_t limit = (task.index + 1) * w.items_per_rtask;
  const uint32_t end = limit < w.items ? limit : w.items;
#pragma unroll 1
  for (uint32_t number = task.index * w.items_per_rtask + threadIdx.x; number < end; number += Veu::kComputeThreads) {
    const WindowItem item = window_item(w, number);
    const int32_t channel = item.channel_block * kOutputs;
    const int32_t column = item.column_block * kPixels;
    const int32_t group = static_cast<int32_t>(divide(static_cast<uint32_t>(channel), args.group_outputs));
    const float* const in = task.address(w.in) + window_offset(w.in_strides, item.batch, group * args.group_channels, 0, 0);
    const float* const weights = task.address(args.weights) + static_cast<int64_t>(channel) * args.weight_strides[0];
    float4 acc[kPixels];
#pragma unroll
    for (int p = 0; p < kPixels; ++p) acc[p] = splat(0.0f);
    direct_window<kOutputs, kInputs, kPixels>(steps, in, weights, item.row * w.stride[0] - w.pad[0], column * w.stride[1] - w.pad[1], acc);
    window_store<kOutputs, kPixels>(task, w, args.epilogue, item, acc);
  }
}

}  // namespace rk
