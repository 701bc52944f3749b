// The attention of quantised networks, whose Q, K and V hold whole numbers:
//   score[m,n]  = sums(products(scale * Q[m,:] * K[n,:]) * product_step + bias[m,n]) * sum_step
//   weight[m,n] = weights(softmax_n(score[m,n]) * weight_steps), or again(that * again_step)
//   Y[m,:]      = results(sum over keys n of weight[m,n] * V[n,:] * result_steps)
// where products, sums, weights and results round to whole numbers between bounds; all but weights may leave what they get as it is.
// AttentionRounding of compiler/ir/ops.h says the same. A weight is rounded behind the division by the sum of all of its query, so that
// what a query has of all keys must be known first. Three bodies:
//   attention_rounded       any strides, types and number of keys, as attention.cuh; the warps of a group go over their keys twice.
//   attention_rounded_rows  many queries: attention_rounded_rows.cuh.
//   attention_rounded_once  16-bit values of up to 512 keys, as attention_once.cuh, whose scores stay in registers in between.
// Products are exact: whole numbers of 8 bits are tf32, fp16 and bf16 numbers. Limits: no table. Q, K, V and Y may be bytes:
// attention_rounded_bytes.cuh.
#pragma once

#include "kernels/attention/attention_once.cuh"
#include "kernels/vdevice/epilogue.cuh"

namespace rk {

struct RoundedAttentionArgs {  // in tables
  AttentionArgs attention;
  float product_low, product_high, product_step, sum_low, sum_high, sum_step, weight_steps, weight_low, weight_high, result_steps,
      result_low, result_high;
  int32_t rounds;  // AttentionRounds
  // Of bytes: how those of Q, K and V become halves (attention_rounded_bytes.cuh), and the number that a byte of 0 of Y stands for.
  uint32_t flips[3]{}, bases[3]{};
  int32_t zeros[3]{};  // the signed bytes that stand for 0 (attention_rounded_rows_bytes.cuh)
  float out_low{};
  float again_step{}, again_low{}, again_high{};  // of rounded weights that are rounded once more (kRoundsWeightsAgain)
};

// Which of Q, K and V.
enum RoundedOperand : int { kRoundedQ, kRoundedK, kRoundedV };

// Rows of type In in memory. Word: the type in which they are multiplied.
template <class In>
struct RoundedRows {
  using Word = In;
  using Pointer = const In*;
  template <class Veu>
  RK_INLINE static Pointer at(const Task<Veu>& task, const RoundedAttentionArgs&, const TensorRef& ref, RoundedOperand) {
    return values_at<const In>(task, ref);
  }
};

// What bytes of Y are, which stand for whole numbers from `out_low` on.
template <class Out>
RK_INLINE float4 rounded_stored(const RoundedAttentionArgs& args, const float4& v) {
  if constexpr (sizeof(Out) > 1) return v;
  return {v.x - args.out_low, v.y - args.out_low, v.z - args.out_low, v.w - args.out_low};
}

// A score, of a product of a query and a key.
RK_INLINE float rounded_score(const RoundedAttentionArgs& args, float product, float bias) {
  float score = product * args.attention.scale;
  if ((args.rounds & kRoundsProducts) != 0) score = rounded(score, args.product_low, args.product_high);
  score = fmaf(score, args.product_step, bias);
  if ((args.rounds & kRoundsSums) != 0) score = rounded(score, args.sum_low, args.sum_high);
  return score * args.sum_step;
}

// `inverse`: weight_steps / the sum of all weights of the query before they are rounded.
RK_INLINE float rounded_weight(const RoundedAttentionArgs& args, float weight, float inverse) {
  const float w = rounded(weight * inverse, args.weight_low, args.weight_high);
  return (args.rounds & kRoundsWeightsAgain) != 0 ? rounded(w * args.again_step, args.again_low, args.again_high) : w;
}
RK_INLINE float rounded_result(const RoundedAttentionArgs& args, float sum) {
  const float y = sum * args.result_steps;
  return (args.rounds & kRoundsResults) != 0 ? rounded(y, args.result_low, args.result_high) : y;
}
RK_INLINE float4 rounded_result(const RoundedAttentionArgs& args, float4 sum) {
  return {rounded_result(args, sum.x), rounded_result(args, sum.y), rounded_result(args, sum.z), rounded_result(args, sum.w)};
}

// Of the scores of a query: the largest one, and the sum of all exp(score - largest).
struct AttentionPeak {
  float largest = -INFINITY, sum = 0.0f;

  // What is subtracted of scores: 0 where all are -infinity.
  RK_INLINE float base() const { return largest == -INFINITY ? 0.0f : largest; }
  RK_INLINE void add(const AttentionPeak& other) {
    const float most = fmaxf(largest, other.largest), from = most == -INFINITY ? 0.0f : most;
    sum = sum * exp_fast(largest - from) + other.sum * exp_fast(other.largest - from);
    largest = most;
  }
  // Of the four lanes that have a row.
  RK_INLINE void add_lanes() {
#pragma unroll
    for (int step = 1; step < 4; step *= 2) add({__shfl_xor_sync(kFullMask, largest, step), __shfl_xor_sync(kFullMask, sum, step)});
  }
};

// The peaks of rows g and g + 8 of a group of queries, whose `warps` warps from `first` on have parts of the keys. peaks: [row][warp].
template <class Veu>
RK_INLINE void share_peaks(AttentionPeak (&of)[2], float2* peaks, int first, int warps) {
  const int group = lane_id() / 4, member = lane_id() % 4;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    of[r].add_lanes();
    if (member == 0) peaks[(group + r * 8) * kAttentionWarps + warp_id()] = float2{of[r].largest, of[r].sum};
  }
  sync_compute<Veu>();
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    AttentionPeak all;
#pragma unroll 2
    for (int w = first; w < first + warps; ++w) {
      const float2 one = peaks[(group + r * 8) * kAttentionWarps + w];
      all.add({one.x, one.y});
    }
    of[r] = all;
  }
}

// --- any strides, types and number of keys -----------------------------------------------------------------------------

// The scores of kAttentionWarpKeys keys; element e as in AttentionSums.
template <int kSize, class In, class Bias, class Rows>
RK_INLINE void rounded_scores(const RoundedAttentionArgs& args, const AttentionHead<In, Bias, Rows>& head, int32_t first,
                              const AttentionQueries<In> (&q)[kSize / 16], const AttentionKeys<kSize, In>& keys, float (&score)[4]) {
  const int member = lane_id() % 4;
  score[0] = score[1] = score[2] = score[3] = 0.0f;
#pragma unroll
  for (int j = 0; j < kSize / 16; ++j) q[j].multiply(score, keys.k[j]);
#pragma unroll
  for (int e = 0; e < 4; ++e) score[e] = first + member * 2 + e % 2 < head.keys ? rounded_score(args, score[e], keys.added[e]) : -INFINITY;
}

// Adds the values of the keys, by their weights.
template <int kSize, class In>
RK_INLINE void add_rounded(const RoundedAttentionArgs& args, const AttentionPeak (&peak)[2], const float (&inverse)[2],
                           const float (&score)[4], const AttentionKeys<kSize, In>& keys, float (&y)[kSize / 32][4][4]) {
  float weight[4];
#pragma unroll
  for (int e = 0; e < 4; ++e) weight[e] = rounded_weight(args, exp_fast(score[e] - peak[e / 2].base()), inverse[e / 2]);
  const uint32_t weights[4] = {to_tf32(weight[0]), to_tf32(weight[2]), to_tf32(weight[1]), to_tf32(weight[3])};
#pragma unroll
  for (int c = 0; c < kSize / 32; ++c) {
    const AttentionOperands even = attention_operands<In>(keys.v[0][c]), odd = attention_operands<In>(keys.v[1][c]);
    const uint32_t of[4][2] = {{even.x, odd.x}, {even.y, odd.y}, {even.z, odd.z}, {even.w, odd.w}};
#pragma unroll
    for (int i = 0; i < 4; ++i) mma_tf32(y[c][i], weights, of[i]);
  }
}

// Puts columns [c0, c0 + attention_columns) of all warps' sums into shared memory, adds, rounds and stores them.
template <class Veu, int kSize, int kLie, class Out>
RK_INLINE void rounded_finish(const RoundedAttentionArgs& all, Out* out, float* parts, int32_t m0, int c0,
                              const float (&y)[kSize / 32][4][4]) {
  constexpr int kColumns = AttentionSums<kSize>::kColumns, kPitch = AttentionSums<kSize>::kPitch, kRows = kAttentionRows;
  const AttentionArgs& args = all.attention;
  const int warp = warp_id(), group = lane_id() / 4, member = lane_id() % 4;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int row = warp * kRows + group + r * 8;
#pragma unroll
    for (int c = 0; c < kSize / 32; ++c) {
      if (c * 32 < c0 || c * 32 >= c0 + kColumns) continue;
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        float4* const to = reinterpret_cast<float4*>(parts + row * kPitch + c * 32 - c0 + member * 8 + e * 4);
        *to = float4{y[c][0][r * 2 + e], y[c][1][r * 2 + e], y[c][2][r * 2 + e], y[c][3][r * 2 + e]};
      }
    }
  }
  sync_compute<Veu>();
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x); i < (kRows << args.groups_log2) * (kColumns / 4); i += Veu::kComputeThreads) {
    const int row = i / (kColumns / 4), column = i % (kColumns / 4) * 4, n = c0 + column;
    const int32_t m = m0 + row;
    const int warps = kAttentionWarps >> args.groups_log2,
              begin = row / kRows * warps * kRows + row % kRows;  // of the first of the row's warps
    if (m >= args.queries || n >= args.values) continue;
    float4 sum{0, 0, 0, 0};
#pragma unroll 2
    for (int w = 0; w < warps; ++w) sum = add4(sum, *reinterpret_cast<const float4*>(parts + (begin + w * kRows) * kPitch + column));
    sum = rounded_stored<Out>(all, rounded_result(all, sum));
    Out* const to = out + static_cast<int64_t>(m) * args.out_m;
    if constexpr (kLie != kElements) {
      store4(to + n, sum);
    } else {
      const float each[4] = {sum.x, sum.y, sum.z, sum.w};
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        if (n + e < args.values) store1(to + static_cast<int64_t>(n + e) * args.out_n, each[e]);
      }
    }
  }
  if (c0 + kColumns < kSize) sync_compute<Veu>();  // all have read these columns before the next overwrite them
}

// kSize: a multiple of 32, at least as large as `size` and `values`. kLie: one of AttentionRows.
template <class Veu, int kSize, int kLie, class In = float, class Out = float, class Bias = float>
RK_BODY void attention_rounded(const Task<Veu>& caller) {
  static_assert(kSize % 32 == 0 && kSize <= kAttentionLargestSize && Veu::kComputeThreads == kAttentionWarps * kWarp);
  const Task<Veu> task = caller;  // in registers; the caller's copy is in memory
  const RoundedAttentionArgs& all = task.template arguments<RoundedAttentionArgs>();
  const AttentionArgs& args = all.attention;
  uint32_t block;
  const uint32_t batch = divide(task.index, args.blocks, block);
  const AttentionBatch at = attention_batch(args, batch);
  const int warps = kAttentionWarps >> args.groups_log2, warp = warp_id(), of_group = warp / warps;  // warps of a group of queries
  const int32_t block0 = static_cast<int32_t>(block) * (kAttentionRows << args.groups_log2), m0 = block0 + of_group * kAttentionRows;
  using Word = typename RoundedRows<In>::Word;
  using Rows = typename RoundedRows<In>::Pointer;
  AttentionHead<Word, Bias, Rows> head{RoundedRows<In>::at(task, all, args.k, kRoundedK) + at.k,
                                       RoundedRows<In>::at(task, all, args.v, kRoundedV) + at.v,
                                       values_at<const Bias>(task, args.bias),
                                       m0,
                                       args.queries,
                                       args.keys,
                                       args.size,
                                       args.values,
                                       args.k_n,
                                       args.k_k,
                                       args.v_n,
                                       args.v_columns,
                                       args.bias_m,
                                       args.bias_n,
                                       args.scale,
                                       nullptr};
  if (head.bias != nullptr) head.bias += at.bias;

  task.await_inputs();
  AttentionQueries<Word> q[kSize / 16];
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const Rows row = RoundedRows<In>::at(task, all, args.q, kRoundedQ) + at.q +
                     static_cast<int64_t>(min(m0 + lane_id() / 4 + r * 8, head.queries - 1)) * args.q_m;
#pragma unroll
    for (int j = 0; j < kSize / 16; ++j) q[j].set(r, attention_load<kLie>(row, args.q_k, j * 16 + lane_id() % 4 * 4, head.size));
  }
  AttentionPeak peak[2];
  const int32_t begin = warp % warps * kAttentionWarpKeys, step = warps * kAttentionWarpKeys;
#pragma unroll 1
  for (int32_t first = begin; first < head.keys; first += step) {
    AttentionKeys<kSize, Word> keys;
    load_keys<kSize, kLie, false>(head, first, {}, keys);
    float score[4];
    rounded_scores<kSize>(all, head, first, q, keys, score);
#pragma unroll
    for (int e = 0; e < 4; ++e) peak[e / 2].add({score[e], 1.0f});
  }
  float* const shared = task.template work_as<float>();
  float* const parts = shared + 2 * kAttentionWarps * kAttentionRows;  // [warp][row][pitch], behind the peaks
  share_peaks<Veu>(peak, reinterpret_cast<float2*>(shared), of_group * warps, warps);

  const float inverse[2] = {all.weight_steps / peak[0].sum, all.weight_steps / peak[1].sum};
  float y[kSize / 32][4][4];
#pragma unroll
  for (int c = 0; c < kSize / 32; ++c) {
#pragma unroll
    for (int i = 0; i < 4; ++i) y[c][i][0] = y[c][i][1] = y[c][i][2] = y[c][i][3] = 0.0f;
  }
#pragma unroll 1
  for (int32_t first = begin; first < head.keys; first += step) {
    AttentionKeys<kSize, Word> keys;
    load_keys<kSize, kLie, false>(head, first, {}, keys);
    float score[4];
    rounded_scores<kSize>(all, head, first, q, keys, score);
    add_rounded<kSize>(all, peak, inverse, score, keys, y);
  }
  Out* const out = values_at<Out>(task, args.out) + at.out;
#pragma unroll
  for (int c0 = 0; c0 < kSize; c0 += AttentionSums<kSize>::kColumns) rounded_finish<Veu, kSize, kLie>(all, out, parts, block0, c0, y);
}

// --- all keys at once --------------------------------------------------------------------------------------------------

// The rows of V of a warp's keys, and those of K, as AttentionHeld has them.
template <bool kWhole, int kSize, int kTiles, int kGroups, class In, class Rows>
RK_INLINE void load_once_keys(AttentionHeld<kSize, kTiles, kGroups, kWhole, In>& held, const AttentionArgs& args, Rows k, int32_t first) {
  const int group = lane_id() / 4, member = lane_id() % 4;
#pragma unroll
  for (int g = 0; g < kGroups; ++g) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int32_t n = min(first + g * 16 + r * 8 + group, args.keys - 1);
      held.load_row(held.k[g][r], k + (static_cast<int64_t>(n) * args.k_n + member * 8), args.size);
    }
  }
}
template <bool kWhole, int kSize, int kTiles, int kGroups, class In, class Rows>
RK_INLINE void load_once_values(AttentionHeld<kSize, kTiles, kGroups, kWhole, In>& held, const AttentionArgs& args, Rows v, int32_t first) {
  constexpr int kOfValues = kSize / 8;
  const int group = lane_id() / 4, member = lane_id() % 4;
#pragma unroll
  for (int g = 0; g < kGroups; ++g) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int32_t n = first + g * 16 + i / 2 * 8 + member * 2 + i % 2;
      const Rows row = v + (static_cast<int64_t>(min(n, args.keys - 1)) * args.v_n + group * kOfValues);
      const bool exists = n < args.keys && (kWhole || group * kOfValues < args.values);
      uint32_t(&to)[kOfValues / 2] = held.v[g][i];
#pragma unroll
      for (int w = 0; w < kOfValues / 2; ++w) to[w] = 0;
      if constexpr (kOfValues == 8) {
        if (exists) {
          const uint4 cell = load_pairs4(row);
          to[0] = cell.x, to[1] = cell.y, to[2] = cell.z, to[3] = cell.w;
        }
      } else if (exists) {
        const uint2 half = load_pairs2(row);
        to[0] = half.x, to[1] = half.y;
      }
    }
  }
}

// One tile's scores, for row g + e / 2 * 8 and key 2t + e % 2 of eight.
template <int kSize, int kTiles, int kGroups, AttentionBias kBias, class In, class Held>
RK_INLINE void once_scores(const RoundedAttentionArgs& args, const Held& held, const AttentionOnceAdded<kTiles, kGroups, kBias>& added,
                           int tile, int32_t first, float (&score)[kGroups][2][4]) {
  const int member = lane_id() % 4;
#pragma unroll
  for (int g = 0; g < kGroups; ++g) {
#pragma unroll
    for (int r = 0; r < 2; ++r) score[g][r][0] = score[g][r][1] = score[g][r][2] = score[g][r][3] = 0.0f;
  }
#pragma unroll
  for (int step = 0; step < kSize / 16; ++step) {
    const uint32_t a[4] = {Held::word(held.q[0], step, 0), Held::word(held.q[1], step, 0), Held::word(held.q[0], step, 1),
                           Held::word(held.q[1], step, 1)};
#pragma unroll
    for (int g = 0; g < kGroups; ++g) {
#pragma unroll
      for (int r = 0; r < 2; ++r) multiply_words<In>(score[g][r], a, Held::word(held.k[g][r], step, 0), Held::word(held.k[g][r], step, 1));
    }
  }
#pragma unroll
  for (int g = 0; g < kGroups; ++g) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        float bias = 0.0f;
        if constexpr (kBias != kNoBias) bias = added.of[kBias == kBiasOfKeys ? 0 : tile][g][r][kBias == kBiasOfKeys ? e % 2 : e];
        const bool exists = first + g * 16 + r * 8 + member * 2 + e % 2 < args.attention.keys;
        score[g][r][e] = exists ? rounded_score(args, score[g][r][e], bias) : -INFINITY;
      }
    }
  }
}

// Of rows g and g + 8, the lane's own keys.
template <int kGroups>
RK_INLINE void peaks_of(const float (&score)[kGroups][2][4], AttentionPeak (&peak)[2]) {
#pragma unroll
  for (int row = 0; row < 2; ++row) {
    AttentionPeak& p = peak[row];
#pragma unroll
    for (int i = 0; i < kGroups * 4; ++i) p.largest = fmaxf(p.largest, score[i / 4][i / 2 % 2][row * 2 + i % 2]);
#pragma unroll
    for (int i = 0; i < kGroups * 4; ++i) p.sum += exp_fast(score[i / 4][i / 2 % 2][row * 2 + i % 2] - p.base());
  }
}

// A warp's share of a tile's results into shared memory: weights of the scores, times values.
template <int kSize, int kGroups, class In, class Held>
RK_INLINE void once_shares(const RoundedAttentionArgs& args, const Held& held, const AttentionPeak (&peak)[2],
                           const float (&score)[kGroups][2][4], float* parts) {
  constexpr int kPitch = kOncePitch<kSize>;
  const int warp = warp_id(), group = lane_id() / 4, member = lane_id() % 4;
  const float inverse[2] = {args.weight_steps / peak[0].sum, args.weight_steps / peak[1].sum};
  float y[kSize / 8][4];
#pragma unroll
  for (int i = 0; i < kSize / 8; ++i) y[i][0] = y[i][1] = y[i][2] = y[i][3] = 0.0f;
#pragma unroll
  for (int g = 0; g < kGroups; ++g) {
    uint32_t a[4];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float weight[4];
#pragma unroll
      for (int e = 0; e < 4; ++e) weight[e] = rounded_weight(args, exp_fast(score[g][r][e] - peak[e / 2].base()), inverse[e / 2]);
      a[r * 2] = pair_of<In>(weight[0], weight[1]);
      a[r * 2 + 1] = pair_of<In>(weight[2], weight[3]);
    }
#pragma unroll
    for (int i = 0; i < kSize / 8; ++i) {
      multiply_words<In>(y[i], a, halves_of_words(held.v[g][0][i / 2], held.v[g][1][i / 2], i % 2 != 0),
                         halves_of_words(held.v[g][2][i / 2], held.v[g][3][i / 2], i % 2 != 0));
    }
  }
#pragma unroll
  for (int r = 0; r < 2; ++r) {
#pragma unroll
    for (int four = 0; four < kSize / 16; ++four) {  // as attention_once_tile stores them
      const int e = r * 2 + four / (kSize / 32), i = four % (kSize / 32) * 4, row = group + r * 8;
      store_shared4(parts, ((warp * kAttentionRows + row) * kPitch + attention_once_four<kSize>(member * (kSize / 16) + four) * 4) * 4,
                    float4{y[i][e], y[i + 1][e], y[i + 2][e], y[i + 3][e]});
    }
  }
}

// Adds up the warps' shares of a tile's rows, rounds and stores four elements a thread.
template <int kSize, class Out>
RK_INLINE void once_results(const RoundedAttentionArgs& args, Out* out, int32_t m0, const float* parts) {
  constexpr int kPitch = kOncePitch<kSize>, kFours = kSize / 4;
  const auto thread = static_cast<int>(threadIdx.x);
  const int row = thread / kFours, four = thread % kFours;
  const int32_t m = m0 + row;
  if (row >= kAttentionRows || m >= args.attention.queries || four * 4 >= args.attention.values) return;
  float4 sum{0, 0, 0, 0};
#pragma unroll
  for (int w = 0; w < kAttentionWarps; ++w)
    sum = add4(sum, load_shared4(parts, ((w * kAttentionRows + row) * kPitch + attention_once_four<kSize>(four) * 4) * 4));
  store4(out + static_cast<int64_t>(m) * args.attention.out_m + four * 4, rounded_stored<Out>(args, rounded_result(args, sum)));
}

// kSize: 32 or 64, at least as large as `size` and `values`, which are whole cells; kWhole: they are kSize. kBias: kBiasOfKeys asks for
// bias_m 0. With more than two groups of keys for each warp, registers have room for V only behind the scores.
template <class Veu, int kSize, int kTiles, int kGroups, AttentionBias kBias, bool kWhole, class In, class Out, class Bias = float>
RK_BODY void attention_rounded_once(const Task<Veu>& caller) {
  using Word = typename RoundedRows<In>::Word;
  static_assert((kSize == 32 || kSize == 64) && sizeof(Word) == 2 && Veu::kComputeThreads == kAttentionWarps * kWarp);
  static_assert(kTiles == 1 || kGroups <= 2);
  const Task<Veu> task = caller;  // in registers; the caller's copy is in memory
  const RoundedAttentionArgs& all = task.template arguments<RoundedAttentionArgs>();
  const AttentionArgs& args = all.attention;
  uint32_t block;
  const uint32_t batch = divide(task.index, args.blocks, block);
  const AttentionBatch at = attention_batch(args, batch);
  const int32_t m0 = static_cast<int32_t>(block) * (kTiles * kAttentionRows), first = warp_id() * kGroups * 16;
  AttentionHeld<kSize, kTiles, kGroups, kWhole, Word> held;
  AttentionOnceAdded<kTiles, kGroups, kBias> added;
  const auto q = RoundedRows<In>::at(task, all, args.q, kRoundedQ) + at.q, k = RoundedRows<In>::at(task, all, args.k, kRoundedK) + at.k,
             v = RoundedRows<In>::at(task, all, args.v, kRoundedV) + at.v;
  Out* const out = values_at<Out>(task, args.out) + at.out;
  const auto load_queries = [&](int tile) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int32_t m = min(m0 + tile * kAttentionRows + r * 8 + lane_id() / 4, args.queries - 1);
      held.load_row(held.q[r], q + (static_cast<int64_t>(m) * args.q_m + lane_id() % 4 * 8), args.size);
    }
  };

  task.await_inputs();
  load_once_keys<kWhole>(held, args, k, first);
  load_queries(0);
  if constexpr (kGroups <= 2) load_once_values<kWhole>(held, args, v, first);
  if constexpr (kBias != kNoBias) added.load(args, values_at<const Bias>(task, args.bias) + at.bias, m0, first);

  float* const parts = task.template work_as<float>();
  float2* const peaks = reinterpret_cast<float2*>(parts + kAttentionWarps * kAttentionRows * kOncePitch<kSize>);
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
    float score[kGroups][2][4];
    once_scores<kSize, kTiles, kGroups, kBias, Word>(all, held, added, tile, first, score);
    if (tile + 1 < kTiles) load_queries(tile + 1);
    if constexpr (kGroups > 2) load_once_values<kWhole>(held, args, v, first);
    AttentionPeak peak[2];
    peaks_of<kGroups>(score, peak);
    share_peaks<Veu>(peak, peaks, 0, kAttentionWarps);  // behind which all have read the last tile's shares, too
    once_shares<kSize, kGroups, Word>(all, held, peak, score, parts);
    sync_compute<Veu>();
    once_results<kSize>(all, out, m0 + tile * kAttentionRows, parts);
  }
}

}  // namespace rk
