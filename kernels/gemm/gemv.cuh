// Product of a few rows with a large matrix, bound by the reading of the matrix:
//   out[m][n] = act(bias[n] + residual[m][n] + sum over k of in[m][k] * weight[k][n])     m < rows <= ROWS
// A rTask is 8 * COLUMNS columns n, COLUMNS of them per warp. The weights stream through the ring, a chunk being
// weight[column][chunk_k]; the lanes of a warp share the k of a column. The rows of `in` are copied to shared memory in
// pieces of piece_k, in two places in turn. Always fp32. VECTOR: 4 of k are one aligned 16-byte access, and k is a multiple of 4.
// PLAIN: no residual, and no activation but relu, as most classifiers end; what else an epilogue can be is long code.
#pragma once

#include "kernels/vdevice/epilogue.cuh"

namespace rk {

constexpr int kGemvLanesK = kWarp * 4;  // k that a warp takes at once; chunk_k is a multiple

struct GemvArgs {
  TensorRef in;
  TensorRef out;
  EpilogueArgs epilogue;                              // residual_strides[1] only
  int64_t in_rows[8], out_rows[8], residual_rows[8];  // offset of each row
  int32_t in_stride, out_stride;                      // of k and of n
  int32_t rows, channels, k;
  int32_t chunk_k, chunks;            // of the ring, per rTask
  int32_t piece_k, chunks_per_piece;  // piece_k = chunks_per_piece * chunk_k
};
static_assert(sizeof(GemvArgs) <= 768, "an argument slot has 768 bytes");

// Starts the copy of in[row][first, first + piece_k) for all rows. Past the end of k it stores zeros.
template <class Veu, int ROWS, bool VECTOR>
RK_INLINE void gemv_copy(const GemvArgs& args, const float* in, float* to, int first) {
  constexpr int kWidth = VECTOR ? 4 : 1;
  const int piece_k = args.piece_k, k_end = args.k - first;
#pragma unroll 1
  for (int m = 0; m < ROWS; ++m) {
    const bool row_valid = m < args.rows;
    const float* const row = in + (row_valid ? args.in_rows[m] : 0) + first * args.in_stride;
#pragma unroll 1
    for (int k = static_cast<int>(threadIdx.x) * kWidth; k < piece_k; k += Veu::kComputeThreads * kWidth) {
      const bool valid = row_valid && k < k_end;
      if constexpr (VECTOR)
        cp_async16(to + m * piece_k + k, row + k, valid);
      else
        cp_async4(to + m * piece_k + k, row + k * args.in_stride, valid);
    }
  }
}

// The lane with number row * COLUMNS + column finishes that sum.
template <int ROWS, int COLUMNS>
RK_INLINE float gemv_own_sum(const float (&sum)[ROWS][COLUMNS]) {
  float own = 0.0f;
#pragma unroll
  for (int m = 0; m < ROWS; ++m) {
#pragma unroll
    for (int c = 0; c < COLUMNS; ++c) {
      const float total = warp_sum(sum[m][c]);
      if (lane_id() == m * COLUMNS + c) own = total;
    }
  }
  return own;
}

// What the lane's output is besides the sum, fetched while the weights arrive.
struct GemvOutput {
  float* out;  // null: none of the outputs is this lane's
  float bias, residual;
};
template <class Veu, int COLUMNS, bool PLAIN>
RK_INLINE GemvOutput gemv_output(const Task<Veu>& task, const GemvArgs& args) {
  const int m = lane_id() / COLUMNS;
  const int n = (static_cast<int>(task.index) * (Veu::kComputeThreads / kWarp) + warp_id()) * COLUMNS + lane_id() % COLUMNS;
  GemvOutput own = {nullptr, 0.0f, 0.0f};
  if (m >= args.rows || n >= args.channels) return own;
  const float* const bias = task.address(args.epilogue.bias);
  if (bias != nullptr) own.bias = load_weight1(bias + n);
  const float* const residual = PLAIN ? nullptr : task.address(args.epilogue.residual);
  if (residual != nullptr) own.residual = load1(residual + args.residual_rows[m] + n * args.epilogue.residual_strides[1]);
  own.out = task.address(args.out) + args.out_rows[m] + n * args.out_stride;
  return own;
}

// sum += x * w over the chunk_k of one chunk.
template <int ROWS, int COLUMNS>
RK_INLINE void gemv_chunk(const float* x, const float* w, int chunk_k, int piece_k, float (&sum)[ROWS][COLUMNS]) {
  [[maybe_unused]] constexpr int kSteps = ROWS * COLUMNS < 4 ? 4 / (ROWS * COLUMNS) : 1;  // loads under way
#pragma unroll(kSteps)
  for (int k = 0; k < chunk_k; k += kGemvLanesK) {
    float4 b[COLUMNS];
#pragma unroll
    for (int c = 0; c < COLUMNS; ++c) b[c] = *reinterpret_cast<const float4*>(w + c * chunk_k + k);
#pragma unroll
    for (int m = 0; m < ROWS; ++m) {
      const float4 a = *reinterpret_cast<const float4*>(x + m * piece_k + k);
#pragma unroll
      for (int c = 0; c < COLUMNS; ++c) {
        sum[m][c] = fmaf(a.w, b[c].w, fmaf(a.z, b[c].z, fmaf(a.y, b[c].y, fmaf(a.x, b[c].x, sum[m][c]))));
      }
    }
  }
}

template <class Veu, int ROWS, int COLUMNS, bool VECTOR, bool PLAIN>
RK_BODY void gemv(const Task<Veu>& caller) {
  static_assert(ROWS * COLUMNS <= kWarp && ROWS <= 8);
  const Task<Veu> task = caller;  // in registers: the caller's is in its stack frame
  const GemvArgs& args = task.template arguments<GemvArgs>();
  const float* const in = task.address(args.in);
  float* const pieces = task.template work_as<float>();
  const int chunk_k = args.chunk_k, chunks = args.chunks, piece_k = args.piece_k;
  WeightPipe<Veu> weights = task.weights;
  float sum[ROWS][COLUMNS] = {};
  GemvOutput own{};

  // The turn before the first piece only starts its copy.
#pragma unroll 1
  for (int chunk = -args.chunks_per_piece, side = 1; chunk < chunks; side ^= 1) {
    const int next = chunk + args.chunks_per_piece;
    cp_async_wait<0>();
    sync_compute<Veu>();  // this piece is there for all, and nobody reads the other one any more
    if (next < chunks) gemv_copy<Veu, ROWS, VECTOR>(args, in, pieces + (side ^ 1) * ROWS * piece_k, next * chunk_k);
    cp_async_commit();
    if (next == 0) own = gemv_output<Veu, COLUMNS, PLAIN>(task, args);
    const float* x = pieces + side * ROWS * piece_k + lane_id() * 4;
#pragma unroll 1
    for (chunk = next == 0 ? next : chunk; chunk < min(next, chunks); ++chunk, x += chunk_k) {
      const float* const stage = as_shared(reinterpret_cast<const float*>(weights.acquire()));
      gemv_chunk<ROWS, COLUMNS>(x, stage + warp_id() * COLUMNS * chunk_k + lane_id() * 4, chunk_k, piece_k, sum);
      weights.release();
    }
  }

  float v = gemv_own_sum(sum) + own.bias;
  if (!PLAIN)
    v = finish(args.epilogue, v, own.residual);
  else if (args.epilogue.activation == kRelu)
    v = relu(v);
  if (own.out != nullptr) store1(own.out, v);
}

}  // namespace rk
