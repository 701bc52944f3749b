// Depthwise convolution with filters of kTaps x kTaps where a rTask has much to do. An item is a strip: 4 channels of kPixels neighbouring
// columns, `strip` rows of the result. A thread walks down its strip and keeps the sums of the rows that have begun, so each row of the
// input is read once. The rows to come are on their way by cp.async into a ring of kStages rows in shared memory, where each thread has
// places of its own: nobody waits for another thread, and what is under way takes no registers. (depthwise.cuh has one row of the result
// an item and waits for its loads.) Weights stay in registers for the whole strip. No residual; of activations relu and clip.
//
// Items are numbered by image, group of channels, strip, block of columns and vector of channels: neighbouring threads read
// neighbouring channels, and columns that two blocks need are in L1 when the second asks.
//
// Example: 3 taps, stride 1, strips of 14 rows. Thread 5 of an item with strip 2 reads input rows 27 to 42 (pad 1) in 16 steps. Row 30
// has the last taps of result 29, which is stored, the middle ones of result 30, and the first ones of result 31. With stride 2 a step is
// two rows: rows 2 r and 2 r + 1 (pad 1) end result r, and row 2 r + 1 begins result r + 1.
#pragma once

#include "kernels/tile/depthwise_item.cuh"
#include "kernels/vdevice/pairs.cuh"
#include "kernels/vdevice/window.cuh"

namespace rk {

struct DepthwiseStripsArgs {  // in tables
  WindowArgs window;          // window.rows counts strips, window.channel_blocks the vectors of one group
  ClipArgs clip;
  TensorRef bias, weights;  // weights: [tap][pitch]
  int32_t pitch;
  int32_t out_height, strip;
  Divisor groups;     // of channels
  TensorRef table{};  // kTable: results by what was rounded, from table_low on
  float table_low{};
  uint32_t no_input{};  // of bytes that begin at another number than 0: four of the byte that is 0
};

// The row of kSeen vectors that is fetched next.
template <class In, int kSeen, int kThreads>
struct StripRows {
  static constexpr int kBytes = 4 * static_cast<int>(sizeof(In));  // of a vector
  static constexpr int kRowBytes = kSeen * kThreads * kBytes;

  const In* from;  // the row's first column, which may lie before the image
  int32_t row_stride, column_stride;
  uint32_t row, rows;  // rows that exist are 0 to rows - 1; others, and columns that `columns` has no bit for, are zeros
  uint32_t columns;
  uint32_t no_input;  // of bytes: a vector where there is no input

  RK_INLINE void fetch(char* to) {
    const uint32_t exist = row < rows ? columns : 0;
#pragma unroll
    for (int i = 0; i < kSeen; ++i) {
      const bool exists = (exist >> i & 1u) != 0;
      if (sizeof(In) > 1 || exists || no_input == 0)
        cp_async_near<kBytes>(to + i * kThreads * kBytes, from + i * column_stride, exists);
      else
        store_shared_word(to, i * kThreads * kBytes, no_input);
    }
    cp_async_commit();
    ++row;
    from += row_stride;
  }

  RK_INLINE static float4 fetched(const char* slot, int i) {
    if constexpr (sizeof(In) == 4) {
      return load_shared4(slot, i * kThreads * kBytes);
    } else if constexpr (sizeof(In) == 1) {
      return Raw4<In>{{load_shared_word(slot, i * kThreads * kBytes)}}.floats();
    } else {
      const float2 pairs = load_shared2(slot, i * kThreads * kBytes);
      return Raw4<In>{{bits_of(pairs.x), bits_of(pairs.y)}}.floats();
    }
  }
};

// sums += products of a row of the input with row `ky` of the filter.
template <int kTaps, int kStride, int kPixels, int kSeen>
RK_INLINE void add_strip_row(float4 (&sums)[kPixels], const float4 (&x)[kSeen], const float4 (&weights)[kTaps * kTaps], int ky) {
#pragma unroll
  for (int kx = 0; kx < kTaps; ++kx) {
#pragma unroll
    for (int p = 0; p < kPixels; ++p) add_product(sums[p], x[p * kStride + kx], weights[ky * kTaps + kx]);
  }
}

template <class Veu, int kTaps, int kStride, int kPixels, int kStages, class In = float, class Out = float, bool kRounds = false,
          bool kTable = false>
RK_BODY void depthwise_strips(const Task<Veu>& caller) {
  constexpr int kSeen = (kPixels - 1) * kStride + kTaps;
  constexpr int kBegun = (kTaps - 1) / kStride;  // rows of results whose sums have begun, ahead of a step
  constexpr int kLast = kTaps - kStride;         // the first row of the filter that ends a result
  static_assert(kTaps > kStride && kSeen <= 32);
  using Rows = StripRows<In, kSeen, Veu::kComputeThreads>;
  const Task<Veu> task = caller;  // in registers; the caller's copy is in memory
  const DepthwiseStripsArgs& args = task.template arguments<DepthwiseStripsArgs>();
  const WindowArgs& w = args.window;
  const float low = args.clip.low, high = args.clip.high;
  NumberTable table{};
  if constexpr (kTable) table = {task.address(args.table), args.table_low};
  char* const places = task.template work_as<char>() + threadIdx.x * Rows::kBytes;
  const uint32_t limit = (task.index + 1) * w.items_per_rtask;
  const uint32_t end = limit < w.items ? limit : w.items;
  task.await_inputs();
#pragma unroll 1
  for (uint32_t item = task.index * w.items_per_rtask + threadIdx.x; item < end; item += Veu::kComputeThreads) {
    uint32_t vector, block, strip, group;
    uint32_t number = divide(item, w.channel_blocks, vector);
    number = divide(number, w.column_blocks, block);
    number = divide(number, w.rows, strip);
    const int32_t image = static_cast<int32_t>(divide(number, args.groups, group));
    const int32_t channel = static_cast<int32_t>(group * w.channel_blocks.divisor + vector) * 4;
    const int32_t column = static_cast<int32_t>(block) * kPixels, row = static_cast<int32_t>(strip) * args.strip;
    const int32_t steps = min(args.strip, args.out_height - row) + kBegun;

    // Step 0 begins kBegun steps before the strip's first result. With stride 2 some rows there are of no use: they are not read.
    const int32_t needed = row * kStride - w.pad[0], first = needed + kLast - kBegun * kStride;
    const int32_t top = max(needed, 0), bottom = min(w.height, first + steps * kStride);
    const int32_t left = column * kStride - w.pad[1];
    Rows rows;
    rows.row_stride = w.in_strides[2];
    rows.column_stride = w.in_strides[3];
    rows.from = values_at<In>(task, w.in) + (image * w.in_strides[0] + channel + first * rows.row_stride + left * rows.column_stride);
    rows.row = static_cast<uint32_t>(first - top);  // wraps around above the image, and so is not below `rows`
    rows.rows = static_cast<uint32_t>(max(bottom - top, 0));
    rows.columns = 0;
    rows.no_input = args.no_input;
#pragma unroll
    for (int i = 0; i < kSeen; ++i) rows.columns |= static_cast<uint32_t>(left + i) < static_cast<uint32_t>(w.width) ? 1u << i : 0u;
#pragma unroll 1
    for (int stage = 0; stage < kStages; ++stage) rows.fetch(places + stage * Rows::kRowBytes);

    const float* const filter = task.address(args.weights) + channel;
    const float* const biases = task.address(args.bias);
    float4 weights[kTaps * kTaps];
#pragma unroll
    for (int tap = 0; tap < kTaps * kTaps; ++tap) weights[tap] = load_weight4(filter + tap * args.pitch);
    const float4 bias = biases != nullptr ? load_weight4(biases + channel) : splat(0.0f);
    float4 sums[kBegun][kPixels];
#pragma unroll
    for (int a = 0; a < kBegun; ++a) {
#pragma unroll
      for (int p = 0; p < kPixels; ++p) sums[a][p] = bias;
    }
    const int32_t pixels = w.out_width - column;
    Out* out =
        values_at<Out>(task, w.out) + (image * w.out_strides[0] + channel + (row - kBegun) * w.out_strides[2] + column * w.out_strides[3]);
    const auto out_row = w.out_strides[2], out_column = w.out_strides[3];  // in registers: behind a store arguments would be read again
    int stage = 0;
#pragma unroll 1
    for (int32_t step = 0; step < steps; ++step, out += out_row) {
#pragma unroll
      for (int j = 0; j < kStride; ++j) {
        char* const slot = places + stage * Rows::kRowBytes;
        cp_async_wait<kStages - 1>();
        float4 x[kSeen];
#pragma unroll
        for (int i = 0; i < kSeen; ++i) x[i] = Rows::fetched(slot, i);
        rows.fetch(slot);  // loads of one thread from shared memory are in order: the row has been read
        stage = stage + 1 == kStages ? 0 : stage + 1;
        if (j + 1 < kStride) {
#pragma unroll
          for (int a = 0; a < kBegun; ++a) {
            if (kLast + j - a * kStride >= 0) add_strip_row<kTaps, kStride>(sums[a], x, weights, kLast + j - a * kStride);
          }
          continue;
        }
        add_strip_row<kTaps, kStride>(sums[0], x, weights, kTaps - 1);
        if (step >= kBegun) {
#pragma unroll
          for (int p = 0; p < kPixels; ++p) {
            float4 v = clamped4<kRounds>(sums[0][p], low, high);
            if constexpr (kTable) v = table.of(v);
            if (p < pixels) store4(out + p * out_column, v);
          }
        }
        // The sums move up by a row, and those of the last row begin.
#pragma unroll
        for (int a = 1; a <= kBegun; ++a) {
#pragma unroll
          for (int p = 0; p < kPixels; ++p) sums[a - 1][p] = a < kBegun ? sums[a < kBegun ? a : 0][p] : bias;
          if (kTaps - 1 - a * kStride >= 0) add_strip_row<kTaps, kStride>(sums[a - 1], x, weights, kTaps - 1 - a * kStride);
        }
      }
    }
    cp_async_wait<0>();
  }
}

}  // namespace rk
