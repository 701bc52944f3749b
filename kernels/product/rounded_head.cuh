// The end of a quantised network (kernels/product/rounded_head.h): the product of gemv_of_sums.cuh with means that are rounded, and what
// follows the rounding of its results:
//   x[m][k] = rounded(scale * (sum over parts of in[m][part][k]) / count)
//   v[m][n] = bias[n] + sum over k of x[m][k] * weight[k][n]
//   out[m][n] = act(v)                      kHeadPlain: no activation, or relu
//             = factor * rounded(v; a, b)   kHeadFactor
//             = table[rounded(v; a, b) - a] kHeadTable
// Sums are of whole numbers, so they are exact; the quotient is the one that a division rounds to. ROWS, COLUMNS, NARROW and Out are
// gemv.cuh's, and so is the order of all sums.
//
// Example: channels of 7 x 7 pixels, a sum of -1225, scale 0.5: the mean is -25, half of it -12.5, and x -12, the even one.
#pragma once

#include "kernels/product/gemv_of_sums.cuh"

namespace rk {

struct RoundedHeadArgs {  // in tables
  GemvArgs gemv;          // in: the sums; piece_k: k with zeros up to whole chunks
  int32_t parts, part_stride;
  float count, reciprocal;  // pixels of a channel
  float scale, low, high;   // of the means
  float factor;
  TensorRef table;
};

template <int END, class Out, int COUNT>
RK_INLINE void head_store(const RoundedHeadArgs& args, const float* table, const GemvOutput<Out>& own, float (&sum)[COUNT]) {
  float v = gemv_result(own, sum);
  if (own.out == nullptr) return;
  if constexpr (END == kHeadPlain) {
    v = gemv_finish<true>(args.gemv, own, v);
  } else {
    const float low = args.gemv.epilogue.a;
    v = rounded(v, low, args.gemv.epilogue.b);
    v = END == kHeadFactor ? v * args.factor : load_weight1(table + static_cast<int>(v - low));
  }
  store1(own.out, v);
}

template <class Veu, int ROWS, int COLUMNS, bool NARROW, int END, class Out = float>
RK_BODY void rounded_head(const Task<Veu>& caller) {
  static_assert(ROWS * COLUMNS <= kWarp && ROWS <= 8);
  const Task<Veu> task = caller;  // in registers; the caller's copy is in memory
  const RoundedHeadArgs& all = task.template arguments<RoundedHeadArgs>();
  const GemvArgs& args = all.gemv;
  float* const means = task.template work_as<float>();
  const int chunk_k = args.chunk_k, piece_k = args.piece_k, column_bytes = args.column_bytes;
  const float* table = nullptr;
  if constexpr (END == kHeadTable) table = task.address(all.table);
  task.await_inputs();
  gemv_pool<Veu, ROWS>(all, task.address(args.in), means, [&](const float4& sum) {
    const auto mean = [&](float v) { return rounded(quotient(v, all.count, all.reciprocal) * all.scale, all.low, all.high); };
    return float4{mean(sum.x), mean(sum.y), mean(sum.z), mean(sum.w)};
  });
  const GemvOutput<Out> own = gemv_output<Out, ROWS, COLUMNS, /*PLAIN=*/true>(task, args, static_cast<int>(task.index));
  sync_compute<Veu>();

  WeightPipe<Veu> weights = task.weights;
  float sum[ROWS * COLUMNS] = {};
  const float* x = means + lane_id() * kGemvLaneK;
#pragma unroll 1
  for (int left = args.chunks; left > 0; --left, x += chunk_k) {
    const char* const stage = as_shared(weights.acquire());
    gemv_chunk<ROWS, COLUMNS, NARROW>(x, stage + warp_id() * COLUMNS * column_bytes + lane_id() * 16, column_bytes, piece_k, sum);
    weights.release();
  }

  head_store<END>(all, table, own, sum);
}

}  // namespace rk
