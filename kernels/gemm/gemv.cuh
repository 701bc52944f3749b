// Product of a few rows with a large matrix, bound by the reading of the matrix:
//   out[m][n] = act(bias[n] + residual[m][n] + sum over k of in[m][k] * weight[k][n])     m < rows <= ROWS
// A rTask is 8 * COLUMNS columns n, COLUMNS of them per warp. The weights stream through the ring, a chunk being
// weight[column][chunk_k]; the lanes of a warp share the k of a column. The rows of `in` are copied to shared memory in two
// pieces of piece_k, in turn. Always fp32.
#pragma once

#include "kernels/vdevice/epilogue.cuh"

namespace rk {

constexpr int kGemvLanesK = kWarp * 4;  // k that a warp takes at once; chunk_k is a multiple

struct GemvArgs {
  TensorRef in;
  TensorRef out;
  EpilogueArgs epilogue;  // residual_strides[1] only
  int64_t in_rows[8], out_rows[8], residual_rows[8];  // offset of each row
  int64_t in_stride, out_stride;  // of k and of n
  int32_t rows, channels, k;
  int32_t chunk_k, chunks;  // of the ring, per rTask
  int32_t piece_k;          // a multiple of chunk_k
  int32_t vector_in;        // 4 of k are one aligned 16-byte access, and k is a multiple of 4
};

// Starts the copy of in[row][first, first + piece_k) for all rows. Past the end of k it stores zeros.
template <class Veu, int ROWS>
RK_INLINE void gemv_copy(const GemvArgs& args, const float* in, float* to, int first) {
  const int thread = static_cast<int>(threadIdx.x);
#pragma unroll 1
  for (int m = 0; m < ROWS; ++m) {
    const bool row_valid = m < args.rows;
    const float* const row = in + (row_valid ? args.in_rows[m] : 0);
    if (args.vector_in != 0) {
      for (int k = thread * 4; k < args.piece_k; k += Veu::kComputeThreads * 4) {
        cp_async16(to + m * args.piece_k + k, row + first + k, row_valid && first + k < args.k);
      }
    } else {
      for (int k = thread; k < args.piece_k; k += Veu::kComputeThreads) {
        cp_async4(to + m * args.piece_k + k, row + (first + k) * args.in_stride, row_valid && first + k < args.k);
      }
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

template <class Veu, int ROWS, int COLUMNS>
RK_BODY void gemv(const Task<Veu>& task) {
  static_assert(ROWS * COLUMNS <= kWarp && ROWS <= 8);
  constexpr int kColumns = Veu::kComputeThreads / kWarp * COLUMNS;
  const auto& args = task.template arguments<GemvArgs>();
  const float* const in = task.address(args.in);
  float* const pieces = reinterpret_cast<float*>(task.work);
  WeightPipe<Veu> weights = task.weights;
  float sum[ROWS][COLUMNS] = {};

  gemv_copy<Veu, ROWS>(args, in, pieces, 0);
  cp_async_commit();
  const int chunks_per_piece = args.piece_k / args.chunk_k;
#pragma unroll 1
  for (int chunk = 0, side = 0; chunk < args.chunks; side ^= 1) {
    cp_async_wait<0>();
    sync_compute<Veu>();  // this piece is there for all, and nobody reads the other one any more
    const int next = chunk + chunks_per_piece;
    if (next < args.chunks) gemv_copy<Veu, ROWS>(args, in, pieces + (side ^ 1) * ROWS * args.piece_k, next * args.chunk_k);
    cp_async_commit();
    const float* x = pieces + side * ROWS * args.piece_k + lane_id() * 4;
#pragma unroll 1
    for (; chunk < min(next, args.chunks); ++chunk, x += args.chunk_k) {
      const float* const w = reinterpret_cast<const float*>(weights.acquire()) + warp_id() * COLUMNS * args.chunk_k + lane_id() * 4;
#pragma unroll 2
      for (int k = 0; k < args.chunk_k; k += kGemvLanesK) {
        float4 b[COLUMNS];
#pragma unroll
        for (int c = 0; c < COLUMNS; ++c) b[c] = *reinterpret_cast<const float4*>(w + c * args.chunk_k + k);
#pragma unroll
        for (int m = 0; m < ROWS; ++m) {
          const float4 a = *reinterpret_cast<const float4*>(x + m * args.piece_k + k);
#pragma unroll
          for (int c = 0; c < COLUMNS; ++c) {
            sum[m][c] = fmaf(a.w, b[c].w, fmaf(a.z, b[c].z, fmaf(a.y, b[c].y, fmaf(a.x, b[c].x, sum[m][c]))));
          }
        }
      }
      weights.release();
    }
  }
  cp_async_wait<0>();

  const float own = gemv_own_sum(sum);
  const int m = lane_id() / COLUMNS;
  const int n = static_cast<int>(task.index) * kColumns + warp_id() * COLUMNS + lane_id() % COLUMNS;
  if (m >= args.rows || n >= args.channels || m >= ROWS) return;
  const float* const bias = task.address(args.epilogue.bias);
  const float* const residual = task.address(args.epilogue.residual);
  const float r = residual == nullptr ? 0.0f : load1(residual + args.residual_rows[m] + n * args.epilogue.residual_strides[1]);
  const float v = finish(args.epilogue, own + (bias == nullptr ? 0.0f : load_weight1(bias + n)), r);
  store1(task.address(args.out) + args.out_rows[m] + n * args.out_stride, v);
}

}  // namespace rk
