// A Reduce and a MatMul (compiler/ir/ops.h): the product of gemv.cuh with means of channels, whose sums come in parts
// (kernels/product/summed_conv.cuh):
//   out[m][n] = act(bias[n] + residual[m][n] + sum over k of x[m][k] * weight[k][n])
//   x[m][k] = scale * sum over parts of in[m][part][k]
// Each rTask adds up all parts for itself, in their order, so that there is no level of the program for the means. All of x is in shared
// memory at once. k is a multiple of four, and four of k are one aligned access. ROWS, COLUMNS, NARROW, PLAIN and Out are gemv.cuh's.
//
// Example: 1280 channels of a map of 7 x 7 pixels in four parts, scale 1/49. Thread 5 has channels 20 to 23 and 1044 to 1047: the four
// loads of one turn bring channels 20 to 23 of parts 0 to 3, and their sums times 1/49 are x[0][20] to x[0][23].
#pragma once

#include "kernels/product/gemv.cuh"

namespace rk {

struct GemvOfSumsArgs {  // in tables
  GemvArgs gemv;         // in: the sums; piece_k: k with zeros up to whole chunks
  int32_t parts, part_stride;
  float scale;
};

// Leaves x in shared memory, rows of piece_k. of_sums: what a step makes of four channels' sums.
template <class Veu, int ROWS, class Args, class OfSums>
RK_INLINE void gemv_pool(const Args& args, const float* in, float* to, const OfSums& of_sums) {
  const int parts = args.parts, stride = args.part_stride, piece_k = args.gemv.piece_k;
#pragma unroll 1
  for (int m = 0; m < ROWS; ++m) {
    const bool row_valid = ROWS == 1 || m < args.gemv.rows;
    const float* const row = in + (ROWS > 1 && row_valid ? args.gemv.in_rows[m] : 0);
#pragma unroll 1
    for (int k = static_cast<int>(threadIdx.x) * kGemvLaneK; k < piece_k; k += Veu::kComputeThreads * kGemvLaneK) {
      const int end = row_valid && k < args.gemv.k ? parts : 0;
      float4 sum = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll 1
      for (int part = 0; part < end; part += kGemvParts) {
        float4 v[kGemvParts];
#pragma unroll
        for (int i = 0; i < kGemvParts; ++i) {
          v[i] = float4{0.0f, 0.0f, 0.0f, 0.0f};
          if (part + i < end) v[i] = load4(row + ((part + i) * stride + k));
        }
#pragma unroll
        for (int i = 0; i < kGemvParts; ++i) sum = float4{sum.x + v[i].x, sum.y + v[i].y, sum.z + v[i].z, sum.w + v[i].w};
      }
      *reinterpret_cast<float4*>(to + m * piece_k + k) = of_sums(sum);
    }
  }
}

template <class Veu, int ROWS, int COLUMNS, bool NARROW, bool PLAIN, class Out = float>
RK_BODY void gemv_of_sums(const Task<Veu>& caller) {
  static_assert(ROWS * COLUMNS <= kWarp && ROWS <= 8);
  const Task<Veu> task = caller;  // in registers; the caller's copy is in memory
  const GemvOfSumsArgs& all = task.template arguments<GemvOfSumsArgs>();
  const GemvArgs& args = all.gemv;
  float* const pooled = task.template work_as<float>();
  const int chunk_k = args.chunk_k, piece_k = args.piece_k, column_bytes = args.column_bytes;
  task.await_inputs();
  gemv_pool<Veu, ROWS>(all, task.address(args.in), pooled, [scale = all.scale](const float4& sum) {
    return float4{sum.x * scale, sum.y * scale, sum.z * scale, sum.w * scale};
  });
  GemvOutput<Out> own = gemv_output<Out, ROWS, COLUMNS, PLAIN>(task, args, static_cast<int>(task.index));
  gemv_residual(own);
  sync_compute<Veu>();

  WeightPipe<Veu> weights = task.weights;
  float sum[ROWS * COLUMNS] = {};
  const float* x = pooled + lane_id() * kGemvLaneK;
#pragma unroll 1
  for (int left = args.chunks; left > 0; --left, x += chunk_k) {
    const char* const stage = as_shared(weights.acquire());
    gemv_chunk<ROWS, COLUMNS, NARROW>(x, stage + warp_id() * COLUMNS * column_bytes + lane_id() * 16, column_bytes, piece_k, sum);
    weights.release();
  }

  gemv_store<PLAIN>(args, own, sum);
}

}  // namespace rk
