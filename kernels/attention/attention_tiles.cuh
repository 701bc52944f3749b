// What a warp of attention_rows.cuh does with its queries (Q) and the keys of a stage: scores, their weights (P), and the sums of weights
// times values. By mma.sync, or by wgmma for a warpgroup; lanes hold the same numbers either way.
//
// A row of K or V lies in shared memory as it does in device memory, as cells of 16 bytes, but permuted (attention_place) so that
// eight rows can be read at the same cell without bank conflicts. Below, g = lane / 4 and t = lane % 4.
//   Q * K: word t of cells 2j and 2j+1 of row g are operands of product j, for Q and K alike.
//   P * V: of 16-bit values the scores of keys 2t and 2t+1 in lane t, made a pair of 16 bits, are the operand. Lane t holds columns
//          8i + 2t and 8i + 2t + 1 of Y in y[i]. In fp32 keys and columns are ordered as in attention.cuh: y[4c+i] has columns
//          32c + 4 * (2t) + i and 32c + 4 * (2t + 1) + i.
#pragma once

#include "kernels/attention/attention.cuh"
#include "kernels/vdevice/wgmma.cuh"

namespace rk {

// Place of a cell in its row: cells of the same number in eight neighbouring rows lie in eight different groups of banks.
// Example: with rows of 8 cells cell 2 of row 5 lies in place 7; with rows of 4 cells, two rows to 128 bytes, in place 2 ^ 2 = 0.
template <int kCells>
RK_INLINE int attention_place(int row, int cell) {
  return kCells % 8 == 0 ? cell ^ (row & 7) : cell ^ (row >> 1 & 3);
}

// 32 bits, read by several lanes and several times; see load1_near.
template <class T>
RK_INLINE uint32_t load_word_near(const T* p) {
  return *as_global(reinterpret_cast<const uint32_t*>(p));
}

// What a warp keeps of kTiles tiles of 16 queries; `r` is row g or g + 8 of a tile.
template <int kSize, int kTiles, int KEYS, class In>
struct AttentionTiles {
  static constexpr int kCells = attention_cells(kSize, sizeof(In));
  static constexpr int kKeys = KEYS;  // at a time
  uint32_t q[kTiles][kCells / 2][4];
  float base[kTiles][2], sum[kTiles][2], y[kTiles][kSize / 8][4];

  RK_INLINE void clear() {
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        base[tile][r] = -INFINITY;
        sum[tile][r] = 0.0f;
#pragma unroll
        for (int i = 0; i < kSize / 8; ++i) y[tile][i][r * 2] = y[tile][i][r * 2 + 1] = 0.0f;
      }
    }
  }
  // The queries as they lie in memory; before the first product comes make_operands.
  RK_INLINE void load_queries(const AttentionArgs& args, const In* from, int32_t m0) {
    constexpr int kOfWord = 4 / sizeof(In);
    const int lane = computed_now(lane_id()), group = lane / 4, member = lane % 4;
    const int32_t size = args.size;
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const int32_t m = min(m0 + tile * 16 + r * 8 + group, args.queries - 1);
        const In* const row = from + (static_cast<int64_t>(m) * args.q_m + member * kOfWord);
#pragma unroll
        for (int c = 0; c < kCells; ++c) {
          uint32_t word = 0;
          if (c * 4 * kOfWord < size) word = load_word_near(row + c * 4 * kOfWord);
          q[tile][c / 2][c % 2 * 2 + r] = word;
        }
      }
    }
  }
  RK_INLINE void make_operands() {
    if constexpr (std::is_same_v<In, float>) {
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
        for (int c = 0; c < kCells / 2; ++c) {
#pragma unroll
          for (uint32_t& word : q[tile][c]) word = to_tf32(float_of(word));
        }
      }
    }
  }
};

// What is added to the scores of kKeys keys, where each score has a number of its own.
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
template <int kSize, int kTiles, int kKeys, class In>
RK_INLINE void multiply_keys(const AttentionTiles<kSize, kTiles, kKeys, In>& tiles, const char* k, float (&scores)[kTiles][kKeys / 8][4]) {
  constexpr int kCells = AttentionTiles<kSize, kTiles, kKeys, In>::kCells;
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

// The logarithm of a weight (AttentionScores says to which base). With a bias the score is scaled already.
template <AttentionBias kBias>
RK_INLINE float exponent(float score, float scale, float base) {
  return kBias != kNoBias ? score - base : fmaf(score, scale, -base);
}

// Scores plus what is added to them, if anything; -inf for keys behind the end. `first`: the key of the first score. `of_keys`: what
// load_added_of_keys left.
template <AttentionBias kBias, int kTiles, int kKeys>
RK_INLINE void finish_scores(const AttentionArgs& args, int32_t first, const AttentionAdded<kTiles, kKeys>& added, const float* of_keys,
                             float (&scores)[kTiles][kKeys / 8][4]) {
  const float scale = AttentionScores<kBias>::scale(args);
  if constexpr (kBias == kBiasOfKeys) {
    const int at = (first + lane_id() % 4 * 2) * 4;
#pragma unroll
    for (int i = 0; i < kKeys / 8; ++i) {
      const float2 of_key = load_shared2(reinterpret_cast<const char*>(of_keys), at + i * 32);
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
        for (int e = 0; e < 4; ++e) scores[tile][i][e] = fmaf(scores[tile][i][e], scale, e % 2 == 0 ? of_key.x : of_key.y);
      }
    }
    return;
  }
  if constexpr (kBias == kBiasOfScores) {
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
      for (int i = 0; i < kKeys / 8; ++i) {
#pragma unroll
        for (int e = 0; e < 4; ++e) scores[tile][i][e] = fmaf(scores[tile][i][e], scale, added.of[tile][i][e]);
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
// times the base's weight (with a bias of scores e^8), the largest score becomes the base and sums of earlier keys are scaled to it, which
// is seldom after the first keys. Weights up to 2^8 are as precise as weights up to 1.
template <AttentionBias kBias, int kSize, int kTiles, int kKeys, class In>
RK_INLINE void weigh_scores(AttentionTiles<kSize, kTiles, kKeys, In>& tiles, float scale, float (&scores)[kTiles][kKeys / 8][4]) {
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
      largest[tile][r] = kBias != kNoBias ? most : most * scale;
      moves = moves || largest[tile][r] > tiles.base[tile][r] + 8.0f;
    }
  }
  if (__ballot_sync(kFullMask, moves) != 0) {
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const float before = tiles.base[tile][r], base = fmaxf(before, largest[tile][r]);
        const float factor = base == -INFINITY ? 1.0f : AttentionScores<kBias>::weight(before - base);
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
          scores[tile][i][e] = AttentionScores<kBias>::weight(exponent<kBias>(scores[tile][i][e], scale, base));
          tiles.sum[tile][r] += scores[tile][i][e];
        }
      }
    }
  }
}

// Adds weights * V.
template <int kSize, int kTiles, int kKeys, class In>
RK_INLINE void multiply_values(AttentionTiles<kSize, kTiles, kKeys, In>& tiles, const char* v,
                               const float (&weights)[kTiles][kKeys / 8][4]) {
  constexpr int kCells = AttentionTiles<kSize, kTiles, kKeys, In>::kCells;
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

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
template <class In, int TURNED, int EIGHTS>
RK_INLINE void multiply_wide(float (&d)[EIGHTS][4], const uint32_t (&a)[4], uint64_t b) {
  if constexpr (std::is_same_v<In, Half>)
    wide_f16<TURNED>(d, a, b);
  else
    wide_bf16<TURNED>(d, a, b);
}
// multiply_keys by wgmma: rows of K, 128 bytes each, lie as the columns of its operand B.
template <int kSize, int kTiles, int kKeys, class In>
RK_INLINE void multiply_keys_wide(const AttentionTiles<kSize, kTiles, kKeys, In>& tiles, const char* k,
                                  float (&scores)[kTiles][kKeys / 8][4]) {
  const uint64_t b = wide_operand(k, 0);
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
    for (int i = 0; i < kKeys / 8; ++i) scores[tile][i][0] = scores[tile][i][1] = scores[tile][i][2] = scores[tile][i][3] = 0.0f;
  }
  begin_wide();
#pragma unroll
  for (int c = 0; c < kSize / 16; ++c) {
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) multiply_wide<In, 0>(scores[tile], tiles.q[tile][c], b + static_cast<uint64_t>(c * 2));
  }
  end_wide();
}
// multiply_values by wgmma: rows of V are rows of its operand B, 16 keys at a time, which are 2048 bytes.
template <int kSize, int kTiles, int kKeys, class In>
RK_INLINE void multiply_values_wide(AttentionTiles<kSize, kTiles, kKeys, In>& tiles, const char* v,
                                    const float (&weights)[kTiles][kKeys / 8][4]) {
  const uint64_t b = wide_operand(v, 0);
  uint32_t a[kTiles][kKeys / 16][4];
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
    for (int i = 0; i < kKeys / 4; ++i) {
      const float(&pair)[4] = weights[tile][i / 2];
      a[tile][i / 4][i % 4] = pair_of<In>(pair[i % 2 * 2], pair[i % 2 * 2 + 1]);
    }
  }
  begin_wide();
#pragma unroll
  for (int j = 0; j < kKeys / 16; ++j) {
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) multiply_wide<In, 1>(tiles.y[tile], a[tile][j], b + static_cast<uint64_t>(j * 2048 / 16));
  }
  end_wide();
}
#endif

// `p` is known to be global.
template <class Value>
RK_INLINE void store_two(Value* p, float a, float b) {
  if constexpr (sizeof(Value) == 2)
    *reinterpret_cast<uint32_t*>(p) = pair_of<Value>(a, b);
  else
    *reinterpret_cast<float2*>(p) = float2{a, b};
}

// Exchanges words among four neighbouring lanes: lane t has word t of each of them, of[j] that of lane j. Example: lanes 4 to 7 begin with
// words a0 a1 a2 a3, b0 .. b3, c0 .. c3 and d0 .. d3; then lane 6 has a2, b2, c2, d2.
RK_INLINE void exchange_words(uint32_t (&of)[4]) {
  const int lane = lane_id();
#pragma unroll
  for (int step = 1; step < 4; step *= 2) {
    const bool upper = (lane & step) != 0;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      if ((j & step) != 0) continue;
      const uint32_t kept = upper ? of[j | step] : of[j], got = __shfl_xor_sync(kFullMask, upper ? of[j] : of[j | step], step);
      of[j] = upper ? got : kept;
      of[j | step] = upper ? kept : got;
    }
  }
}

// Divides the sums by those of the weights and stores them. Of 16 bits, a lane stores whole cells.
template <int kSize, int kTiles, int kKeys, class In, class Out>
RK_INLINE void store_tiles(const AttentionArgs& args, Out* out, int32_t m0, AttentionTiles<kSize, kTiles, kKeys, In>& tiles) {
  const int lane = computed_now(lane_id()), group = lane / 4, member = lane % 4;
  const int32_t queries = args.queries, values = args.values, out_m = args.out_m;
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float total = tiles.sum[tile][r];
#pragma unroll
      for (int step = 1; step < 4; step *= 2) total += __shfl_xor_sync(kFullMask, total, step);
      const float inverse = attention_inverse(total, args.weightless);
      if (attention_drops(total, args.weightless)) {
#pragma unroll
        for (int i = 0; i < kSize / 8; ++i) tiles.y[tile][i][r * 2] = tiles.y[tile][i][r * 2 + 1] = 0.0f;
      }
      const int32_t m = m0 + tile * 16 + r * 8 + group;
      if constexpr (sizeof(In) == 2 && sizeof(Out) == 2) {
        Out* const row = as_global(out + static_cast<int64_t>(m) * out_m + member * 8);
#pragma unroll
        for (int c = 0; c < kSize / 8; c += 4) {
          uint32_t of[4];
#pragma unroll
          for (int j = 0; j < 4; ++j)
            of[j] = pair_of<Out>(tiles.y[tile][c + j][r * 2] * inverse, tiles.y[tile][c + j][r * 2 + 1] * inverse);
          exchange_words(of);
          if (m < queries && (c + member) * 8 < values)
            *reinterpret_cast<float4*>(row + c * 8) = float4{float_of(of[0]), float_of(of[1]), float_of(of[2]), float_of(of[3])};
        }
        continue;
      }
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

}  // namespace rk
