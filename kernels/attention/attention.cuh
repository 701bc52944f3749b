// Y[b,m,:] = sum over keys n of softmax_n(scale * Q[b,m,:] * K[b,n,:] + bias[b,m,n]) * V[b,n,:]. Products are in tf32; where Q and K have
// 16 bits, Q * K is in that type. The rest is fp32. General strides. A batch here is one head. A rTask has one or several groups of
// kAttentionRows queries of one batch. The warps of a group share the keys, 8 at a time: a warp keeps the largest score and the sums of
// its own keys (the online form of softmax), and at the end the sums of a group's warps are put together in shared memory. Example: with
// two groups warps 0 to 3 have queries 0 to 15 of the rTask and warps 4 to 7 queries 16 to 31; warp 6 has keys 16 to 23, 48 to 55, ..
//
// Operands of the products go from memory into registers and nowhere else. In which order a dot product is added up does not matter, so
// lanes take elements that lie side by side. Below, g = lane / 4 is a lane's row and t = lane % 4 its place among the four lanes of that
// row.
//   Q * K: of 16 neighbours of a row of Q or K lane t takes elements 4t to 4t+3, as k = t and t+4 of two products of 8 each.
//          Example: in the first product k = 1 and k = 5 are elements 4 and 5, in the second elements 6 and 7, for Q and K alike.
//          Where Q and K have 16 bits, the same four elements are k = 2t, 2t+1, 2t+8 and 2t+9 of one product of 16, two to a word.
//   P * V (P: exp of the scores): Q * K leaves the scores of keys 2t and 2t+1 in lane t. Key 2t is k = t of the product with V and key
//          2t+1 is k = t+4, so lane t reads rows 2t and 2t+1 of V. Column 4g+i of 32 columns is column g of product i of four,
//          so that a lane loads four neighbours of V, and the results of the four products are four neighbours of Y.
//          Example: lane 13 (g = 3, t = 1) reads columns 12 to 15 of V's rows 2 and 3, and has columns 8 to 15 of Y's rows 3 and 11.
//
// With kTable a batch is one head of one window, whose queries and keys are rows of Q, K, V and Y by a table: number i of them, which has
// row and column i of the window's bias, is row table[i]. The table is a constant, so that where the first rows lie is known before the
// inputs are there. Example: two windows of four pixels of a map of 2 x 4; key 2 of window 1 is row table[1 * 4 + 2] = 6.
//
// What is added to a score may be as large as a float (a mask by the least number), and a query whose keys are all masked so has weights
// that are all the same. Times log2(e), which exp2 needs, it would be -infinity; so only differences of scores are multiplied by log2(e).
// Where that takes another multiplication for each score (AttentionScores), scores are times log2(e), and what is added stays finite.
//
// Limits: Q, K and V have one type In, Y has type Out, the bias type Bias; each is fp32 or has 16 bits.
#pragma once

#include "kernels/attention/numbers.cuh"
#include "kernels/attention/rows.cuh"
#include "kernels/vdevice/fast_math.cuh"
#include "kernels/vdevice/mma.cuh"
#include "kernels/vdevice/task.cuh"
#include "kernels/vdevice/values.cuh"

namespace rk {

struct AttentionArgs {           // in tables
  TensorRef out, q, k, v, bias;  // bias may be null
  int32_t out_batch[kAttentionBatchRank], q_batch[kAttentionBatchRank], k_batch[kAttentionBatchRank], v_batch[kAttentionBatchRank],
      bias_batch[kAttentionBatchRank];
  Divisor batch_divisors[kAttentionBatchRank - 1];
  int32_t batch_rank;
  int32_t heads, all_heads;             // of a rTask, and of all; attention: 1 of a rTask; attention_few: units instead of heads
  int32_t queries, keys, size, values;  // extents
  int32_t out_m, out_n, q_m, q_k, k_n, k_k, v_n, v_columns, bias_m, bias_n;  // strides
  Divisor blocks;                                                            // of queries
  uint32_t groups_log2;                                                      // of queries
  float scale;
  int32_t weightless;  // AttentionWeightless
  TensorRef table{};   // with kTable: int32, the rows of each window
  int32_t table_batch[kAttentionBatchRank]{};
};

// Four neighbours as operands of tf32 products; numbers of 16 bits are tf32 numbers.
struct AttentionOperands {
  uint32_t x, y, z, w;
};
template <class In>
RK_INLINE AttentionOperands attention_operands(const AttentionFour<In>& four) {
  if constexpr (sizeof(In) == 2) {
    const float2 low = floats_of<In>(four.x), high = floats_of<In>(four.y);
    return {bits_of(low.x), bits_of(low.y), bits_of(high.x), bits_of(high.y)};
  } else {
    return {to_tf32(four.x), to_tf32(four.y), to_tf32(four.z), to_tf32(four.w)};
  }
}

// One product of operands of type In: of 8 k in fp32, as tf32, and of 16 k in 16 bits.
template <class In>
RK_INLINE void multiply_words(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  const uint32_t b[2] = {b0, b1};
  if constexpr (std::is_same_v<In, float>)
    mma_tf32(d, a, b);
  else if constexpr (std::is_same_v<In, Half>)
    mma_f16(d, a, b);
  else
    mma_bf16(d, a, b);
}

// 16 elements of rows g and g + 8 of Q, as operands of the products with the same 16 elements of K.
template <class In>
struct AttentionQueries {
  uint32_t of[sizeof(In) == 2 ? 1 : 2][4];

  RK_INLINE void set(int r, const AttentionFour<In>& four) {
    if constexpr (sizeof(In) == 2) {
      of[0][r] = four.x;
      of[0][r + 2] = four.y;
    } else {
      const AttentionOperands x = attention_operands<In>(four);
      of[0][r] = x.x;
      of[0][r + 2] = x.y;
      of[1][r] = x.z;
      of[1][r + 2] = x.w;
    }
  }
  RK_INLINE void multiply(float (&score)[4], const AttentionFour<In>& four) const {
    if constexpr (sizeof(In) == 2) {
      const uint32_t pairs[2] = {four.x, four.y};
      if constexpr (std::is_same_v<In, Half>)
        mma_f16(score, of[0], pairs);
      else
        mma_bf16(score, of[0], pairs);
    } else {
      const AttentionOperands x = attention_operands<In>(four);
      const uint32_t even[2] = {x.x, x.y}, odd[2] = {x.z, x.w};
      mma_tf32(score, of[0], even);
      mma_tf32(score, of[1], odd);
    }
  }
};

// Scores of attention_once and attention_rows: times log2(e) unless each has a number of its own that is added.
template <AttentionBias kBias>
struct AttentionScores {
  static constexpr bool kToBase2 = kBias != kBiasOfScores;

  RK_INLINE static float scale(const AttentionArgs& args) { return kToBase2 ? args.scale * kLog2E : args.scale; }
  RK_INLINE static float added(float bias) { return kToBase2 ? finite_times_log2e(bias) : bias; }
  // Of a difference of scores.
  RK_INLINE static float weight(float difference) { return kToBase2 ? exp2_fast(difference) : exp_fast(difference); }
};

// Offsets of one batch.
struct AttentionBatch {
  int64_t out = 0, q = 0, k = 0, v = 0, bias = 0;
  int32_t table = 0;
};
template <bool kTable = false>
RK_INLINE AttentionBatch attention_batch(const AttentionArgs& args, uint32_t batch) {
  AttentionBatch at;
#pragma unroll 1
  for (int d = args.batch_rank - 1; d >= 0; --d) {
    uint32_t i = batch;
    if (d > 0) batch = divide(batch, args.batch_divisors[d - 1], i);
    at.out += static_cast<int64_t>(i) * args.out_batch[d];
    at.q += static_cast<int64_t>(i) * args.q_batch[d];
    at.k += static_cast<int64_t>(i) * args.k_batch[d];
    at.v += static_cast<int64_t>(i) * args.v_batch[d];
    at.bias += static_cast<int64_t>(i) * args.bias_batch[d];
    if constexpr (kTable) at.table += static_cast<int32_t>(i) * args.table_batch[d];
  }
  return at;
}

// What a lane has of its warp's keys, for rows g = lane / 4 and g + 8: the largest score, the lane's part of the sum of all exp(score -
// largest), and the sum of exp(score - largest) * V, not yet divided. Element e of product i of the 32 columns from 32c on is row g + e /
// 2 * 8, column 32c + 4 * (2 * (lane % 4) + e % 2) + i. Example: for lane 13 y[0][2][3] is row 11, column 4 * (2 + 1) + 2 = 14.
template <int kSize>
struct AttentionSums {
  static constexpr int kColumns = attention_columns(kSize), kPitch = attention_pitch(kSize);
  float largest[2], sum[2], y[kSize / 32][4][4];
};

// One head's operands, and those arguments that the loops need: read once. Rows: what points at rows of type In.
template <class In, class Bias, class Rows = const In*>
struct AttentionHead {
  Rows k, v;
  const Bias* bias;
  int32_t m0, queries, keys, size, values;
  int32_t k_n, k_k, v_n, v_columns, bias_m, bias_n;
  float scale;
  const int32_t* table;  // with kTable: of the window
};

// The rows that a lane loads of kAttentionWarpKeys keys, with kTable.
struct AttentionKeyRows {
  int32_t k, v[2];

  template <class In, class Bias>
  RK_INLINE void find(const AttentionHead<In, Bias>& head, int32_t first) {
    const int group = lane_id() / 4, member = lane_id() % 4;
    k = load_row_number(head.table + min(first + group, head.keys - 1));
#pragma unroll
    for (int e = 0; e < 2; ++e) v[e] = load_row_number(head.table + min(first + member * 2 + e, head.keys - 1));
  }
};

// What a lane loads of kAttentionWarpKeys keys: parts of rows of K and V, and what is added to the scores of element e (as in
// AttentionSums).
template <int kSize, class In>
struct AttentionKeys {
  AttentionFour<In> k[kSize / 16], v[2][kSize / 32];
  float added[4];
};

// Loads keys from `first` on, with kTable from the rows `rows`. Where it cannot be seen in the results, rows behind the end are read as the
// last row: such keys get the score -inf, such queries are not stored.
template <int kSize, int kLie, bool kTable, class In, class Bias, class Rows>
RK_INLINE void load_keys(const AttentionHead<In, Bias, Rows>& head, int32_t first, const AttentionKeyRows& rows,
                         AttentionKeys<kSize, In>& to) {
  const int group = lane_id() / 4, member = lane_id() % 4;
  const Rows key = head.k + static_cast<int64_t>(kTable ? rows.k : min(first + group, head.keys - 1)) * head.k_n;
#pragma unroll
  for (int j = 0; j < kSize / 16; ++j) to.k[j] = attention_load<kLie>(key, head.k_k, j * 16 + member * 4, head.size);
#pragma unroll
  for (int e = 0; e < 4; ++e) to.added[e] = 0.0f;
  if (head.bias != nullptr) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const int32_t m = min(head.m0 + group + e / 2 * 8, head.queries - 1), n = min(first + member * 2 + e % 2, head.keys - 1);
      to.added[e] = load1(head.bias + static_cast<int64_t>(m) * head.bias_m + static_cast<int64_t>(n) * head.bias_n);
    }
  }
#pragma unroll
  for (int e = 0; e < 2; ++e) {
    const int32_t n = first + member * 2 + e;
    const Rows row = head.v + static_cast<int64_t>(kTable ? rows.v[e] : n) * head.v_n;
#pragma unroll
    for (int c = 0; c < kSize / 32; ++c) {
      to.v[e][c] = AttentionFour<In>{};  // zeros, since a weight of 0 times an infinity would be NaN
      if (n < head.keys) to.v[e][c] = attention_load<kLie>(row, head.v_columns, c * 32 + group * 4, head.values);
    }
  }
}

template <int kSize, class In, class Bias>
RK_INLINE void add_keys(const AttentionHead<In, Bias>& head, int32_t first, const AttentionQueries<In> (&q)[kSize / 16],
                        const AttentionKeys<kSize, In>& keys, AttentionSums<kSize>& sums) {
  const int member = lane_id() % 4;
  float score[4] = {0, 0, 0, 0};
#pragma unroll
  for (int j = 0; j < kSize / 16; ++j) q[j].multiply(score, keys.k[j]);
#pragma unroll
  for (int e = 0; e < 4; ++e) score[e] = first + member * 2 + e % 2 < head.keys ? fmaf(score[e], head.scale, keys.added[e]) : -INFINITY;

#pragma unroll
  for (int r = 0; r < 2; ++r) {
    float largest = fmaxf(sums.largest[r], fmaxf(score[r * 2], score[r * 2 + 1]));
#pragma unroll
    for (int step = 1; step < 4; step *= 2) largest = fmaxf(largest, __shfl_xor_sync(kFullMask, largest, step));
    const float base = largest == -INFINITY ? 0.0f : largest;  // all masked so far: base 0 makes exp(-inf) = 0; base -inf would make NaN
    const float factor = exp_fast(sums.largest[r] - base);
    sums.largest[r] = largest;
    score[r * 2] = exp_fast(score[r * 2] - base);
    score[r * 2 + 1] = exp_fast(score[r * 2 + 1] - base);
    sums.sum[r] = sums.sum[r] * factor + (score[r * 2] + score[r * 2 + 1]);
#pragma unroll
    for (int c = 0; c < kSize / 32; ++c) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        sums.y[c][i][r * 2] *= factor;
        sums.y[c][i][r * 2 + 1] *= factor;
      }
    }
  }

  const uint32_t weights[4] = {to_tf32(score[0]), to_tf32(score[2]), to_tf32(score[1]), to_tf32(score[3])};
#pragma unroll
  for (int c = 0; c < kSize / 32; ++c) {
    const AttentionOperands even = attention_operands<In>(keys.v[0][c]), odd = attention_operands<In>(keys.v[1][c]);
    const uint32_t x[2] = {even.x, odd.x}, y[2] = {even.y, odd.y}, z[2] = {even.z, odd.z}, w[2] = {even.w, odd.w};
    mma_tf32(sums.y[c][0], weights, x);
    mma_tf32(sums.y[c][1], weights, y);
    mma_tf32(sums.y[c][2], weights, z);
    mma_tf32(sums.y[c][3], weights, w);
  }
}

// Puts columns [c0, c0 + attention_columns) of all warps' sums into shared memory, adds and stores them. `table`: with kTable.
template <class Veu, int kSize, int kLie, bool kTable, class Out>
RK_INLINE void attention_finish(const AttentionArgs& args, Out* out, const int32_t* table, float* shared, int32_t m0, int c0,
                                const AttentionSums<kSize>& sums) {
  constexpr int kColumns = AttentionSums<kSize>::kColumns, kPitch = AttentionSums<kSize>::kPitch, kRows = kAttentionRows;
  float* const largest = shared;  // [warp][row], as are the next two
  float* const sum = largest + kAttentionWarps * kRows;
  float* const parts = sum + kAttentionWarps * kRows;  // [warp][row][kPitch]
  const int warp = warp_id(), group = lane_id() / 4, member = lane_id() % 4;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int row = warp * kRows + group + r * 8;
    if (member == 0) {
      largest[row] = sums.largest[r];
      sum[row] = sums.sum[r];
    }
#pragma unroll
    for (int c = 0; c < kSize / 32; ++c) {
      if (c * 32 < c0 || c * 32 >= c0 + kColumns) continue;
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const float(&y)[4][4] = sums.y[c];
        float4* const to = reinterpret_cast<float4*>(parts + row * kPitch + c * 32 - c0 + member * 8 + e * 4);
        *to = float4{y[0][r * 2 + e], y[1][r * 2 + e], y[2][r * 2 + e], y[3][r * 2 + e]};
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
    float most = -INFINITY, total = 0.0f;
#pragma unroll 1
    for (int w = 0; w < warps; ++w) most = fmaxf(most, largest[begin + w * kRows]);
    const float base = most == -INFINITY ? 0.0f : most;
    float4 y{0, 0, 0, 0};
#pragma unroll 2
    for (int w = 0; w < warps; ++w) {
      const float factor = exp_fast(largest[begin + w * kRows] - base);
      const float4 part = *reinterpret_cast<const float4*>(parts + (begin + w * kRows) * kPitch + column);
      total += factor * sum[begin + w * kRows];
      y = float4{fmaf(factor, part.x, y.x), fmaf(factor, part.y, y.y), fmaf(factor, part.z, y.z), fmaf(factor, part.w, y.w)};
    }
    const float inverse = attention_inverse(total, args.weightless);
    y = float4{y.x * inverse, y.y * inverse, y.z * inverse, y.w * inverse};
    if (attention_drops(total, args.weightless)) y = float4{0, 0, 0, 0};
    Out* const to = out + static_cast<int64_t>(kTable ? load_row_number(table + m) : m) * args.out_m;
    if constexpr (kLie != kElements) {
      store4(to + n, y);
    } else {
      const float each[4] = {y.x, y.y, y.z, y.w};
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        if (n + e < args.values) store1(to + static_cast<int64_t>(n + e) * args.out_n, each[e]);
      }
    }
  }
  if (c0 + kColumns < kSize) sync_compute<Veu>();  // all have read these columns before the next overwrite them
}

// kSize: a multiple of 32, at least as large as `size` and `values`. kLie: one of AttentionRows. kTable: rows are those of a table.
template <class Veu, int kSize, int kLie, class In = float, class Out = float, class Bias = float, bool kTable = false>
RK_BODY void attention(const Task<Veu>& caller) {
  static_assert(kSize % 32 == 0 && kSize <= kAttentionLargestSize && Veu::kComputeThreads == kAttentionWarps * kWarp);
  const Task<Veu> task = caller;  // in registers; the caller's copy is in memory
  const AttentionArgs& args = task.template arguments<AttentionArgs>();
  uint32_t block;
  const uint32_t batch = divide(task.index, args.blocks, block);
  const AttentionBatch at = attention_batch<kTable>(args, batch);
  const int warps = kAttentionWarps >> args.groups_log2, warp = warp_id();  // of a group of queries
  const int32_t block0 = static_cast<int32_t>(block) * (kAttentionRows << args.groups_log2), m0 = block0 + warp / warps * kAttentionRows;
  const int group = lane_id() / 4, member = lane_id() % 4;
  AttentionHead<In, Bias> head{values_at<const In>(task, args.k) + at.k,
                               values_at<const In>(task, args.v) + at.v,
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
  int32_t queries[2];  // with kTable
  AttentionKeyRows key_rows;
  if constexpr (kTable) {
    head.table = values_at<const int32_t>(task, args.table) + at.table;
#pragma unroll
    for (int r = 0; r < 2; ++r) queries[r] = load_row_number(head.table + min(m0 + group + r * 8, head.queries - 1));
    key_rows.find(head, warp % warps * kAttentionWarpKeys);
  }

  task.await_inputs();
  AttentionQueries<In> q[kSize / 16];
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const In* const row = values_at<const In>(task, args.q) + at.q +
                          static_cast<int64_t>(kTable ? queries[r] : min(m0 + group + r * 8, head.queries - 1)) * args.q_m;
#pragma unroll
    for (int j = 0; j < kSize / 16; ++j) q[j].set(r, attention_load<kLie>(row, args.q_k, j * 16 + member * 4, head.size));
  }
  AttentionSums<kSize> sums;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    sums.largest[r] = -INFINITY;
    sums.sum[r] = 0.0f;
  }
#pragma unroll
  for (int c = 0; c < kSize / 32; ++c) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
#pragma unroll
      for (int e = 0; e < 4; ++e) sums.y[c][i][e] = 0.0f;
    }
  }
  const int32_t begin = warp % warps * kAttentionWarpKeys, step = warps * kAttentionWarpKeys;
  // (Loading the next keys ahead takes more registers than there are: with 124 bytes spilled a rTask took 15.2 us instead of 6.6.)
#pragma unroll 1
  for (int32_t first = begin; first < head.keys; first += step) {
    AttentionKeys<kSize, In> keys;
    load_keys<kSize, kLie, kTable>(head, first, key_rows, keys);
    if constexpr (kTable) key_rows.find(head, first + step);
    add_keys(head, first, q, keys, sums);
  }
#pragma unroll
  for (int r = 0; r < 2; ++r) {
#pragma unroll
    for (int step = 1; step < 4; step *= 2) sums.sum[r] += __shfl_xor_sync(kFullMask, sums.sum[r], step);
  }

  Out* const out = values_at<Out>(task, args.out) + at.out;
  float* const shared = task.template work_as<float>();
#pragma unroll
  for (int c0 = 0; c0 < kSize; c0 += AttentionSums<kSize>::kColumns)
    attention_finish<Veu, kSize, kLie, kTable>(args, out, head.table, shared, block0, c0, sums);
}

}  // namespace rk
