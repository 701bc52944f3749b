// The attention of quantised networks (attention_rounded.cuh says of what) for many queries of up to kRoundedRowsKeys keys: a warp has 16
// queries of its own and all keys, so no numbers are exchanged between warps. What is rounded last of a score is one of 256 whole numbers
// and is kept in a byte, so a lane has all its scores in few registers until the sum of the weights is known. K lies in shared memory as
// halves, permuted as in attention_tiles.cuh, and V behind it, or where K was if both do not fit.
// The code goes around by chunks of kRoundedChunk keys: with all 128 keys unrolled it took 16 us instead of its arithmetic's 4, since an SM
// fetches instructions that run once at 2 to 3 bytes a cycle.
// Few keys in bytes are multiplied as such: attention_rounded_rows_bytes.cuh. What follows is of 16 bits, and of more bytes.
// Limits: the rows of Q, K, V and Y are whole, aligned cells of 8 numbers; sums are rounded, or products to which nothing is added.
// Example: 128 queries, 128 keys, rows of 64 bytes. Warp 3 has queries 48 to 63; its lane 13 (g = 3, t = 1) has the scores of queries 51
// and 59 for keys 2, 3, 10, 11, .. 122, 123 in 16 words, and of the results columns 2, 3, 10, 11, .. 58, 59.
#pragma once

#include "kernels/attention/attention_rounded_rows_bytes.cuh"
#include "kernels/attention/attention_tiles.cuh"

namespace rk {

// Two neighbours of a row as a word.
template <class Value>
RK_INLINE uint32_t load_word_of(const Value* p) {
  return load_word_near(p);
}
RK_INLINE uint32_t load_word_of(const RoundedBytes& rows) { return rows.halves(*as_global(reinterpret_cast<const uint16_t*>(rows.at))).x; }

// Rows of K or V from memory into shared memory, as words of 16 bits; zeros behind the ends. Few cells at a time, since code that runs once
// costs more than its arithmetic.
template <class Veu, int kSize, int kKeys, class Rows>
RK_INLINE void store_rounded_rows(char* to, const Rows& from, int32_t stride, int32_t keys, int32_t extent) {
  constexpr int kCells = kSize / 8, kAll = kKeys * kCells, kEach = 4;
#pragma unroll 1
  for (int first = static_cast<int>(threadIdx.x); first < kAll; first += kEach * Veu::kComputeThreads) {
    uint4 cells[kEach];
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const int at = first + i * Veu::kComputeThreads, row = at / kCells, cell = at % kCells;
      cells[i] = uint4{0, 0, 0, 0};
      if (row < keys && cell * 8 < extent) cells[i] = load_pairs4(from + (static_cast<int64_t>(row) * stride + cell * 8));
    }
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const int at = first + i * Veu::kComputeThreads, row = at / kCells, cell = at % kCells;
      if (at < kAll)
        store_shared4(to, (row * kCells + attention_place<kCells>(row, cell)) * 16,
                      float4{float_of(cells[i].x), float_of(cells[i].y), float_of(cells[i].z), float_of(cells[i].w)});
    }
  }
}

// What is added to the scores of a chunk of keys.
struct RoundedAdded {
  float of[kRoundedChunk / 8][4];

  template <class Bias>
  RK_INLINE void load(const AttentionArgs& args, const Bias* bias, int32_t m, int32_t first) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const Bias* const row = bias + static_cast<int64_t>(min(m + r * 8, args.queries - 1)) * args.bias_m;
#pragma unroll
      for (int i = 0; i < kRoundedChunk / 8; ++i) {
#pragma unroll
        for (int e = 0; e < 2; ++e)
          of[i][r * 2 + e] =
              load1_near(row + static_cast<int64_t>(min(first + i * 8 + lane_id() % 4 * 2 + e, args.keys - 1)) * args.bias_n);
      }
    }
  }
};

// The scores of a warp's queries for all keys, as the whole numbers that they are a step times, in bytes: word i of a chunk has keys 8 i +
// 2 t and 8 i + 2 t + 1 of row g, and then of row g + 8. Chunks take turns in the same registers, so that loops need not be unrolled.
template <int kKeys>
struct RoundedScores {
  static constexpr int kChunks = kKeys / kRoundedChunk, kWords = kRoundedChunk / 8;
  uint32_t word[kChunks][kWords];

  // The first chunk makes room for `last`, or becomes the last one.
  RK_INLINE void turn(const uint32_t (&last)[kWords]) {
#pragma unroll
    for (int i = 0; i < kWords; ++i) {
      const uint32_t to = last[i];  // which may be the first chunk
#pragma unroll
      for (int c = 0; c + 1 < kChunks; ++c) word[c][i] = word[c + 1][i];
      word[kChunks - 1][i] = to;
    }
  }
};

// The whole number of a product, less the least one. kRounds: of AttentionRounds; sums are rounded, or products to which nothing is added.
template <int kRounds>
RK_INLINE float rounded_number(const RoundedAttentionArgs& args, float product, float bias) {
  float v = product * args.attention.scale;
  if constexpr ((kRounds & kRoundsProducts) != 0) v = rounded(v, args.product_low, args.product_high);
  if constexpr ((kRounds & kRoundsSums) == 0) return v - args.product_low;
  return rounded(fmaf(v, args.product_step, bias), args.sum_low, args.sum_high) - args.sum_low;
}

// All scores, and the largest number of each row.
template <AttentionBias kBias, int kRounds, int kKeys, class Tiles, class Bias>
RK_INLINE void score_rounded_keys(const RoundedAttentionArgs& all, const Tiles& tiles, const char* keys, const Bias* bias, int32_t m,
                                  RoundedScores<kKeys>& scores, float (&most)[2]) {
  constexpr int kRowBytes = Tiles::kCells * 16;
  RoundedAdded added{}, next{};
  if constexpr (kBias != kNoBias) next.load(all.attention, bias, m, 0);
  most[0] = most[1] = 0.0f;
#pragma unroll 1
  for (int first = 0; first < kKeys; first += kRoundedChunk) {
    if constexpr (kBias != kNoBias) {
      added = next;
      next.load(all.attention, bias, m, first + kRoundedChunk);
    }
    float products[1][kRoundedChunk / 8][4];
    multiply_keys(tiles, keys + first * kRowBytes, products);
    const int left = all.attention.keys - first - lane_id() % 4 * 2;
    uint32_t made[RoundedScores<kKeys>::kWords];
#pragma unroll
    for (int i = 0; i < kRoundedChunk / 8; ++i) {
      float n[4];
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        n[e] = rounded_number<kRounds>(all, products[0][i][e], added.of[i][e]);
        if (i * 8 + e % 2 < left) most[e / 2] = fmaxf(most[e / 2], n[e]);
      }
      made[i] = bytes_of(float4{n[0], n[1], n[2], n[3]});
    }
    scores.turn(made);
  }
#pragma unroll
  for (int r = 0; r < 2; ++r) {
#pragma unroll
    for (int step = 1; step < 4; step *= 2) most[r] = fmaxf(most[r], __shfl_xor_sync(kFullMask, most[r], step));
  }
}

// exp(score - the largest one) of a chunk's keys; 0 behind the end. `step`: of the numbers, times log2(e).
template <int kKeys>
RK_INLINE void rounded_exponentials(const RoundedScores<kKeys>& scores, float step, const float (&most)[2], int left,
                                    float (&to)[kRoundedChunk / 8][4]) {
#pragma unroll
  for (int i = 0; i < kRoundedChunk / 8; ++i) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const float w = exp2_fast((float_of_byte(scores.word[0][i], e) - most[e / 2]) * step);
      to[i][e] = i * 8 + e % 2 < left ? w : 0.0f;
    }
  }
}

// Adds the rounded weights of all keys times their values.
template <int kRounds, int kKeys, class Tiles>
RK_INLINE void add_rounded_values(const RoundedAttentionArgs& all, Tiles& tiles, const char* values, RoundedScores<kKeys>& scores,
                                  const float (&most)[2]) {
  constexpr int kRowBytes = Tiles::kCells * 16;
  const float step = ((kRounds & kRoundsSums) == 0 ? all.product_step * all.sum_step : all.sum_step) * kLog2E;
  const int member = lane_id() % 4 * 2;
  float sum[2] = {0.0f, 0.0f};
#pragma unroll 1
  for (int first = 0; first < kKeys; first += kRoundedChunk) {
    float weights[kRoundedChunk / 8][4];
    rounded_exponentials(scores, step, most, all.attention.keys - first - member, weights);
#pragma unroll
    for (int i = 0; i < kRoundedChunk / 2; ++i) sum[i % 4 / 2] += weights[i / 4][i % 4];
    scores.turn(scores.word[0]);
  }
  float inverse[2];
#pragma unroll
  for (int r = 0; r < 2; ++r) {
#pragma unroll
    for (int lanes = 1; lanes < 4; lanes *= 2) sum[r] += __shfl_xor_sync(kFullMask, sum[r], lanes);
    inverse[r] = all.weight_steps / sum[r];
  }
#pragma unroll 1
  for (int first = 0; first < kKeys; first += kRoundedChunk) {
    float weights[1][kRoundedChunk / 8][4];
    rounded_exponentials(scores, step, most, all.attention.keys - first - member, weights[0]);
#pragma unroll
    for (int i = 0; i < kRoundedChunk / 2; ++i) {
      float& w = weights[0][i / 4][i % 4];
      w = rounded(w * inverse[i % 4 / 2], all.weight_low, all.weight_high);
      if constexpr ((kRounds & kRoundsWeightsAgain) != 0) w = rounded(w * all.again_step, all.again_low, all.again_high);
    }
    multiply_values(tiles, values + first * kRowBytes, weights);
    scores.turn(scores.word[0]);
  }
}

// Stores the lanes' sums as results: a lane whole cells of 8 numbers, or in fp32 two by two.
template <int kSize, class Out>
RK_INLINE void store_rounded_results(const RoundedAttentionArgs& all, Out* out, int32_t m0, const float (&y)[kSize / 8][4]) {
  const AttentionArgs& args = all.attention;
  const int group = lane_id() / 4, member = lane_id() % 4;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int32_t m = m0 + r * 8 + group;
    Out* const row = as_global(out + static_cast<int64_t>(min(m, args.queries - 1)) * args.out_m);
#pragma unroll
    for (int c = 0; c < kSize / 8; c += 4) {
      uint32_t of[4];
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const float a = rounded_result(all, y[c + j][r * 2]), b = rounded_result(all, y[c + j][r * 2 + 1]);
        if constexpr (sizeof(Out) == 4) {
          if (m < args.queries && (c + j) * 8 < args.values) store_two(row + ((c + j) * 8 + member * 2), a, b);
        } else if constexpr (sizeof(Out) == 2) {
          of[j] = pair_of<Out>(a, b);
        } else {
          const float4 v = rounded_stored<Out>(all, {a, b, 0.0f, 0.0f});
          of[j] = bytes_of(v) & 0xffffu;
        }
      }
      if constexpr (sizeof(Out) == 4) continue;
      exchange_words(of);
      if (m >= args.queries || (c + member) * 8 >= args.values) continue;
      if constexpr (sizeof(Out) == 2)
        *reinterpret_cast<float4*>(row + (c + member) * 8) = float4{float_of(of[0]), float_of(of[1]), float_of(of[2]), float_of(of[3])};
      else
        *reinterpret_cast<uint2*>(row + (c + member) * 8) = uint2{of[0] | of[1] << 16, of[2] | of[3] << 16};
    }
  }
}

template <int kSize, int kKeys>
constexpr bool kRoundedRowsBoth = rounded_rows_have_both(kSize, kKeys);  // K and V lie in shared memory at the same time

// kSize: 32 or 64, at least as large as `size` and `values`. kKeys: a multiple of kRoundedChunk, at least as large as `keys`. kRounds: of
// AttentionRounds.
template <class Veu, int kSize, int kKeys, AttentionBias kBias, int kRounds, class In, class Out, class Bias>
RK_INLINE void attention_rounded_rows_of_halves(const Task<Veu>& caller) {
  using Word = typename RoundedRows<In>::Word;
  static_assert(kSize % 32 == 0 && kSize <= 64 && kKeys % kRoundedChunk == 0 && kKeys <= kRoundedRowsKeys && sizeof(Word) == 2);
  static_assert(Veu::kComputeThreads == kAttentionWarps * kWarp);
  constexpr bool kBoth = kRoundedRowsBoth<kSize, kKeys>;
  constexpr int kBytes = kKeys * kSize * 2;
  const Task<Veu> task = caller;  // in registers; the caller's copy is in memory
  const RoundedAttentionArgs& all = task.template arguments<RoundedAttentionArgs>();
  const AttentionArgs& args = all.attention;
  uint32_t block;
  const uint32_t batch = divide(task.index, args.blocks, block);
  const AttentionBatch at = attention_batch(args, batch);
  const int32_t m0 = (static_cast<int32_t>(block) * kAttentionWarps + warp_id()) * kAttentionRows, m = m0 + lane_id() / 4;
  const auto q = RoundedRows<In>::at(task, all, args.q, kRoundedQ) + at.q, k = RoundedRows<In>::at(task, all, args.k, kRoundedK) + at.k,
             v = RoundedRows<In>::at(task, all, args.v, kRoundedV) + at.v;
  char* const keys = task.template work_as<char>();
  char* const values = keys + (kBoth ? kBytes : 0);

  task.await_inputs();
  AttentionTiles<kSize, 1, kRoundedChunk, Word> tiles;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const auto row = q + (static_cast<int64_t>(min(m + r * 8, args.queries - 1)) * args.q_m + lane_id() % 4 * 2);
#pragma unroll
    for (int c = 0; c < kSize / 8; ++c) {
      tiles.q[0][c / 2][c % 2 * 2 + r] = 0;
      if (c * 8 < args.size) tiles.q[0][c / 2][c % 2 * 2 + r] = load_word_of(row + c * 8);
    }
  }
  store_rounded_rows<Veu, kSize, kKeys>(keys, k, args.k_n, args.keys, args.size);
  if constexpr (kBoth) store_rounded_rows<Veu, kSize, kKeys>(values, v, args.v_n, args.keys, args.values);
  sync_compute<Veu>();
  RoundedScores<kKeys> scores;
  float most[2];
  score_rounded_keys<kBias, kRounds>(all, tiles, keys, values_at<const Bias>(task, args.bias) + at.bias, m, scores, most);
  if constexpr (!kBoth) {
    sync_compute<Veu>();  // all have read K
    store_rounded_rows<Veu, kSize, kKeys>(values, v, args.v_n, args.keys, args.values);
    sync_compute<Veu>();
  }
#pragma unroll
  for (int i = 0; i < kSize / 8; ++i) tiles.y[0][i][0] = tiles.y[0][i][1] = tiles.y[0][i][2] = tiles.y[0][i][3] = 0.0f;
  add_rounded_values<kRounds>(all, tiles, values, scores, most);
  store_rounded_results<kSize>(all, values_at<Out>(task, args.out) + at.out, m0, tiles.y[0]);
}

template <class Veu, int kSize, int kKeys, AttentionBias kBias, int kRounds, class In, class Out, class Bias = float>
RK_BODY void attention_rounded_rows(const Task<Veu>& caller) {
  if constexpr (sizeof(In) == 1 && rounded_rows_of_bytes(kSize, kKeys))
    attention_rounded_rows_of_bytes<Veu, kSize, kKeys, kBias, kRounds, Out, Bias>(caller);
  else
    attention_rounded_rows_of_halves<Veu, kSize, kKeys, kBias, kRounds, In, Out, Bias>(caller);
}

}  // namespace rk
