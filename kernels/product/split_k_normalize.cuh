// Second phase of a product whose k was split and whose rows are normalised (split_k_normalize.h):
//   sum[m][n] = partial[0][m][n] + partial[1][m][n] + .. + bias[n] + residual[m][n]
//   out[m][n] = (sum[m][n] - mean of row m) / sqrt(variance of row m + epsilon) * scale[n] + shift[n]
// Parts are added in this order, so the result does not depend on which vEU was first. 2^n threads share a row, as in normalize_rows.cuh;
// each has kEach groups of four values (vectors) of it in registers, and the loads of all their parts are under way before the first is
// added. Bias, scale and shift come through the ring, as they would else come from DRAM after the Wait. Limits: the product has at most
// kParts parts, and a row is a multiple of four values. In: the type in memory of the residual and of the sum, which may both be missing;
// Out: of the result.
// Example: 197 rows of 768 values, 5 parts, 2 rows for each rTask. A row is 192 vectors for 128 threads, kEach is 2 and kParts 8. Thread 77
// of rTask 30 has row 60 and vectors 77 and (as 77 + 128 = 205 does not exist) none; thread 170 has row 61 and vectors 42 and 170.
#pragma once

#include "kernels/tile/centred_rows.cuh"
#include "kernels/tile/channels4.cuh"

namespace rk {

struct SplitKNormalizeArgs {                // in tables
  TensorRef partial;                        // [splits][rows][a row]
  TensorRef residual, sum, out;             // the first two may be null
  int64_t split_stride;                     // of partial
  uint32_t residual_row, sum_row, out_row;  // elements from one row to the next
  uint32_t rows, rows_per_rtask;
  uint32_t vectors;       // of a row
  uint32_t threads_log2;  // of a row
  int32_t splits;
  float inverse_count, epsilon;
  int32_t centered;
};

template <class Veu, int kEach, int kParts, class In = float, class Out = float>
RK_BODY void split_k_normalize(const Task<Veu>& caller) {
  const Task<Veu> task = caller;  // a copy in registers, since the caller's task is in a stack frame
  const SplitKNormalizeArgs& args = task.template arguments<SplitKNormalizeArgs>();
  float* const shared = task.template work_as<float>();
  const uint32_t log2 = args.threads_log2, vectors = args.vectors, group = threadIdx.x >> log2;
  const uint32_t first = threadIdx.x & ((1u << log2) - 1);  // of the thread's vectors
  const uint32_t limit = (task.index + 1) * args.rows_per_rtask, end = min(limit, args.rows);
  const float* const partial = task.address(args.partial);
  const In* const residual = values_at<const In>(task, args.residual);
  In* const sums = values_at<In>(task, args.sum);
  Out* const out = values_at<Out>(task, args.out);
  const int64_t split_stride = args.split_stride;
  const int splits = args.splits;
  WeightPipe<Veu> weights = task.weights;
#pragma unroll 1
  for (uint32_t row = task.index * args.rows_per_rtask + group; row - group < end; row += Veu::kComputeThreads >> log2) {
    float4 part[kEach][kParts], x[kEach];
    Raw4<In> other[kEach] = {};
    bool exists[kEach];
    task.await_inputs();
    const float* const from = partial + static_cast<int64_t>(row) * (vectors * 4);
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const uint32_t vector = first + (static_cast<uint32_t>(i) << log2);
      exists[i] = row < end && vector < vectors;
#pragma unroll
      for (int s = 0; s < kParts; ++s) {
        part[i][s] = float4{0.0f, 0.0f, 0.0f, 0.0f};
        if (exists[i] && s < splits) part[i][s] = load4(from + s * split_stride + vector * 4);
      }
      if (exists[i] && residual != nullptr) other[i] = load_raw4(residual + (row * args.residual_row + vector * 4));
    }
    // Vectors of the bias, then of the scale, then of the shift. They stay until the release, so only the first turn may have to wait.
    const float4* const constants = as_shared(reinterpret_cast<const float4*>(weights.acquire()));
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const uint32_t vector = first + (static_cast<uint32_t>(i) << log2);
      x[i] = part[i][0];
#pragma unroll
      for (int s = 1; s < kParts; ++s) x[i] = add4(x[i], part[i][s]);
      if (!exists[i]) continue;
      x[i] = add4(add4(x[i], constants[vector]), other[i].floats());
      if (sums != nullptr) store4(sums + (row * args.sum_row + vector * 4), x[i]);
    }
    const float factor = center_row<Veu>(shared, log2, args, exists, x);
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const uint32_t vector = first + (static_cast<uint32_t>(i) << log2);
      if (!exists[i]) continue;
      const float4 v = x[i], s = constants[vectors + vector], b = constants[2 * vectors + vector];
      store4(out + (row * args.out_row + vector * 4), scaled4(v, factor, s, b));
    }
    if (log2 > kWarpLog2 && args.centered == 0) sync_compute<Veu>();  // see center_row
  }
  weights.release();
}

}  // namespace rk
