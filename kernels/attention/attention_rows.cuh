// Attention (attention.cuh says of what) for many queries: a warp has kTiles tiles of 16 queries of its own and goes over all keys, so no
// sums are exchanged between warps. K and V come by cp.async into a ring of stages in shared memory, once for the eight warps; Q, the
// weights of the keys (P: exp of the scores) and the sums stay in registers.
//
// A row of K or V lies in shared memory as it does in device memory, as cells of 16 bytes, but permuted (attention_place) so that
// eight rows can be read at the same cell without bank conflicts. Below, g = lane / 4 and t = lane % 4.
//   Q * K: word t of cells 2j and 2j+1 of row g are operands of product j, for Q and K alike.
//   P * V: of 16-bit values the scores of keys 2t and 2t+1 in lane t, made a pair of 16 bits, are the operand. Lane t holds columns
//          8i + 2t and 8i + 2t + 1 of Y in y[i]. In fp32 keys and columns are ordered as in attention.cuh: y[4c+i] has columns
//          32c + 4 * (2t) + i and 32c + 4 * (2t + 1) + i.
//
// Limits: the rows of Q, K and V are whole, aligned cells, those of Y whole aligned groups of four values.
#pragma once

#include "kernels/attention/attention.cuh"

namespace rk {

// The ring of stages.
template <int kSize, class In>
struct AttentionStages {
  static constexpr int kKeys = attention_stage_keys(kSize, sizeof(In)), kCells = attention_cells(kSize, sizeof(In)),
                       kBytes = attention_stage_bytes(kSize, sizeof(In));
};

// Place of a cell in its row: cells of the same number in eight neighbouring rows lie in eight different groups of banks.
// Example: with rows of 8 cells cell 2 of row 5 lies in place 7; with rows of 4 cells, two rows to 128 bytes, in place 2 ^ 2 = 0.
template <int kCells>
RK_INLINE int attention_place(int row, int cell) {
  return kCells % 8 == 0 ? cell ^ (row & 7) : cell ^ (row >> 1 & 3);
}

// Where the rTask's rows begin; in shared memory behind the stages, since the registers are full of sums.
template <class In, class Out>
struct AttentionPlaces {
  const In *k, *v;
  Out* out;
  int32_t first;  // query of the rTask
};

// Starts to copy the keys from `first` on into a stage: rows of K, then rows of V. Zeros behind the ends: a weight of 0 times what is left
// there from earlier could be NaN.
template <class Veu, int kSize, class In>
RK_INLINE void copy_stage(const AttentionArgs& args, const In* k, const In* v, char* stage, int32_t first) {
  constexpr int kKeys = AttentionStages<kSize, In>::kKeys, kCells = AttentionStages<kSize, In>::kCells, kOfCell = 16 / sizeof(In);
  constexpr int kAll = 2 * kKeys * kCells;
  const int thread = computed_now(static_cast<int>(threadIdx.x));  // so that addresses take no registers between two copies
#pragma unroll
  for (int i0 = 0; i0 < kAll; i0 += Veu::kComputeThreads) {
    const int i = i0 + thread;
    if (kAll % Veu::kComputeThreads != 0 && i >= kAll) break;
    const bool is_value = (kAll / 2 % Veu::kComputeThreads == 0 ? i0 : i) >= kAll / 2;
    const int row = i / kCells % kKeys, cell = i % kCells;
    const int32_t n = first + row, extent = is_value ? args.values : args.size;
    const In* const from = (is_value ? v : k) + static_cast<int64_t>(n) * (is_value ? args.v_n : args.k_n) + cell * kOfCell;
    cp_async16(stage + (i / kCells * kCells + attention_place<kCells>(row, cell)) * 16, from, n < args.keys && cell * kOfCell < extent);
  }
}

// 32 bits, read by several lanes and several times; see load1_near.
template <class T>
RK_INLINE uint32_t load_word_near(const T* p) {
  return *as_global(reinterpret_cast<const uint32_t*>(p));
}

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

// What a warp keeps of kTiles tiles of 16 queries; `r` is row g or g + 8 of a tile.
template <int kSize, int kTiles, class In>
struct AttentionTiles {
  static constexpr int kCells = AttentionStages<kSize, In>::kCells;
  static constexpr int kKeys = kTiles > 1 && (sizeof(In) == 4 || kSize > 64)
                                   ? 16
                                   : AttentionStages<kSize, In>::kKeys;  // at a time: as there are registers for scores
  uint32_t q[kTiles][kCells / 2][4];
  float base[kTiles][2], sum[kTiles][2], y[kTiles][kSize / 8][4];
};

// What is added to the scores of kKeys keys.
template <int kTiles, int kKeys>
struct AttentionAdded {
  float of[kTiles][kKeys / 8][4];
};

template <int kTiles, int kKeys, class Bias>
RK_INLINE void load_added(const AttentionArgs& args, const Bias* bias, int32_t m0, int32_t first, AttentionAdded<kTiles, kKeys>& to) {
  const int group = lane_id() / 4, member = lane_id() % 4;
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const Bias* const row = bias + static_cast<int64_t>(min(m0 + tile * 16 + r * 8 + group, args.queries - 1)) * args.bias_m;
#pragma unroll
      for (int i = 0; i < kKeys / 8; ++i) {
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          const int32_t n = min(first + i * 8 + member * 2 + e, args.keys - 1);
          to.of[tile][i][r * 2 + e] = load1_near(row + static_cast<int64_t>(n) * args.bias_n);
        }
      }
    }
  }
}

// scores[tile][i] = Q * K of keys 8i to 8i+7.
template <int kSize, int kTiles, class In>
RK_INLINE void multiply_keys(const AttentionTiles<kSize, kTiles, In>& tiles, const char* k,
                             float (&scores)[kTiles][AttentionTiles<kSize, kTiles, In>::kKeys / 8][4]) {
  constexpr int kCells = AttentionTiles<kSize, kTiles, In>::kCells, kKeys = AttentionTiles<kSize, kTiles, In>::kKeys;
  const int lane = computed_now(lane_id()), row = lane & 7, cell = lane >> 3;
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
    for (int i = 0; i < kKeys / 8; ++i) {
#pragma unroll
      for (int e = 0; e < 4; ++e) scores[tile][i][e] = 0.0f;
    }
  }
#pragma unroll
  for (int c = 0; c < kCells; c += 4) {
    const int at = (row * kCells + attention_place<kCells>(row, c + cell)) * 16;
#pragma unroll
    for (int i = 0; i < kKeys / 8; ++i) {
      uint32_t b[4];
      ldmatrix4(b, k, at + i * 8 * kCells * 16);
      if constexpr (std::is_same_v<In, float>) {
#pragma unroll
        for (uint32_t& x : b) x = to_tf32(float_of(x));
      }
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
        multiply_words<In>(scores[tile][i], tiles.q[tile][c / 2], b[0], b[1]);
        multiply_words<In>(scores[tile][i], tiles.q[tile][c / 2 + 1], b[2], b[3]);
      }
    }
  }
}

// The exponent of a weight, to base 2. With a bias the score is scaled already.
template <bool kBiased>
RK_INLINE float exponent(float score, float scale, float base) {
  return kBiased ? score - base : fmaf(score, scale, -base);
}

// Scores plus what is added to them, if anything; -inf for keys behind the end. `first`: the key of the first score.
template <bool kBiased, int kTiles, int kKeys>
RK_INLINE void finish_scores(const AttentionArgs& args, int32_t first, const AttentionAdded<kTiles, kKeys>& added,
                             float (&scores)[kTiles][kKeys / 8][4]) {
  if constexpr (kBiased) {
    const float scale = args.scale;
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
      for (int i = 0; i < kKeys / 8; ++i) {
#pragma unroll
        for (int e = 0; e < 4; ++e) scores[tile][i][e] = fmaf(scores[tile][i][e], scale, added.of[tile][i][e] * kLog2E);
      }
    }
  }
  if (first + kKeys <= args.keys) return;
  const int32_t end = computed_now(args.keys - first - lane_id() % 4 * 2);  // keeps this a branch: few stages come here
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
    for (int i = 0; i < kKeys / 8; ++i) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        if (i * 8 + e % 2 >= end) scores[tile][i][e] = -INFINITY;
      }
    }
  }
}

// Makes weights of the scores: exp(score - base). The base is a score not far below the largest so far. Where a score is more than 2^8
// times the base's weight, the largest score becomes the base and sums of earlier keys are scaled to it, which is seldom after the first
// keys. Weights up to 2^8 are as precise as weights up to 1.
template <bool kBiased, int kSize, int kTiles, class In>
RK_INLINE void weigh_scores(AttentionTiles<kSize, kTiles, In>& tiles, float scale,
                            float (&scores)[kTiles][AttentionTiles<kSize, kTiles, In>::kKeys / 8][4]) {
  constexpr int kKeys = AttentionTiles<kSize, kTiles, In>::kKeys;
  float largest[kTiles][2];
  bool moves = false;
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float most = fmaxf(scores[tile][0][r * 2], scores[tile][0][r * 2 + 1]);
#pragma unroll
      for (int i = 1; i < kKeys / 8; ++i) most = fmaxf(most, fmaxf(scores[tile][i][r * 2], scores[tile][i][r * 2 + 1]));
#pragma unroll
      for (int step = 1; step < 4; step *= 2) most = fmaxf(most, __shfl_xor_sync(kFullMask, most, step));
      largest[tile][r] = kBiased ? most : most * scale;
      moves = moves || largest[tile][r] > tiles.base[tile][r] + 8.0f;
    }
  }
  if (__ballot_sync(kFullMask, moves) != 0) {
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const float before = tiles.base[tile][r], base = fmaxf(before, largest[tile][r]);
        const float factor = base == -INFINITY ? 1.0f : exp2_fast(before - base);
        tiles.base[tile][r] = base;
        tiles.sum[tile][r] *= factor;
#pragma unroll
        for (int i = 0; i < kSize / 8; ++i) {
          tiles.y[tile][i][r * 2] *= factor;
          tiles.y[tile][i][r * 2 + 1] *= factor;
        }
      }
    }
  }
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const float base = tiles.base[tile][r] == -INFINITY ? 0.0f : tiles.base[tile][r];  // all masked so far, as in attention.cuh
#pragma unroll
      for (int i = 0; i < kKeys / 8; ++i) {
#pragma unroll
        for (int e = r * 2; e < r * 2 + 2; ++e) {
          scores[tile][i][e] = exp2_fast(exponent<kBiased>(scores[tile][i][e], scale, base));
          tiles.sum[tile][r] += scores[tile][i][e];
        }
      }
    }
  }
}

// Adds weights * V.
template <int kSize, int kTiles, class In>
RK_INLINE void multiply_values(AttentionTiles<kSize, kTiles, In>& tiles, const char* v,
                               const float (&weights)[kTiles][AttentionTiles<kSize, kTiles, In>::kKeys / 8][4]) {
  constexpr int kCells = AttentionTiles<kSize, kTiles, In>::kCells, kKeys = AttentionTiles<kSize, kTiles, In>::kKeys;
  if constexpr (sizeof(In) == 2) {
    const int lane = computed_now(lane_id()), row = lane & 15, cell = lane >> 4;
#pragma unroll
    for (int j = 0; j < kKeys / 16; ++j) {
      uint32_t a[kTiles][4];
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const float(&pair)[4] = weights[tile][j * 2 + i / 2];
          a[tile][i] = pair_of<In>(pair[i % 2 * 2], pair[i % 2 * 2 + 1]);
        }
      }
#pragma unroll
      for (int c = 0; c < kCells; c += 2) {
        uint32_t b[4];
        ldmatrix4_turned(b, v, ((j * 16 + row) * kCells + attention_place<kCells>(row, c + cell)) * 16);
#pragma unroll
        for (int tile = 0; tile < kTiles; ++tile) {
          multiply_words<In>(tiles.y[tile][c], a[tile], b[0], b[1]);
          multiply_words<In>(tiles.y[tile][c + 1], a[tile], b[2], b[3]);
        }
      }
    }
  } else {
    const int lane = computed_now(lane_id()), group = lane / 4, row = lane % 4 * 2;
#pragma unroll
    for (int j = 0; j < kKeys / 8; ++j) {
      uint32_t a[kTiles][4];
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
        const float(&w)[4] = weights[tile][j];
        a[tile][0] = to_tf32(w[0]), a[tile][1] = to_tf32(w[2]), a[tile][2] = to_tf32(w[1]), a[tile][3] = to_tf32(w[3]);
      }
#pragma unroll
      for (int c = 0; c < kCells; c += 8) {
        AttentionOperands b[2];
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          const int at = (j * 8 + row + e) * kCells + attention_place<kCells>(row + e, c + group);
          b[e] = attention_operands<In>(load_shared4(v, at * 16));
        }
#pragma unroll
        for (int tile = 0; tile < kTiles; ++tile) {
          multiply_words<In>(tiles.y[tile][c / 2], a[tile], b[0].x, b[1].x);
          multiply_words<In>(tiles.y[tile][c / 2 + 1], a[tile], b[0].y, b[1].y);
          multiply_words<In>(tiles.y[tile][c / 2 + 2], a[tile], b[0].z, b[1].z);
          multiply_words<In>(tiles.y[tile][c / 2 + 3], a[tile], b[0].w, b[1].w);
        }
      }
    }
  }
}

// `p` is known to be global.
template <class Value>
RK_INLINE void store_two(Value* p, float a, float b) {
  if constexpr (sizeof(Value) == 2)
    *reinterpret_cast<uint32_t*>(p) = pair_of<Value>(a, b);
  else
    *reinterpret_cast<float2*>(p) = float2{a, b};
}

// Divides the sums by those of the weights and stores them.
template <int kSize, int kTiles, class In, class Out>
RK_INLINE void store_tiles(const AttentionArgs& args, Out* out, int32_t m0, const AttentionTiles<kSize, kTiles, In>& tiles) {
  const int lane = computed_now(lane_id()), group = lane / 4, member = lane % 4;
  const int32_t queries = args.queries, values = args.values, out_m = args.out_m;
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float total = tiles.sum[tile][r];
#pragma unroll
      for (int step = 1; step < 4; step *= 2) total += __shfl_xor_sync(kFullMask, total, step);
      const float inverse = reciprocal_fast(total);
      const int32_t m = m0 + tile * 16 + r * 8 + group;
      if (m >= queries) continue;
      Out* const row = as_global(out + static_cast<int64_t>(m) * out_m + member * (sizeof(In) == 2 ? 2 : 8));
      const int32_t left = values - member * (sizeof(In) == 2 ? 2 : 8);
      const float(&y)[kSize / 8][4] = tiles.y[tile];
      if constexpr (sizeof(In) == 2) {
#pragma unroll
        for (int i = 0; i < kSize / 8; ++i) {
          if (i * 8 < left) store_two(row + i * 8, y[i][r * 2] * inverse, y[i][r * 2 + 1] * inverse);
        }
      } else {
#pragma unroll
        for (int i = 0; i < kSize / 8; i += 4) {
#pragma unroll
          for (int e = r * 2; e < r * 2 + 2; ++e) {
            const int n = i * 8 + e % 2 * 4;
            const float4 four{y[i][e] * inverse, y[i + 1][e] * inverse, y[i + 2][e] * inverse, y[i + 3][e] * inverse};
            if (n < left) store4(row + n, four);
          }
        }
      }
    }
  }
}

// kSize: a multiple of 32, at least as large as `size` and `values`. kBiased: whether the scores get a bias.
template <class Veu, int kSize, int kTiles, bool kBiased, class In = float, class Out = float, class Bias = float>
RK_BODY void attention_rows(const Task<Veu>& caller) {
  static_assert(kSize % 32 == 0 && kSize <= kAttentionLargestSize && Veu::kComputeThreads == kAttentionWarps * kWarp);
  using Tiles = AttentionTiles<kSize, kTiles, In>;
  using Stages = AttentionStages<kSize, In>;
  constexpr int kKeys = Stages::kKeys, kCells = Stages::kCells, kStages = kAttentionStages, kStageBytes = Stages::kBytes,
                kOfWord = 4 / sizeof(In);
  const Task<Veu> task = caller;  // in registers; the caller's copy is in memory
  const AttentionArgs& args = task.template arguments<AttentionArgs>();
  uint32_t block;
  const uint32_t batch = divide(task.index, args.blocks, block);
  const AttentionBatch at = attention_batch(args, batch);
  const int32_t first_query = static_cast<int32_t>(block) * (kAttentionWarps * kTiles * kAttentionRows);
  char* const stages = task.template work_as<char>();
  AttentionPlaces<In, Out>& places = *reinterpret_cast<AttentionPlaces<In, Out>*>(stages + kStages * kStageBytes);
  {
    const In* const k = values_at<const In>(task, args.k) + at.k;
    const In* const v = values_at<const In>(task, args.v) + at.v;
#pragma unroll
    for (int s = 0; s < kStages - 1; ++s) {
      if (s * kKeys < args.keys) copy_stage<Veu, kSize>(args, k, v, stages + s * kStageBytes, s * kKeys);
      cp_async_commit();
    }
    if (threadIdx.x == 0) places = {k, v, values_at<Out>(task, args.out) + at.out, first_query};
  }

  const int group = lane_id() / 4, member = lane_id() % 4;
  const int32_t m0 = first_query + warp_id() * (kTiles * kAttentionRows);
  Tiles tiles;
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int32_t m = min(m0 + tile * 16 + r * 8 + group, args.queries - 1);
      const In* const row = values_at<const In>(task, args.q) + at.q + static_cast<int64_t>(m) * args.q_m;
#pragma unroll
      for (int c = 0; c < kCells; ++c) {
        uint32_t word = 0;
        if (c * 4 * kOfWord < args.size) word = load_word_near(row + (c * 4 + member) * kOfWord);
        if constexpr (std::is_same_v<In, float>) word = to_tf32(float_of(word));
        tiles.q[tile][c / 2][c % 2 * 2 + r] = word;
      }
      tiles.base[tile][r] = -INFINITY;
      tiles.sum[tile][r] = 0.0f;
#pragma unroll
      for (int i = 0; i < kSize / 8; ++i) tiles.y[tile][i][r * 2] = tiles.y[tile][i][r * 2 + 1] = 0.0f;
    }
  }
  const Bias* const bias = values_at<const Bias>(task, args.bias) + at.bias;
  AttentionAdded<kTiles, Tiles::kKeys> added;
  if constexpr (kBiased) load_added(args, bias, m0, 0, added);

#pragma unroll 1
  for (int32_t turn = 0, stage = 0; turn * kKeys < args.keys; ++turn) {
    cp_async_wait<kStages - 2>();
    sync_compute<Veu>();  // all see this turn's stage, and have read the one before it
    if (const int32_t next = turn + kStages - 1; next * kKeys < args.keys)
      copy_stage<Veu, kSize>(args, places.k, places.v, stages + (stage == 0 ? kStages - 1 : stage - 1) * kStageBytes, next * kKeys);
    cp_async_commit();
    const int32_t m = places.first + warp_id() * (kTiles * kAttentionRows);
    if (m < args.queries) {  // else the warp only copies
      const char* const here = stages + stage * kStageBytes;
#pragma unroll 1
      for (int part = 0; part < kKeys; part += Tiles::kKeys) {
        const int32_t first = turn * kKeys + part;
        if (kKeys > Tiles::kKeys && first >= args.keys) break;
        AttentionAdded<kTiles, Tiles::kKeys> next;
        if constexpr (kBiased) load_added(args, bias, m, first + Tiles::kKeys, next);
        float scores[kTiles][Tiles::kKeys / 8][4];
        multiply_keys(tiles, here + part * kCells * 16, scores);
        finish_scores<kBiased>(args, first, added, scores);
        weigh_scores<kBiased>(tiles, args.scale, scores);
        multiply_values(tiles, here + kStageBytes / 2 + part * kCells * 16, scores);
        if constexpr (kBiased) added = next;
      }
    }
    stage = stage == kStages - 1 ? 0 : stage + 1;
  }
  cp_async_wait<0>();
  store_tiles(args, places.out, places.first + warp_id() * (kTiles * kAttentionRows), tiles);
}

}  // namespace rk
