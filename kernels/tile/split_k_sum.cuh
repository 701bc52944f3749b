// Second phase of a product whose k was split:
//   out[m][n] = act(bias[n] + residual[m][n] + partial[0][m][n] + partial[1][m][n] + ...)
// The partial sums are added in this order, so the result does not depend on which vEU was first. A rTask is `rows_per_rtask` pixels x 64
// channels; the index of the block of rows runs fastest.
//
// A rTask of few rows waits for memory once or twice, whatever it does. Where rows are many, split_k_sum_rows has several of a thread's
// rows under way, and their residuals, too: a row at a time takes 0.55 us of each 16 rows, twice that with a residual.
//
// Example: with 4 blocks of rows and rows_per_rtask 32 rTask 9 is rows 32 to 63 and channels 128 to 191. Its thread 37 adds up channels
// 148 to 151 (128 + 37 % 16 * 4) of rows 34 (32 + 37 / 16) and 50.
#pragma once

#include "kernels/tile/lean_epilogue.cuh"
#include "kernels/tile/numbers.cuh"

namespace rk {

struct SplitKSumArgs {  // in tables
  TensorRef partial;    // [splits][rows][pitch]
  TensorRef out;
  EpilogueArgs epilogue;  // bias: padded to a multiple of 64; residual strides: image, channel, h, w
  PixelStrides out_strides;
  int64_t split_stride;  // of partial
  int32_t rows, channels, pitch, splits, rows_per_rtask;
  int32_t vector_out, vector_residual;
  Divisor row_blocks, pixels, out_w;
  ClipArgs clip;    // of split_k_sum_rows, which has no other activations
  float out_low{};  // the number that a byte of 0 stands for, of results in Unsigned8
};

// Out: of the results and the residual in memory.
template <class Veu, class Out = float>
RK_BODY void split_k_sum(const Task<Veu>& task) {
  constexpr int kThreadsPerRow = kSumColumns / 4;
  constexpr int kRowThreads = Veu::kComputeThreads / kThreadsPerRow;
  static_assert(kRowThreads == kSumRows, "the host cuts rows by it");
  constexpr int kAtOnce = 8;  // loads under way
  const auto& args = task.template arguments<SplitKSumArgs>();
  uint32_t row_block;
  const int n =
      static_cast<int>(divide(task.index, args.row_blocks, row_block)) * kSumColumns + static_cast<int>(threadIdx.x) % kThreadsPerRow * 4;
  task.await_inputs();
  if (n >= args.channels) return;
  const int first = static_cast<int>(row_block) * args.rows_per_rtask;
  const int last = min(first + args.rows_per_rtask, args.rows);
  const float* const partial = task.address(args.partial) + n;
  const int64_t split_stride = args.split_stride;
  const int splits = args.splits;
  Finish4<Out> finish = finish_of<Out>(task, args, n, args.channels - n, load_bias4(task, args, n), 0);
  if constexpr (sizeof(Out) == 1) finish.out_low = args.out_low;
#pragma unroll 1
  for (int m = first + static_cast<int>(threadIdx.x) / kThreadsPerRow; m < last; m += kRowThreads) {
    const float* from = partial + static_cast<int64_t>(m) * args.pitch;
    float4 sum = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll 1
    for (int s = 0; s < splits; s += kAtOnce, from += kAtOnce * split_stride) {
      float4 part[kAtOnce];
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        part[i] = {0.0f, 0.0f, 0.0f, 0.0f};
        if (s + i < splits) part[i] = load4(from + i * split_stride);
      }
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) sum = add4(sum, part[i]);
    }
    finish(static_cast<uint32_t>(m), sum);
  }
}

// The same with kSumLoads loads of partial sums under way, or as many as are whole rows. Channels are a multiple of four, and four of them
// are one access of the results and of the residual. Past the end the last row is loaded again, and not stored.
// Example: kSplits 2, rows 0 to 383. In its first turn thread 37 has rows 2, 18, 34 and 50: 8 loads of partial sums, 4 of residuals.
template <class Veu, int kSplits, class Out = float>
RK_BODY void split_k_sum_rows(const Task<Veu>& caller) {
  constexpr int kThreadsPerRow = kSumColumns / 4, kRowThreads = Veu::kComputeThreads / kThreadsPerRow, kRows = kSumLoads / kSplits;
  const Task<Veu> task = caller;  // a copy in registers, since the caller's task is in a stack frame
  const auto& args = task.template arguments<SplitKSumArgs>();
  uint32_t row_block;
  const int n =
      static_cast<int>(divide(task.index, args.row_blocks, row_block)) * kSumColumns + static_cast<int>(threadIdx.x) % kThreadsPerRow * 4;
  task.await_inputs();
  if (n >= args.channels) return;
  const int first = static_cast<int>(row_block) * args.rows_per_rtask;
  const int last = min(first + args.rows_per_rtask, args.rows);
  const float* const partial = task.address(args.partial) + n;
  const int64_t split_stride = args.split_stride;
  const int pitch = args.pitch;
  const ClipArgs clip = args.clip;
  const Finish4<Out> finish = finish_of<Out>(task, args, n, 4, load_bias4(task, args, n), 0);
#pragma unroll 1
  for (int m = first + static_cast<int>(threadIdx.x) / kThreadsPerRow; m < last; m += kRows * kRowThreads) {
    Pixel pixel[kRows];
    Raw4<Out> residual[kRows] = {};
#pragma unroll
    for (int r = 0; r < kRows; ++r)
      pixel[r] = pixel_of(static_cast<uint32_t>(min(m + r * kRowThreads, last - 1)), finish.pixels, finish.out_w);
    if (finish.has_residual) {
#pragma unroll
      for (int r = 0; r < kRows; ++r) residual[r] = load_raw4(finish.residual + offset_of(pixel[r], finish.residual_strides));
    }
    float4 part[kRows][kSplits];
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const float* const from = partial + static_cast<int64_t>(min(m + r * kRowThreads, last - 1)) * pitch;
#pragma unroll
      for (int s = 0; s < kSplits; ++s) part[r][s] = load4(from + s * split_stride);
    }
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      if (m + r * kRowThreads >= last) continue;
      const float4 other = residual[r].floats();
      float4 v = part[r][0];
#pragma unroll
      for (int s = 1; s < kSplits; ++s) v = add4(v, part[r][s]);
      v = add4(v, finish.bias);
      if (clip.after == 0) v = add4(v, other);
      v = clamp4(v, clip.low, clip.high);
      if (clip.after != 0) v = add4(v, other);
      store4(finish.out + offset_of(pixel[r], finish.out_strides), v);
    }
  }
}

}  // namespace rk
