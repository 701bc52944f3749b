// The sliding window of pooling and of direct convolution: which output an item is, where its window starts, and the store
// with the epilogue. kernels/window.h is the host's side.
//
// An item is kVector channels of kPixels neighbouring output pixels of one row. Items are numbered with channels innermost
// (channels-last tensors: neighbouring threads touch neighbouring channels) or with pixels innermost.
#pragma once

#include "kernels/vdevice/epilogue.cuh"

namespace rk {

struct WindowArgs {
  TensorRef out, in;
  int32_t out_strides[4], in_strides[4];  // elements: batch, channel, row, column
  int32_t height, width;                  // input
  int32_t out_width;
  int32_t kernel[2], stride[2], dilation[2], pad[2];  // row, column
  Divisor channel_blocks, rows, column_blocks;        // of the output, in items
  uint32_t items, items_per_rtask;
  int32_t channels_innermost;
};

struct WindowItem {
  int32_t batch, channel_block, row, column_block;
};

RK_INLINE WindowItem window_item(const WindowArgs& w, uint32_t item) {
  uint32_t channel, row, column, batch;
  if (w.channels_innermost) {
    item = divide(item, w.channel_blocks, channel);
    item = divide(item, w.column_blocks, column);
    batch = divide(item, w.rows, row);
  } else {
    item = divide(item, w.column_blocks, column);
    item = divide(item, w.rows, row);
    batch = divide(item, w.channel_blocks, channel);
  }
  return {static_cast<int32_t>(batch), static_cast<int32_t>(channel), static_cast<int32_t>(row), static_cast<int32_t>(column)};
}

RK_INLINE int64_t window_offset(const int32_t (&strides)[4], int32_t batch, int32_t channel, int32_t row, int32_t column) {
  return static_cast<int64_t>(batch) * strides[0] + static_cast<int64_t>(channel) * strides[1] + static_cast<int64_t>(row) * strides[2] +
         static_cast<int64_t>(column) * strides[3];
}

RK_INLINE float4 splat(float v) { return float4{v, v, v, v}; }

// acc += a * b.
RK_INLINE void add_product(float4& acc, const float4& a, const float4& b) {
  acc.x += a.x * b.x;
  acc.y += a.y * b.y;
  acc.z += a.z * b.z;
  acc.w += a.w * b.w;
}

template <int kVector>
RK_INLINE float4 load_channels(const float* p) {
  return kVector == 4 ? load4(p) : float4{load1(p), 0, 0, 0};
}

// Bias, residual, activation, store of kVector channels of one output pixel.
template <int kVector, class Veu>
RK_INLINE void window_store(const Task<Veu>& task, const WindowArgs& w, const EpilogueArgs& e, int32_t batch, int32_t channel, int32_t row,
                            int32_t column, float4 acc) {
  if (const float* const bias = task.address(e.bias)) {
    acc.x += load_weight1(bias + channel);
    if (kVector == 4) {
      acc.y += load_weight1(bias + channel + 1);
      acc.z += load_weight1(bias + channel + 2);
      acc.w += load_weight1(bias + channel + 3);
    }
  }
  float4 r = splat(0.0f);
  if (const float* const residual = task.address(e.residual)) {
    const int64_t* const s = e.residual_strides;
    r = load_channels<kVector>(residual + batch * s[0] + channel * s[1] + row * s[2] + column * s[3]);
  }
  float* const out = task.address(w.out) + window_offset(w.out_strides, batch, channel, row, column);
  if (kVector == 4) store4(out, float4{finish(e, acc.x, r.x), finish(e, acc.y, r.y), finish(e, acc.z, r.z), finish(e, acc.w, r.w)});
  else store1(out, finish(e, acc.x, r.x));
}

}  // namespace rk
