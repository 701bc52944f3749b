// attention.cuh's sum, of 16-bit values, for as many keys as the warps of a rTask can hold in registers at once: up to 256. A rTask has
// kTiles tiles of 16 queries of one head, a warp kGroups groups of 16 keys. All that a warp needs of Q, K and V is loaded at the same
// time, straight to registers, so that a rTask waits for memory once. Then come, for one tile after the other, scores, weights, and
// weights times values; the sums of the eight warps, each with a base of its own, are added up in shared memory.
// Example: 128 keys, one group a warp: warp 3 has keys 48 to 63. 197 keys, two groups: warp 6 has keys 192 to 196, warp 7 none.
//
// In which order a dot product is added up does not matter, so lanes take elements that lie side by side. Below, g = lane / 4 and
// t = lane % 4; a cell is 8 elements, 16 bytes.
//   Q * K: lane t has cells t, t + 4, .. of rows g and g + 8 of Q and of rows g and g + 8 of a group of K. Words 0 and 1 of a cell are k =
//          2t, 2t+1 and 2t+8, 2t+9 of one product of 16, words 2 and 3 of the next.
//   P * V: Q * K leaves the scores of keys 2t, 2t+1, 2t+8 and 2t+9 of the group in lane t, which has those rows of V: elements kSize / 8 *
//          g on, kSize / 8 of them. Element i of each is column g of product i, of kSize / 8 products. So lane t has neighbours of Y:
//          elements kSize / 4 * t on of rows g and g + 8. Example, rows of 64: lane 13 (g = 3, t = 1) reads elements 24 to 31 of rows 2,
//          3, 10 and 11 of V, and has elements 16 to 31 of rows 3 and 11 of Y.
#pragma once

#include "kernels/attention/attention.cuh"

namespace rk {

// Where a lane's parts of rows lie; computed before the inputs are there. Rows of Q and K behind the end are read as the last one; of V
// they are zeros, since a weight of 0 times an infinity would be NaN.
template <int kTiles, int kGroups, class In>
struct AttentionOnceRows {
  const In *q[kTiles][2], *k[kGroups][2], *v[kGroups][4];

  RK_INLINE void find(const AttentionArgs& args, const In* from_q, const In* from_k, const In* from_v, int32_t m0, int32_t first,
                      int of_values) {
    const int group = lane_id() / 4, member = lane_id() % 4;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile)
        q[tile][r] = from_q + (static_cast<int64_t>(min(m0 + tile * 16 + r * 8 + group, args.queries - 1)) * args.q_m + member * 8);
#pragma unroll
      for (int g = 0; g < kGroups; ++g)
        k[g][r] = from_k + (static_cast<int64_t>(min(first + g * 16 + r * 8 + group, args.keys - 1)) * args.k_n + member * 8);
    }
#pragma unroll
    for (int g = 0; g < kGroups; ++g) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int32_t n = min(first + g * 16 + i / 2 * 8 + member * 2 + i % 2, args.keys - 1);
        v[g][i] = from_v + (static_cast<int64_t>(n) * args.v_n + group * of_values);
      }
    }
  }
};

// A warp's groups of keys and its tiles of queries, as they lie in memory. kWhole: rows have all kSize elements.
template <int kSize, int kTiles, int kGroups, bool kWhole, class In>
struct AttentionHeld {
  static constexpr int kCells = kSize / 32, kOfValues = kSize / 8;  // cells of a row, and elements of a row of V, that a lane has
  uint4 q[2][kCells], k[kGroups][2][kCells];                        // q: of one tile
  uint32_t v[kGroups][4][kOfValues / 2];                            // keys 2t, 2t+1, 2t+8, 2t+9

  // `of`: which of the two words of product `step` (two of a cell).
  RK_INLINE static uint32_t word(const uint4 (&row)[kCells], int step, int of) {
    const uint4& cell = row[step / 2];
    return step % 2 == 0 ? (of == 0 ? cell.x : cell.y) : (of == 0 ? cell.z : cell.w);
  }
  template <class Row>
  RK_INLINE static void load_row(uint4 (&to)[kCells], Row row, int32_t size) {
    const int member = lane_id() % 4;
#pragma unroll
    for (int c = 0; c < kCells; ++c) {
      to[c] = uint4{0, 0, 0, 0};
      if (kWhole || (c * 4 + member) * 8 < size) to[c] = load_pairs4(row + c * 32);
    }
  }
  RK_INLINE void load_queries(const AttentionArgs& args, const AttentionOnceRows<kTiles, kGroups, In>& rows, int tile) {
#pragma unroll
    for (int r = 0; r < 2; ++r) load_row(q[r], rows.q[tile][r], args.size);
  }
  // All but the queries of further tiles.
  RK_INLINE void load(const AttentionArgs& args, const AttentionOnceRows<kTiles, kGroups, In>& rows, int32_t first) {
    const int group = lane_id() / 4, member = lane_id() % 4;
#pragma unroll
    for (int g = 0; g < kGroups; ++g) {
#pragma unroll
      for (int r = 0; r < 2; ++r) load_row(k[g][r], rows.k[g][r], args.size);
    }
    load_queries(args, rows, 0);
#pragma unroll
    for (int g = 0; g < kGroups; ++g) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const bool exists = first + g * 16 + i / 2 * 8 + member * 2 + i % 2 < args.keys && (kWhole || group * kOfValues < args.values);
        if constexpr (kOfValues == 8) {
          uint4 cell{0, 0, 0, 0};
          if (exists) cell = load_pairs4(rows.v[g][i]);
          v[g][i][0] = cell.x, v[g][i][1] = cell.y, v[g][i][2] = cell.z, v[g][i][3] = cell.w;
        } else {
          uint2 half{0, 0};
          if (exists) half = load_pairs2(rows.v[g][i]);
          v[g][i][0] = half.x, v[g][i][1] = half.y;
        }
      }
    }
  }
};

// The lower halves of two words, or the upper ones.
RK_INLINE uint32_t halves_of_words(uint32_t low, uint32_t high, bool upper) {
  return upper ? low >> 16 | (high & 0xffff0000u) : (low & 0xffffu) | high << 16;
}

// What is added to the scores of a warp's keys. of[..][e]: for key 2t + e % 2 of eight and row g + e / 2 * 8 of the tile, or all rows.
template <int kTiles, int kGroups, AttentionBias kBias>
struct AttentionOnceAdded {
  static constexpr int kOf = kBias == kNoBias ? 0 : kBias == kBiasOfKeys ? 1 : kTiles;
  float of[kOf > 0 ? kOf : 1][kGroups][2][kBias == kBiasOfScores ? 4 : 2];

  template <class Bias>
  RK_INLINE void load(const AttentionArgs& args, const Bias* bias, int32_t m0, int32_t first) {
    const int group = lane_id() / 4, member = lane_id() % 4;
#pragma unroll
    for (int tile = 0; tile < kOf; ++tile) {
#pragma unroll
      for (int g = 0; g < kGroups; ++g) {
#pragma unroll
        for (int r = 0; r < 2; ++r) {
#pragma unroll
          for (int e = 0; e < (kBias == kBiasOfScores ? 4 : 2); ++e) {
            const int32_t m = min(m0 + tile * 16 + e / 2 * 8 + group, args.queries - 1),
                          n = min(first + g * 16 + r * 8 + member * 2 + e % 2, args.keys - 1);
            of[tile][g][r][e] = load1(bias + static_cast<int64_t>(m) * args.bias_m + static_cast<int64_t>(n) * args.bias_n);
          }
        }
      }
    }
  }
  RK_INLINE float at(int tile, int g, int r, int e) const {
    if constexpr (kBias == kNoBias) return 0.0f;
    return AttentionScores<kBias>::added(of[kBias == kBiasOfKeys ? 0 : tile][g][r][kBias == kBiasOfKeys ? e % 2 : e]);
  }
};

template <int kSize>
inline constexpr int kOncePitch = attention_once_pitch(kSize);
// Where four neighbours, number `four` of a row of sums, lie in it: fours that eight neighbouring lanes store at once lie in different
// banks.
template <int kSize>
RK_INLINE int attention_once_four(int four) {
  return kSize == 64 ? four ^ (four >> 3) * 2 : four;
}

// What a warp makes of one tile and its own keys, for rows g and g + 8 of the tile: the largest score, the sum of all exp(score - largest),
// and the sum of exp(score - largest) * V, not yet divided.
template <int kSize>
struct AttentionOnceSums {
  float largest[2] = {-INFINITY, -INFINITY}, sum[2] = {0.0f, 0.0f};
  float y[kSize / 8][4];  // product i: element kSize / 4 * t + i of row g, the one kSize / 8 behind it, and the same of row g + 8
};

// One tile's scores, weights and sums. The next tile's queries are on their way from the scores on.
template <int kSize, int kTiles, int kGroups, AttentionBias kBias, class In, class Held>
RK_INLINE AttentionOnceSums<kSize> attention_once_sums(const AttentionArgs& args, Held& held,
                                                       const AttentionOnceRows<kTiles, kGroups, In>& rows,
                                                       const AttentionOnceAdded<kTiles, kGroups, kBias>& added, int tile, int32_t first) {
  const int member = lane_id() % 4;
  AttentionOnceSums<kSize> made;
  float(&largest)[2] = made.largest, (&sum)[2] = made.sum, (&y)[kSize / 8][4] = made.y;
  float score[kGroups][2][4];
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
  if (tile + 1 < kTiles) held.load_queries(args, rows, tile + 1);
  const float scale = AttentionScores<kBias>::scale(args);
#pragma unroll
  for (int g = 0; g < kGroups; ++g) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float of[4];
#pragma unroll
      for (int e = 0; e < 4; ++e) of[e] = kBias == kBiasOfKeys && e >= 2 ? of[e - 2] : added.at(tile, g, r, e);
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const bool exists = first + g * 16 + r * 8 + member * 2 + e % 2 < args.keys;
        score[g][r][e] = exists ? fmaf(score[g][r][e], scale, of[e]) : -INFINITY;
        largest[e / 2] = fmaxf(largest[e / 2], score[g][r][e]);
      }
    }
  }
#pragma unroll
  for (int step = 1; step < 4; step *= 2) {
#pragma unroll
    for (int r = 0; r < 2; ++r) largest[r] = fmaxf(largest[r], __shfl_xor_sync(kFullMask, largest[r], step));
  }
  const float base[2] = {largest[0] == -INFINITY ? 0.0f : largest[0], largest[1] == -INFINITY ? 0.0f : largest[1]};
#pragma unroll
  for (int i = 0; i < kSize / 8; ++i) y[i][0] = y[i][1] = y[i][2] = y[i][3] = 0.0f;
#pragma unroll
  for (int g = 0; g < kGroups; ++g) {
    uint32_t a[4];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        score[g][r][e] = AttentionScores<kBias>::weight(score[g][r][e] - base[e / 2]);
        sum[e / 2] += score[g][r][e];
      }
      a[r * 2] = pair_of<In>(score[g][r][0], score[g][r][1]);
      a[r * 2 + 1] = pair_of<In>(score[g][r][2], score[g][r][3]);
    }
#pragma unroll
    for (int i = 0; i < kSize / 8; ++i) {
      multiply_words<In>(y[i], a, halves_of_words(held.v[g][0][i / 2], held.v[g][1][i / 2], i % 2 != 0),
                         halves_of_words(held.v[g][2][i / 2], held.v[g][3][i / 2], i % 2 != 0));
    }
  }
#pragma unroll
  for (int step = 1; step < 4; step *= 2) {
#pragma unroll
    for (int r = 0; r < 2; ++r) sum[r] += __shfl_xor_sync(kFullMask, sum[r], step);
  }
  return made;
}

// The same, this warp's share into shared memory. largest_and_sum: [row][warp].
template <int kSize, int kTiles, int kGroups, AttentionBias kBias, class In, class Held>
RK_INLINE void attention_once_tile(const AttentionArgs& args, Held& held, const AttentionOnceRows<kTiles, kGroups, In>& rows,
                                   const AttentionOnceAdded<kTiles, kGroups, kBias>& added, int tile, int32_t first, float* parts,
                                   float2* largest_and_sum) {
  constexpr int kPitch = kOncePitch<kSize>;
  const int warp = warp_id(), group = lane_id() / 4, member = lane_id() % 4;
  const AttentionOnceSums<kSize> made = attention_once_sums<kSize, kTiles, kGroups, kBias, In>(args, held, rows, added, tile, first);
  const float(&y)[kSize / 8][4] = made.y;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int row = group + r * 8;
    if (member == 0) largest_and_sum[row * kAttentionWarps + warp] = float2{made.largest[r], made.sum[r]};
      // Element 2t of row g of product i is element kSize / 4 * t + i of the row, element 2t + 1 comes kSize / 8 behind.
#pragma unroll
    for (int four = 0; four < kSize / 16; ++four) {
      const int e = r * 2 + four / (kSize / 32), i = four % (kSize / 32) * 4;
      store_shared4(parts, ((warp * kAttentionRows + row) * kPitch + attention_once_four<kSize>(member * (kSize / 16) + four) * 4) * 4,
                    float4{y[i][e], y[i + 1][e], y[i + 2][e], y[i + 3][e]});
    }
  }
}

// Adds up the warps' shares of a tile's rows and stores four elements a thread.
template <class Veu, int kSize, AttentionBias kBias, class Out>
RK_INLINE void attention_once_finish(const AttentionArgs& args, Out* out, int32_t m0, const float* parts, const float2* largest_and_sum) {
  constexpr int kPitch = kOncePitch<kSize>, kFours = kSize / 4;
  const auto thread = static_cast<int>(threadIdx.x);
  const int row = thread / kFours, four = thread % kFours;
  const int32_t m = m0 + row;
  if (row >= kAttentionRows || m >= args.queries || four * 4 >= args.values) return;
  float2 of[kAttentionWarps];
  float most = -INFINITY;
#pragma unroll
  for (int w = 0; w < kAttentionWarps; w += 2) {
    const float4 two = load_shared4(largest_and_sum, (row * kAttentionWarps + w) * 8);
    of[w] = {two.x, two.y};
    of[w + 1] = {two.z, two.w};
    most = fmaxf(most, fmaxf(two.x, two.z));
  }
  const float base = most == -INFINITY ? 0.0f : most;
  float total = 0.0f;
  float4 y{0, 0, 0, 0};
#pragma unroll
  for (int w = 0; w < kAttentionWarps; ++w) {
    const float4 part = load_shared4(parts, ((w * kAttentionRows + row) * kPitch + attention_once_four<kSize>(four) * 4) * 4);
    const float factor = AttentionScores<kBias>::weight(of[w].x - base);
    total = fmaf(factor, of[w].y, total);
    y = float4{fmaf(factor, part.x, y.x), fmaf(factor, part.y, y.y), fmaf(factor, part.z, y.z), fmaf(factor, part.w, y.w)};
  }
  const float inverse = attention_inverse(total, args.weightless);
  y = float4{y.x * inverse, y.y * inverse, y.z * inverse, y.w * inverse};
  if (attention_drops(total, args.weightless)) y = float4{0, 0, 0, 0};
  store4(out + static_cast<int64_t>(m) * args.out_m + four * 4, y);
}

// kSize: 32 or 64, at least as large as `size` and `values`, which are whole cells; kWhole: they are kSize. kBias: kBiasOfKeys asks for
// bias_m 0.
template <class Veu, int kSize, int kTiles, int kGroups, AttentionBias kBias, bool kWhole, class In, class Out, class Bias = float>
RK_BODY void attention_once(const Task<Veu>& caller) {
  static_assert((kSize == 32 || kSize == 64) && sizeof(In) == 2 && Veu::kComputeThreads == kAttentionWarps * kWarp);
  const Task<Veu> task = caller;  // in registers; the caller's copy is in memory
  const AttentionArgs& args = task.template arguments<AttentionArgs>();
  uint32_t block;
  const uint32_t batch = divide(task.index, args.blocks, block);
  const AttentionBatch at = attention_batch(args, batch);
  const int32_t m0 = static_cast<int32_t>(block) * (kTiles * kAttentionRows), first = warp_id() * kGroups * 16;
  using Held = AttentionHeld<kSize, kTiles, kGroups, kWhole, In>;
  Held held;
  AttentionOnceAdded<kTiles, kGroups, kBias> added;
  const In *const q = values_at<const In>(task, args.q) + at.q, *const k = values_at<const In>(task, args.k) + at.k,
                  *const v = values_at<const In>(task, args.v) + at.v;
  Out* const out = values_at<Out>(task, args.out) + at.out;
  AttentionOnceRows<kTiles, kGroups, In> rows;
  rows.find(args, q, k, v, m0, first, Held::kOfValues);

  task.await_inputs();
  held.load(args, rows, first);
  if constexpr (kBias != kNoBias) added.load(args, values_at<const Bias>(task, args.bias) + at.bias, m0, first);

  float* const parts = task.template work_as<float>();
  float2* const largest_and_sum = reinterpret_cast<float2*>(parts + kAttentionWarps * kAttentionRows * kOncePitch<kSize>);
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
    if (tile > 0) sync_compute<Veu>();  // all have read the last tile's sums
    attention_once_tile<kSize, kTiles, kGroups, kBias, In>(args, held, rows, added, tile, first, parts, largest_and_sum);
    sync_compute<Veu>();
    attention_once_finish<Veu, kSize, kBias>(args, out, m0 + tile * kAttentionRows, parts, largest_and_sum);
  }
}

}  // namespace rk
