// attention.cuh's sum for few keys, of 16-bit values, as windows have them (Swin: 49). A warp has 16 queries of one head and all keys of
// that head, up to 64, in registers (attention_once.cuh says how they lie there), so no warp waits for another. Rows have at most 32
// elements. A unit is such a tile of queries; unit u is tile u % blocks of head u / blocks, and a rTask has args.heads units, one for each
// warp. Example: 48 heads of 49 queries, two units for each rTask. Unit 95 is tile 3 of head 23, which is query 48; warp 1 of rTask 47 has
// it.
#pragma once

#include "kernels/attention/attention_once.cuh"

namespace rk {

// kKnownBias: what is added to the scores is a constant, and is loaded before the inputs are there.
template <class Veu, int kGroups, AttentionBias kBias, bool kKnownBias, bool kWhole, class In, class Out, class Bias = float>
RK_BODY void attention_few(const Task<Veu>& caller) {
  constexpr int kSize = kAttentionFewSize;
  static_assert(sizeof(In) == 2 && Veu::kComputeThreads == kAttentionWarps * kWarp);
  const Task<Veu> task = caller;  // in registers; the caller's copy is in memory
  const AttentionArgs& args = task.template arguments<AttentionArgs>();
  const int unit = static_cast<int>(task.index) * args.heads + warp_id();
  if (warp_id() >= args.heads || unit >= args.all_heads) return;
  uint32_t block;
  const uint32_t batch = divide(static_cast<uint32_t>(unit), args.blocks, block);
  const AttentionBatch at = attention_batch(args, batch);
  const int32_t m0 = static_cast<int32_t>(block) * kAttentionRows;
  using Held = AttentionHeld<kSize, 1, kGroups, kWhole, In>;
  Held held;
  AttentionOnceAdded<1, kGroups, kBias> added;
  const In *const q = values_at<const In>(task, args.q) + at.q, *const k = values_at<const In>(task, args.k) + at.k,
                  *const v = values_at<const In>(task, args.v) + at.v;
  Out* const out = values_at<Out>(task, args.out) + at.out;
  AttentionOnceRows<1, kGroups, In> rows;
  rows.find(args, q, k, v, m0, 0, Held::kOfValues);
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
    if (m < args.queries && (kWhole || member * 8 < args.values)) store8(out + (static_cast<int64_t>(m) * args.out_m + member * 8), y);
  }
}

}  // namespace rk
