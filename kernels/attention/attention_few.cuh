// attention.cuh's sum for few keys, of 16-bit values, as windows have them (Swin: 49). A warp has 16 queries of one head and all keys of
// that head, up to 64, in registers (attention_once.cuh says how they lie there), so no warp waits for another. Rows have at most 32
// elements. A unit is such a tile of queries; unit u is tile u % blocks of head u / blocks, and a rTask has args.heads units, one for each
// warp. Example: 48 heads of 49 queries, two units for each rTask. Unit 95 is tile 3 of head 23, which is query 48; warp 1 of rTask 47 has
// it. With kTable a head is one of one window, and the table of attention.cuh says which rows it has: a lane holds two entries of the
// window's, and warps pass them on by shuffles.
#pragma once

#include "kernels/attention/attention_once.cuh"

namespace rk {

// The rows of a window, lane and lane + 32 of them in each lane; behind the end the last one.
struct AttentionWindow {
  int32_t low, high;

  RK_INLINE void load(const int32_t* table, int32_t count) {
    low = load_row_number(table + min(lane_id(), count - 1));
    high = load_row_number(table + min(lane_id() + 32, count - 1));
  }
  // Row number first + i, where `first` is the same for the whole warp and first % 32 + i less than 32.
  RK_INLINE int32_t at(int first, int i) const { return __shfl_sync(kFullMask, first < 32 ? low : high, first % 32 + i); }
};

// What AttentionOnceRows::find does, for rows `queries` of Q (g and g + 8 of a tile) and a window's rows of K and V.
template <int kGroups, class In>
RK_INLINE void attention_few_find(const AttentionArgs& args, const AttentionWindow& window, const int32_t (&queries)[2], const In* from_q,
                                  const In* from_k, const In* from_v, int of_values, AttentionOnceRows<1, kGroups, In>& rows) {
  const int group = lane_id() / 4, member = lane_id() % 4;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    rows.q[0][r] = from_q + (static_cast<int64_t>(queries[r]) * args.q_m + member * 8);
#pragma unroll
    for (int g = 0; g < kGroups; ++g)
      rows.k[g][r] = from_k + (static_cast<int64_t>(window.at(g * 16 + r * 8, group)) * args.k_n + member * 8);
  }
#pragma unroll
  for (int g = 0; g < kGroups; ++g) {
#pragma unroll
    for (int i = 0; i < 4; ++i)
      rows.v[g][i] = from_v + (static_cast<int64_t>(window.at(g * 16 + i / 2 * 8, member * 2 + i % 2)) * args.v_n + group * of_values);
  }
}

// kKnownBias: what is added to the scores is a constant, and is loaded before the inputs are there. kTable: rows are those of a table.
template <class Veu, int kGroups, AttentionBias kBias, bool kKnownBias, bool kWhole, class In, class Out, class Bias = float,
          bool kTable = false>
RK_BODY void attention_few(const Task<Veu>& caller) {
  constexpr int kSize = kAttentionFewSize;
  static_assert(sizeof(In) == 2 && Veu::kComputeThreads == kAttentionWarps * kWarp);
  const Task<Veu> task = caller;  // in registers; the caller's copy is in memory
  const AttentionArgs& args = task.template arguments<AttentionArgs>();
  const int unit = static_cast<int>(task.index) * args.heads + warp_id();
  if (warp_id() >= args.heads || unit >= args.all_heads) return;
  uint32_t block;
  const uint32_t batch = divide(static_cast<uint32_t>(unit), args.blocks, block);
  const AttentionBatch at = attention_batch<kTable>(args, batch);
  const int32_t m0 = static_cast<int32_t>(block) * kAttentionRows;
  using Held = AttentionHeld<kSize, 1, kGroups, kWhole, In>;
  Held held;
  AttentionOnceAdded<1, kGroups, kBias> added;
  const In *const q = values_at<const In>(task, args.q) + at.q, *const k = values_at<const In>(task, args.k) + at.k,
                  *const v = values_at<const In>(task, args.v) + at.v;
  Out* const out = values_at<Out>(task, args.out) + at.out;
  AttentionOnceRows<1, kGroups, In> rows;
  int32_t queries[2];  // with kTable
  if constexpr (kTable) {
    AttentionWindow window;
    window.load(values_at<const int32_t>(task, args.table) + at.table, args.keys);
#pragma unroll
    for (int r = 0; r < 2; ++r) queries[r] = window.at(m0 + r * 8, lane_id() / 4);
    attention_few_find<kGroups>(args, window, queries, q, k, v, Held::kOfValues, rows);
  } else {
    rows.find(args, q, k, v, m0, 0, Held::kOfValues);
  }
  if constexpr (kBias != kNoBias && kKnownBias) added.load(args, values_at<const Bias>(task, args.bias) + at.bias, m0, 0);

  task.await_inputs();
  held.load(args, rows, 0);
  if constexpr (kBias != kNoBias && !kKnownBias) added.load(args, values_at<const Bias>(task, args.bias) + at.bias, m0, 0);
  const AttentionOnceSums<kSize> made = attention_once_sums<kSize, 1, kGroups, kBias, In>(args, held, rows, added, 0, 0);
  const int group = lane_id() / 4, member = lane_id() % 4;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int32_t m = m0 + r * 8 + group;
    const float inverse = attention_inverse(made.sum[r], args.weightless);
    const bool drops = attention_drops(made.sum[r], args.weightless);
    float y[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) y[i] = drops ? 0.0f : made.y[i % 4][r * 2 + i / 4] * inverse;
    if (m < args.queries && (kWhole || member * 8 < args.values))
      store8(out + (static_cast<int64_t>(kTable ? queries[r] : m) * args.out_m + member * 8), y);
  }
}

}  // namespace rk
