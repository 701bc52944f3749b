// The product of gemv_of_rows.cuh for one row, which never lies in shared memory:
//   out[n] = act(bias[n] + residual[n] + factor * sum over k of x[k] * weight[k][n])     x, factor as there
// A thread keeps its own four of k, TURNS times, in registers, and multiplies them by these k of all columns. So nobody waits for another
// thread's part of x, the weights are read from shared memory once, and one barrier is left: behind it the sums of the warps are added up.
//
// With NORM kGemvCentred a warp subtracts the mean of its own k, not that of all. What that makes of the sum is corrected in the end, by
// the sum of a column's weights over the warp's k: sum (x - mean) w = over all warps sum (x - m) w + (m - mean) sum w. Mean and square sum
// of the row are put together from those of the warps (Chan, Golub and LeVeque 1983).
//
// A chunk of the ring is COLUMNS columns, all of k: weight[column pair][four of k][two columns][four], 16 bytes for a thread at a time
// (fp32: one column at a time); then for each column its scale, its bias, and with kGemvCentred the sums of its weights for each warp.
// The columns of all chunks of a rTask follow each other. GemvArgs: piece_k is k up to whole fours, chunk_k, column_bytes and turns are not
// used. The other template arguments are gemv_of_rows.cuh's; ROWS is 1.
//
// Example: k = 768, COLUMNS 8, 3 chunks. rTask 5 has columns 120 to 143. Thread 40, in warp 1, has k 160 to 163; it reads bytes 640 to 655
// of a chunk for the first two columns. Threads 192 to 255 have no k. In the end thread 7 adds up eight warps' sums of column 127.
#pragma once

#include "kernels/gemm/gemv_of_rows.cuh"

namespace rk {

template <int NORM>
struct GemvRowInfo {
  static constexpr int kFloats = gemv_row_info(NORM);  // of a column in a chunk
};

// The sum of x * weights of the thread's fours, for all columns of a chunk.
template <int COLUMNS, bool NARROW, int TURNS, int HELD>
RK_INLINE void gemv_row_chunk(const char* stage, const float4 (&x)[HELD], int fours, float (&sum)[COLUMNS]) {
  constexpr int kAtOnce = NARROW ? 2 : 1;
#pragma unroll
  for (int turn = 0; turn < TURNS; ++turn) {
    const int four = turn * kComputeWarps * kWarp + static_cast<int>(threadIdx.x);
    if (four >= fours) break;
    const char* const from = stage + four * 16;
#pragma unroll
    for (int c = 0; c < COLUMNS; c += kAtOnce) {
      const char* const at = from + c / kAtOnce * fours * 16;
      if constexpr (NARROW) {
        const uint4 pairs = *reinterpret_cast<const uint4*>(at);
        gemv_add(sum[c], x[turn], gemv_four(pairs.x, pairs.y));
        gemv_add(sum[c + 1], x[turn], gemv_four(pairs.z, pairs.w));
      } else {
        gemv_add(sum[c], x[turn], *reinterpret_cast<const float4*>(at));
      }
    }
  }
}

// How many k of the row are this warp's.
template <int TURNS>
RK_INLINE float gemv_row_count(int warp, int k_end) {
  int count = 0;
#pragma unroll
  for (int turn = 0; turn < TURNS; ++turn) {
    const int left = k_end - (turn * kComputeWarps + warp) * kWarp * 4;
    count += min(max(left, 0), kWarp * 4);
  }
  return static_cast<float>(count);
}

// Leaves mean and sum of squares of the warp's k in `stats`, for kGemvCentred with the mean subtracted from x; for kGemvScaled the mean is
// 0.
template <int NORM, int TURNS, int HELD>
RK_INLINE void gemv_row_norm(float4 (&x)[HELD], int k_end, float2* stats) {
  if constexpr (NORM == kGemvAsIs) return;
  float mean = 0.0f, squares = 0.0f;
  if constexpr (NORM == kGemvCentred) {
    float sum = 0.0f;
#pragma unroll
    for (int turn = 0; turn < TURNS; ++turn) sum += gemv_sum4(x[turn]);
    const float count = gemv_row_count<TURNS>(warp_id(), k_end);
    mean = count > 0.0f ? warp_sum(sum) / count : 0.0f;
#pragma unroll
    for (int turn = 0; turn < TURNS; ++turn) {
      const int left = k_end - (turn * kComputeWarps * kWarp + static_cast<int>(threadIdx.x)) * 4;
      x[turn] = gemv_first<false>(float4{x[turn].x - mean, x[turn].y - mean, x[turn].z - mean, x[turn].w - mean}, left);
    }
  }
#pragma unroll
  for (int turn = 0; turn < TURNS; ++turn) squares += gemv_squares4(x[turn]);
  squares = warp_sum(squares);
  if (lane_id() == 0) stats[warp_id()] = float2{mean, squares};
}

// What the normalisation makes of the sums: the factor of the row, and how far each warp's mean is from the row's.
struct GemvRowNorm {
  float factor = 1.0f;
  float off[kComputeWarps];
};
template <int NORM, int TURNS>
RK_INLINE GemvRowNorm gemv_row_total(const GemvOfRowsArgs& args, const float2* stats) {
  GemvRowNorm norm;
  if constexpr (NORM == kGemvAsIs) return norm;
  float mean = 0.0f, squares = 0.0f;
  if constexpr (NORM == kGemvCentred) {
#pragma unroll
    for (int w = 0; w < kComputeWarps; ++w) mean = fmaf(stats[w].x, gemv_row_count<TURNS>(w, args.gemv.k), mean);
    mean *= args.inverse_k;
  }
#pragma unroll
  for (int w = 0; w < kComputeWarps; ++w) {
    squares += stats[w].y;
    if constexpr (NORM == kGemvCentred) {
      norm.off[w] = stats[w].x - mean;
      squares = fmaf(norm.off[w] * norm.off[w], gemv_row_count<TURNS>(w, args.gemv.k), squares);
    }
  }
  norm.factor = rsqrtf(fmaf(squares, args.inverse_k, args.epsilon));
  return norm;
}

// The output and the residual of column n; none behind the last one.
template <class Out, bool PLAIN, class Veu>
RK_INLINE GemvOutput<Out> gemv_row_output(const Task<Veu>& task, const GemvArgs& args, int n) {
  GemvOutput<Out> own = {nullptr, nullptr, 0.0f, 0.0f, 0.0f};
  if (n >= args.channels) return own;
  own.out = values_at<Out>(task, args.out) + n * args.out_stride;
  const Out* const residual = PLAIN ? nullptr : values_at<Out>(task, args.epilogue.residual);
  if (residual != nullptr) own.added = residual + n * args.epilogue.residual_strides[1];
  return own;
}

template <class Veu, int ROWS, int COLUMNS, bool NARROW, bool PLAIN, class Out, class Value, uint32_t NARROW_IN, int INPUTS,
          uint32_t SCALARS, int NORM, int TURNS, uint32_t WORDS, class Steps>
RK_BODY void gemv_row(const Task<Veu>& caller) {
  using Fours = GemvFours<1, TURNS>;
  static_assert(ROWS == 1 && COLUMNS <= kWarp && Veu::kComputeThreads == kComputeWarps * kWarp);
  constexpr bool kWhole = SCALARS == 0;
  constexpr int kInfo = GemvRowInfo<NORM>::kFloats, kTurns = Fours::kTurns, kHeld = (TURNS + kTurns - 1) / kTurns * kTurns;
  const Task<Veu> task = caller;  // in registers; the caller's copy is in memory
  const GemvOfRowsArgs& all = task.template arguments<GemvOfRowsArgs>();
  const GemvArgs& args = all.gemv;
  const int chunks = args.chunks, columns = chunks * COLUMNS, fours = args.piece_k / 4, k_end = args.k;
  const int thread = static_cast<int>(threadIdx.x), first = static_cast<int>(task.index) * columns;
  float* const sums = task.template work_as<float>();  // [column][warp]
  float2* const stats = reinterpret_cast<float2*>(sums + columns * kComputeWarps);
  float* const infos = reinterpret_cast<float*>(stats + kComputeWarps);  // [column][kInfo]

  GemvOutput<Out> own = gemv_row_output<Out, PLAIN>(task, args, thread < columns ? first + thread : args.channels);
  GemvOperands<Veu, Value, NARROW_IN, INPUTS, SCALARS, WORDS, 1, TURNS> operands(task, all);
  constexpr uint32_t kAllOperands = (1u << INPUTS) - 1;
  constexpr bool kWaited = (WORDS & kAllOperands) != kAllOperands;  // for the Waits, before anything is read
  if (kWaited) task.await_inputs();
  const uint32_t seen = gemv_begin_residual<WORDS, kWaited>(task, args, own);
  float4 x[kHeld];
#pragma unroll
  for (int turn = 0; turn < kHeld; turn += kTurns) {
    if (turn > 0) operands.place(all, 0, turn);
    float4 inputs[INPUTS][Fours::kCount], made[Fours::kCount];
    operands.load(all, turn, inputs);
    Steps::make(all, inputs, made);
#pragma unroll
    for (int g = 0; g < kTurns; ++g) x[turn + g] = gemv_first<kWhole>(made[g], k_end - gemv_k<Veu>(turn + g));
  }
  gemv_row_norm<NORM, TURNS>(x, k_end, stats);

  WeightPipe<Veu> weights = task.weights;
#pragma unroll 1
  for (int chunk = 0; chunk < chunks; ++chunk) {
    const char* const stage = as_shared(weights.acquire());
    float sum[COLUMNS] = {};
    gemv_row_chunk<COLUMNS, NARROW, TURNS>(stage, x, fours, sum);
    const float* const info = reinterpret_cast<const float*>(stage + COLUMNS * fours * (NARROW ? 8 : 16));
    for (int i = thread; i < COLUMNS * kInfo; i += kComputeWarps * kWarp) infos[chunk * COLUMNS * kInfo + i] = info[i];
    weights.release();
    const float of_warp = gemv_own_sum(sum);
    constexpr int kLanes = kWarp / COLUMNS;  // with the same sum
    if (lane_id() % kLanes == 0) sums[(chunk * COLUMNS + lane_id() / kLanes) * kComputeWarps + warp_id()] = of_warp;
  }
  sync_compute<Veu>();
  gemv_await_rest<PLAIN, WORDS, kWaited>(task, args);

  const GemvRowNorm norm = gemv_row_total<NORM, TURNS>(all, stats);
#pragma unroll 1
  for (int n = thread; n < columns; n += kComputeWarps * kWarp) {
    uint32_t seen_here = seen;
    if (n != thread) {
      own = gemv_row_output<Out, PLAIN>(task, args, first + n);
      seen_here = gemv_begin_residual<WORDS, kWaited>(task, args, own);
    }
    float v = gemv_row_sum(sums, n);
    const float* const info = infos + n * kInfo;
    if constexpr (NORM == kGemvCentred) {
#pragma unroll
      for (int w = 0; w < kComputeWarps; ++w) v = fmaf(norm.off[w], info[2 + w], v);
    }
    v = fmaf(v, info[0] * norm.factor, info[1]);
    if constexpr (!PLAIN) gemv_end_residual<WORDS, kWaited>(task, args, seen_here, own);
    gemv_store_row<PLAIN, WORDS>(task, all, own, v);
  }
}

}  // namespace rk
