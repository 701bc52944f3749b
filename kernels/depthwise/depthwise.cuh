// Depthwise convolution, one filter per channel: y[oh, ow, c] = sum of x[ih, iw, c] * w[tap, c]. An item is kVector channels of kPixels
// neighbouring pixels of a row. kVector is 4 where pixels are aligned (of the last 4 channels some may not exist), else 1. Channels are
// cut into groups. Items are numbered group by group, within a group column by column, and down the rows of a column, so that the items
// of a rTask read much the same input, which then comes from L1. Weights are packed as [tap][pitch]. In: the type of x in memory; Out:
// the type of y and the residual.
//
// Example: kVector 4, 3 groups of 8 vectors, 14 rows, 4 blocks of columns. Item 1003 = ((2 * 4 + 0) * 14 + 13) * 8 + 3 is vector 3 of
// group 2 (channels 76 to 79), column block 0, row 13. With 3 x 3 taps and a pitch of 96 its weights of tap (1, 2) are floats 5 * 96 + 76
// to 79.
#pragma once

#include "kernels/tile/depthwise_item.cuh"

namespace rk {

struct DepthwiseArgs {  // in tables
  alignas(16) float zeros[4];
  WindowArgs window;
  EpilogueArgs epilogue;
  ClipArgs clip;  // the epilogue's activation
  TensorRef weights;
  int32_t channels, pitch;
  Divisor groups;     // of channels; window.channel_blocks counts the vectors of one group
  TensorRef table{};  // kTable: results by what was rounded, from table_low on
  float table_low{};
  TensorRef no_input{};  // of bytes that begin at another number than 0: 16 of the byte that is 0; else null, and `zeros` are that
};

// As window_item, but in the order that Window::by_columns asks for.
template <int kVector>
RK_INLINE WindowItem depthwise_item(const DepthwiseArgs& args, uint32_t number) {
  const WindowArgs& w = args.window;
  if constexpr (kVector == 1) return window_item(w, number);
  uint32_t channel, column, row, group;
  number = divide(number, w.channel_blocks, channel);
  number = divide(number, w.rows, row);
  number = divide(number, w.column_blocks, column);
  const uint32_t batch = divide(number, args.groups, group);
  return {static_cast<int32_t>(batch), static_cast<int32_t>(group * w.channel_blocks.divisor + channel), static_cast<int32_t>(row),
          static_cast<int32_t>(column)};
}

// The offset of 4 neighbouring channels; 32 bits are enough within a tensor.
RK_INLINE int32_t depthwise_offset(const int32_t (&strides)[4], int32_t batch, int32_t channel, int32_t row, int32_t column) {
  return batch * strides[0] + channel + row * strides[2] + column * strides[3];
}

// The bias of 4 channels, of which only `left` may exist.
template <class Veu>
RK_INLINE float4 depthwise_bias(const Task<Veu>& task, const DepthwiseArgs& args, int32_t channel, int32_t left) {
  const float* const bias = task.address(args.epilogue.bias);
  return bias != nullptr ? load_channels4(bias + channel, 1, left >= 4, left) : splat(0.0f);
}

// window_store for 4 channels, of which only `left` may exist, and `pixels` pixels from `column` on. `sums` include the bias.
template <class Out, bool kTable, int kPixels, class Veu>
RK_INLINE void depthwise_store(const Task<Veu>& task, const DepthwiseArgs& args, const WindowItem& item, int32_t column, int32_t pixels,
                               float4 (&sums)[kPixels]) {
  const WindowArgs& w = args.window;
  const int32_t channel = item.channel_block * 4, left = args.channels - channel;
  Out* out = values_at<Out>(task, w.out) + depthwise_offset(w.out_strides, item.batch, channel, item.row, column);
  const Out* residual = values_at<Out>(task, args.epilogue.residual);
  const PixelStrides s = narrow(args.epilogue.residual_strides);
  if (residual != nullptr) residual += offset_of({item.batch, item.row, column}, s) + channel;
  const ClipArgs clip = args.clip;  // in registers, as all that the loop needs: behind a store arguments would be read again
  const auto out_column = w.out_strides[3];
  NumberTable table{};
  if constexpr (kTable) table = {task.address(args.table), args.table_low};
  const auto store = [&] {
    const float4 r = residual != nullptr ? load4(residual) : splat(0.0f);
    const float4 v = lean_finish4(clip, args.epilogue, sums[0], r);
    if constexpr (kTable)
      store_left(out, left, table.of(v));
    else
      store_left(out, left, v);
  };
  if constexpr (kPixels == 1) {
    if (pixels > 0) store();
  } else {
    // Not unrolled: sums[0] is stored, and the other sums move up, since an index would put them into memory.
#pragma unroll 1
    for (int32_t p = 0; p < pixels; ++p, out += out_column) {
      store();
      if (residual != nullptr) residual += s.w;
#pragma unroll
      for (int i = 0; i + 1 < kPixels; ++i) sums[i] = sums[i + 1];
    }
  }
}

// Filter kTaps x kTaps, stride kStride along the row, no dilation. kParts threads share an item (depthwise_item.cuh).
template <class Veu, int kVector, int kTaps, int kStride, int kPixels, int kParts, class In = float, class Out = float, bool kTable = false>
RK_BODY void depthwise(const Task<Veu>& caller) {
  using Parts = DepthwiseParts<kPixels, kParts>;
  const Task<Veu> task = caller;  // in registers; the caller's copy is in memory
  const DepthwiseArgs& args = task.template arguments<DepthwiseArgs>();
  const WindowArgs& w = args.window;
  DepthwiseMap map = {w.height, w.width, w.in_strides[2], w.in_strides[3], args.zeros};
  if constexpr (sizeof(In) == 1) {
    if (args.no_input.base != kNullBase) map.zeros = task.address(args.no_input);
  }
  const int32_t pitch = args.pitch;
  const uint32_t limit = (task.index + 1) * w.items_per_rtask;
  const uint32_t end = limit < w.items ? limit : w.items;
  // All threads of a warp stay in the loop together; threads behind the last item compute the last one, without loads and stores.
#pragma unroll 1
  for (uint32_t first = task.index * w.items_per_rtask + static_cast<uint32_t>(warp_id() * Parts::kItems); first < end;
       first += Veu::kComputeThreads / kParts) {
    const uint32_t number = first + static_cast<uint32_t>(Parts::item());
    const bool exists = number < end;
    const WindowItem item = depthwise_item<kVector>(args, min(number, end - 1));
    const int32_t channel = item.channel_block * kVector;
    const int32_t column = item.column_block * kPixels;
    const In* const in = values_at<In>(task, w.in) + (item.batch * w.in_strides[0] + channel * w.in_strides[1]);
    const float* const weights = task.address(args.weights) + channel;
    float4 acc[kPixels];
    float4 before = splat(0.0f);
    task.await_inputs();
    if (kVector == 4 && Parts::part() == 0) before = depthwise_bias(task, args, channel, args.channels - channel);
#pragma unroll
    for (int p = 0; p < kPixels; ++p) acc[p] = before;
    depthwise_products<kVector, kTaps, kStride, kPixels, kParts>(
        map, in, [=](int row, int kx) { return load_weights<kVector>(weights + row * pitch + kx * pitch); }, exists,
        item.row * w.stride[0] - w.pad[0], column * kStride - w.pad[1], acc);
    if constexpr (kVector == 4) {
      float4 own[Parts::kOwn];
      Parts::add(acc, own);
      const int32_t own_column = column + Parts::first();
      depthwise_store<Out, kTable>(task, args, item, own_column, exists ? Parts::pixels(w.out_width - own_column) : 0, own);
    } else if (exists) {
      window_store<kVector, kPixels, Out>(task, w, args.epilogue, item, acc);
    }
  }
}

// Any filter, stride and dilation; an item is one pixel. kBatch taps are loaded together.
template <class Veu, int kVector, class In = float, class Out = float>
RK_BODY void depthwise_any(const Task<Veu>& caller) {
  const Task<Veu> task = caller;  // in registers; the caller's copy is in memory
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
    const WindowItem item = depthwise_item<kVector>(args, number);
    const int32_t channel = item.channel_block * kVector;
    const In* const in = values_at<In>(task, w.in) + window_offset(w.in_strides, item.batch, channel, 0, 0);
    const float* weights = task.address(args.weights) + channel;
    const int32_t left = item.column_block * w.stride[1] - w.pad[1];
    int32_t y = item.row * w.stride[0] - w.pad[0], x = left, kx = 0;
    float4 acc[1] = {splat(0.0f)};
    if constexpr (kVector == 4) acc[0] = depthwise_bias(task, args, channel, args.channels - channel);
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
    if constexpr (kVector == 4)
      depthwise_store<Out, false>(task, args, item, item.column_block, 1, acc);
    else
      window_store<kVector, 1, Out>(task, w, args.epilogue, item, acc);
  }
}

}  // namespace rk
