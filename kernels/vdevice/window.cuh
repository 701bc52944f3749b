// The sliding window of pooling and of direct convolution: which output an item is, where its window starts, and the store
// with the epilogue. kernels/window.h is the host's side.
//
// An item is kVector channels of kPixels neighbouring output pixels of one row. Items are numbered with channels innermost
// (channels-last tensors: neighbouring threads touch neighbouring channels) or with pixels innermost.
// Example: channels innermost, channel_blocks 16, column_blocks 4, rows 14. Item 1000 = ((1 * 14 + 1) * 4 + 2) * 16 + 8 is batch 1,
// row 1, column block 2, channel block 8. With kVector 4 and kPixels 2 that is channels 32 to 35 of columns 4 and 5.
#pragma once

#include "kernels/vdevice/epilogue.cuh"
#include "kernels/vdevice/values.cuh"

namespace rk {

struct WindowArgs {  // in tables
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

template <int kVector, class Value>
RK_INLINE float4 load_channels(const Value* p) {
  return kVector == 4 ? load4(p) : float4{load1(p), 0, 0, 0};
}

// For values that neighbouring threads load, too: may hit L1.
template <int kVector, class Value>
RK_INLINE float4 load_channels_near(const Value* p) {
  if constexpr (kVector == 4)
    return load4_near(p);
  else
    return float4{load1_near(p), 0, 0, 0};
}

template <int kVector>
RK_INLINE float4 load_weights(const float* p) {
  return kVector == 4 ? load_weight4(p) : float4{load_weight1(p), 0, 0, 0};
}

// Bias, residual, activation and store of one item, cut off at the end of the row. Value is the type that the results and the residual
// have in memory.
template <int kVector, int kPixels, class Value = float, class Veu>
RK_INLINE void window_store(const Task<Veu>& task, const WindowArgs& w, const EpilogueArgs& e, const WindowItem& item,
                            float4 (&acc)[kPixels]) {
  const int32_t channel = item.channel_block * kVector, column = item.column_block * kPixels;
  const float* const bias = task.address(e.bias);
  const float4 b = bias != nullptr ? load_weights<kVector>(bias + channel) : splat(0.0f);
  const int64_t* const s = e.residual_strides;
  const Value* residual = values_at<Value>(task, e.residual);
  if (residual != nullptr) residual += item.batch * s[0] + channel * s[1] + item.row * s[2] + column * s[3];
  Value* out = values_at<Value>(task, w.out) + window_offset(w.out_strides, item.batch, channel, item.row, column);
  const int32_t pixels = w.out_width - column < kPixels ? w.out_width - column : kPixels;
  // Not unrolled, to keep the code small. The accumulators move up by one each time, since an index into registers must be a constant.
#pragma unroll 1
  for (int32_t p = 0; p < pixels; ++p, out += w.out_strides[3]) {
    float4 r = splat(0.0f);
    if (residual != nullptr) r = load_channels<kVector>(residual + p * s[3]);
    const float4 v = finish4(e, float4{acc[0].x + b.x, acc[0].y + b.y, acc[0].z + b.z, acc[0].w + b.w}, r);
    if (kVector == 4)
      store4(out, v);
    else
      store1(out, v.x);
#pragma unroll
    for (int i = 0; i + 1 < kPixels; ++i) acc[i] = acc[i + 1];
  }
}

}  // namespace rk
