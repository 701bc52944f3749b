// attention_rounded_rows of Q, K and V in bytes. They are multiplied as they are, as signed bytes, on integer tensor cores: K and V lie in
// shared memory as in device memory (with cells permuted), and what a number 0 of each stands for is taken from the sums:
//   sum (q - a)(k - b) = sum q k - b sum q - a sum k + size a b
// where the sums of q alone and of k alone are products with constant bytes, too. A sum begins at the bits of 1.5 * 2^23, so that it is the
// bits of a float when it ends.
// Scores, which are one of 256 whole numbers, lie in shared memory in bytes, where each lane reads what it wrote. A byte is the highest
// number less the score, so that rounding takes two multiplications that saturate, and no comparison. Weights take the bytes' place.
// Code that runs once costs six cycles an instruction or more, so all goes around in short loops: 16 keys for scores and weights, 16
// columns of the results with 32 keys at a time.
// Limits: those of attention_rounded_rows; a byte of 0 of Q, K and V stands for -255 to 0, rounded weights are 0 to 255.
// Example: 128 queries, 128 keys, rows of 64 bytes. Of 16 keys lane 13 of a warp (g = 3, t = 1) has two words: the scores of queries 3 and
// 11, each for keys 2, 3, 10 and 11; and of 16 columns of the results 4 to 7 of both queries.
#pragma once

#include "kernels/attention/attention_rounded_bytes.cuh"
#include "kernels/vdevice/mma_bytes.cuh"

namespace rk {

inline constexpr int kBytesTurn = 16;  // keys
inline constexpr int32_t kSumBits = 0x4b400000;
inline constexpr float kSumMiddle = 12582912.0f, kPart = 1.0f / 256;  // the float of kSumBits
inline constexpr float kPartMiddle = kSumMiddle * kPart;              // beside it floats lie 1/256 apart

// x * a + b, less than 0 is 0 and more than 1 is 1.
RK_INLINE float saturated(float x, float a, float b) {
#if defined(__CUDA_ARCH__)
  float y;
  asm("fma.rn.sat.f32 %0, %1, %2, %3;" : "=f"(y) : "f"(x), "f"(a), "f"(b));
  return y;
#else
  return fminf(fmaxf(fmaf(x, a, b), 0.0f), 1.0f);
#endif
}

// Rounds products to whole numbers from `low` to `high`, which differ by 255 at most, without a comparison.
struct RoundedProducts {
  float high, offset, range;

  RK_INLINE RoundedProducts(float low, float highest) : high(highest), offset((kSumMiddle + low) * -kPart), range((highest - low) * kPart) {
    known_now(offset);
    known_now(range);
  }
  // All steps but the first addition are exact: how far it is above `low` and then below `high`, in 256ths.
  RK_INLINE float operator()(float x) const {
    return fmaf(saturated(saturated(x + kSumMiddle, kPart, offset), -1.0f, range), -256.0f, high);
  }
};

// Rounds scores to whole numbers from `low` to `high`, which differ by 255 at most, as the lowest byte of a float's bits: `sign` times the
// number plus an even number, which leaves ties as they are. Example: from -255 to 0 the byte is minus the number, from -128 to 127 the
// number plus 128, from -127 to 127 the number plus 128, too.
struct RoundedScore {
  float sign, middle, least, most;

  RK_INLINE RoundedScore(float low, float high) {
    const auto is_odd = [](float x) { return (static_cast<int32_t>(x) & 1) != 0; };
    const bool turned = is_odd(low) && !is_odd(high);
    sign = turned ? -1.0f : 1.0f;
    middle = kSumMiddle + (turned ? high : is_odd(low) ? 1.0f - low : -low);
    least = middle + (turned ? -high : low);
    most = middle + (turned ? -low : high);
    known_now(sign);
    known_now(middle);
    known_now(least);
    known_now(most);
  }
  RK_INLINE float operator()(float x) const { return fminf(fmaxf(fmaf(x, sign, middle), least), most); }
};

// x / y, where neither is very large or small: what a division does, without asking for those.
RK_INLINE float divided(float x, float y) {
#if defined(__CUDA_ARCH__)
  float r = reciprocal_fast(y);
  r = fmaf(r, fmaf(-y, r, 1.0f), r);
  return quotient(x, y, r);
#else
  return x / y;
#endif
}

// The lowest bytes of four floats' bits.
RK_INLINE uint32_t lowest_bytes(float x, float y, float z, float w) {
#if defined(__CUDA_ARCH__)
  return __byte_perm(__byte_perm(bits_of(x), bits_of(y), 0x0040u), __byte_perm(bits_of(z), bits_of(w), 0x0040u), 0x5410u);
#else
  return (bits_of(x) & 0xffu) | (bits_of(y) & 0xffu) << 8 | (bits_of(z) & 0xffu) << 16 | bits_of(w) << 24;
#endif
}
// Bytes 0 and 2, or 1 and 3, of two words.
template <bool kOdd>
RK_INLINE uint32_t every_second_byte(uint32_t x, uint32_t y) {
#if defined(__CUDA_ARCH__)
  return __byte_perm(x, y, kOdd ? 0x7531u : 0x6420u);
#else
  const uint32_t a = x >> (kOdd ? 8 : 0), b = y >> (kOdd ? 8 : 0);
  return (a & 0xffu) | (a >> 8 & 0xff00u) | (b & 0xffu) << 16 | (b >> 16 & 0xffu) << 24;
#endif
}

// Where a cell of 16 bytes of a row lies, so that eight rows are read at the same cell without bank conflicts.
template <int kCells>
RK_INLINE int bytes_place(int row, int cell) {
  return kCells == 4 ? cell ^ (row >> 1 & 3) : cell ^ (row >> 2 & 1);
}

// Rows of signed bytes: `at`, with bits turned over by `flip`.
struct SignedRows {
  const char* at;
  uint32_t flip;

  RK_INLINE explicit SignedRows(const RoundedBytes& rows) : at(reinterpret_cast<const char*>(rows.at)), flip(rows.flip ^ 0x80808080u) {
    known_now(at);
    known_now(flip);
  }
};

// A cell of 16 bytes of which the two halves exist or not.
struct ByteCell {
  uint2 low, high;

  RK_INLINE void load(const SignedRows& rows, int32_t offset, bool has_low, bool has_high) {
    const auto* const p = as_global(reinterpret_cast<const Half*>(rows.at + offset));
    low = high = uint2{rows.flip, rows.flip};
    if (has_low) low = load_pairs2(p);
    if (has_high) high = load_pairs2(p + 4);
  }
  RK_INLINE void store(char* to, int offset, uint32_t flip) const {
    store_shared4(to, offset, {float_of(low.x ^ flip), float_of(low.y ^ flip), float_of(high.x ^ flip), float_of(high.y ^ flip)});
  }
};

// Rows of K and of V from memory into shared memory; columns behind the end become 0, and keys behind the end are the last one. The loads
// of both are under way at the same time.
template <class Veu, int kSize, int kKeys>
RK_INLINE void store_byte_rows(const AttentionArgs& args, char* keys, char* values, const SignedRows& k, const SignedRows& v) {
  constexpr int kCells = kSize / 16, kStep = Veu::kComputeThreads / kCells, kAtOnce = kKeys % (2 * kStep) == 0 ? 2 : 1;
  const uint32_t thread = threadIdx.x, cell = thread % kCells;
  const int column = static_cast<int>(cell) * 16, end = args.keys - 1, k_n = args.k_n, v_n = args.v_n;
  const bool has_k = column < args.size, more_k = column + 8 < args.size, has_v = column < args.values, more_v = column + 8 < args.values;
  int row = static_cast<int>(thread / kCells);
  int to = row * kSize + bytes_place<kCells>(row, static_cast<int>(cell)) * 16;  // kStep rows further: the same place
#pragma unroll 1
  for (; row < kKeys; row += kAtOnce * kStep, to += kAtOnce * kStep * kSize) {
    ByteCell cells[2][kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int from = min(row + i * kStep, end);
      cells[0][i].load(k, from * k_n + column, has_k, more_k);
      cells[1][i].load(v, from * v_n + column, has_v, more_v);
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      cells[0][i].store(keys, to + i * kStep * kSize, k.flip);
      cells[1][i].store(values, to + i * kStep * kSize, v.flip);
    }
  }
}

// What is added to the scores of kBytesTurn keys.
template <class Bias>
struct AddedToBytes {
  const Bias* row[2];
  int32_t step;
  bool pairs;        // neighbours lie beside each other, in a word of two
  float of[2][4]{};  // keys 8 i, 8 i + 1 of row g and then of row g + 8; what it was before of keys behind the end

  RK_INLINE AddedToBytes(const AttentionArgs& args, const Bias* bias, int32_t m) : step(args.bias_n) {
    pairs = step == 1 && args.keys % 2 == 0;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      row[r] = bias + (min(m + r * 8, args.queries - 1) * args.bias_m + lane_id() % 4 * 2 * step);
      known_now(row[r]);
      pairs = pairs && reinterpret_cast<uintptr_t>(row[r]) % (2 * sizeof(Bias)) == 0;
    }
  }
  // The next keys. `left`: of the lane's first key, keys up to the end.
  RK_INLINE void load(int left) {
    const Bias* const from[2] = {as_global(row[0]), as_global(row[1])};
    if (pairs) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        if (i / 2 * 8 >= left) continue;
        float2 v;
        if constexpr (sizeof(Bias) == 4)
          v = *reinterpret_cast<const float2*>(from[i % 2] + i / 2 * 8);
        else
          v = floats_of<Bias>(*reinterpret_cast<const uint32_t*>(from[i % 2] + i / 2 * 8));
        of[i / 2][i % 2 * 2] = v.x;
        of[i / 2][i % 2 * 2 + 1] = v.y;
      }
    } else {
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        if (i / 4 * 8 + i % 2 < left) of[i / 4][i % 4] = load1_near(from[i % 4 / 2] + (i / 4 * 8 + i % 2) * step);
      }
    }
    row[0] += kBytesTurn * step;
    row[1] += kBytesTurn * step;
  }
};

// A warp's queries: operands of the products with K, what sums begin with, and where the bytes of scores lie.
template <int kSize>
struct ByteQueries {
  uint32_t q[kSize / 32][4], zeros[4];  // zeros: bytes of what stands for 0
  int32_t begin[4], middle[4];

  RK_INLINE void load(const RoundedAttentionArgs& all, const SignedRows& rows, int32_t m) {
    const AttentionArgs& args = all.attention;
    const int column = lane_id() % 4 * 4;
    bool exists[kSize / 16];
#pragma unroll
    for (int c = 0; c < kSize / 16; ++c) exists[c] = c * 16 + column < args.size;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const char* row = rows.at + (min(m + r * 8, args.queries - 1) * args.q_m + column);
      known_now(row);
#pragma unroll
      for (int c = 0; c < kSize / 16; ++c) {
        uint32_t word = rows.flip;
        if (exists[c]) word = load_bytes4(as_global(row) + c * 16);
        q[c / 2][c % 2 * 2 + r] = word ^ rows.flip;
      }
    }
  }
  RK_INLINE void begin_sums(const RoundedAttentionArgs& all) {
    const int32_t of_q = all.zeros[kRoundedQ], of_k = all.zeros[kRoundedK], of_both = kSumBits + all.attention.size * of_q * of_k;
    const uint32_t other = static_cast<uint32_t>(of_k & 0xff) * 0x01010101u;
    int32_t sums[4] = {0, 0, 0, 0};
#pragma unroll
    for (int j = 0; j < kSize / 32; ++j) mma_bytes<true>(sums, q[j], {other, other});
    // All columns of these sums are the same, which nvcc does not know: four words of one value would be copied for each product.
    const int32_t none[4] = {0, sums[0] - sums[1], sums[2] - sums[3], (sums[0] - sums[1]) ^ (sums[2] - sums[3])};
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      zeros[e] = static_cast<uint32_t>(of_q & 0xff) * 0x01010101u + static_cast<uint32_t>(none[e]);
      middle[e] = kSumBits + none[e];
      begin[e] = of_both - sums[e];
    }
  }
  // The products with the kBytesTurn keys at `keys`.
  RK_INLINE void multiply(const char* keys, float (&products)[2][4]) const {
    constexpr int kCells = kSize / 16;
    const int lane = lane_id(), row = kCells == 4 ? lane & 7 : (lane & 7) + (lane >> 4) * 8, cell = lane >> 3 & (kCells - 1);
    const int at = (row * kCells + bytes_place<kCells>(row, cell)) * 16;
    uint32_t b[2][4];
    int32_t sums[2][4], of_keys[2][4];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
#pragma unroll
      for (int e = 0; e < 4; ++e) sums[i][e] = begin[e], of_keys[i][e] = middle[e];
    }
    ldmatrix4(b[0], keys, at);
    if constexpr (kCells == 4) ldmatrix4(b[1], keys, at + 8 * kSize);
#pragma unroll
    for (int j = 0; j < kSize / 32; ++j) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const uint32_t(&from)[4] = b[kCells == 4 ? i : 0];
        const int word = (kCells == 4 ? j : i) * 2;
        mma_bytes<true>(sums[i], q[j], {from[word], from[word + 1]});
        mma_bytes<true>(of_keys[i], zeros, {from[word], from[word + 1]});
      }
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
#pragma unroll
      for (int e = 0; e < 4; ++e)
        products[i][e] = float_of(static_cast<uint32_t>(sums[i][e])) - float_of(static_cast<uint32_t>(of_keys[i][e % 2]));
    }
  }
};

// The bytes of all scores, to `held`. Returns for each row the float of which the largest score's byte is the lowest, less kSumMiddle.
template <AttentionBias kBias, int kRounds, int kSize, int kKeys, class Bias>
RK_INLINE void score_byte_keys(const RoundedAttentionArgs& all, const ByteQueries<kSize>& queries, const char* keys, const Bias* bias,
                               int32_t m, const RoundedScore& score, char* held, float (&largest)[2]) {
  constexpr bool kSums = (kRounds & kRoundsSums) != 0, kProducts = kSums && (kRounds & kRoundsProducts) != 0;
  const RoundedProducts rounded_product(all.product_low, all.product_high);
  const float scale = all.attention.scale, product_step = all.product_step;
  float most[2] = {-INFINITY, -INFINITY};
  int left = all.attention.keys - lane_id() % 4 * 2;
  AddedToBytes<Bias> added(all.attention, bias, m);
  if constexpr (kBias != kNoBias) added.load(left);
#pragma unroll 1
  for (int turn = 0; turn < kKeys / kBytesTurn; ++turn) {
    float scores[2][4], bytes[2][4];
    queries.multiply(keys + turn * (kBytesTurn * kSize), scores);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      float& s = scores[i / 4][i % 4];
      s *= scale;
      if constexpr (kProducts) s = rounded_product(s);
      if constexpr (kSums) s = fmaf(s, product_step, added.of[i / 4][i % 4]);
    }
    if (left < kBytesTurn - 6) {  // some lane's keys are behind the end
#pragma unroll
      for (int i = 0; i < 8; ++i) scores[i / 4][i % 4] = i / 4 * 8 + i % 2 < left ? scores[i / 4][i % 4] : -INFINITY;
    }
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      most[i % 4 / 2] = fmaxf(most[i % 4 / 2], scores[i / 4][i % 4]);
      bytes[i / 4][i % 4] = score(scores[i / 4][i % 4]);
    }
    left -= kBytesTurn;
    if constexpr (kBias != kNoBias) added.load(left);
    uint32_t words[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) words[r] = lowest_bytes(bytes[0][r * 2], bytes[0][r * 2 + 1], bytes[1][r * 2], bytes[1][r * 2 + 1]);
    store_shared2(held, turn * (kWarp * 8), float2{float_of(words[0]), float_of(words[1])});
  }
#pragma unroll
  for (int r = 0; r < 2; ++r) {
#pragma unroll
    for (int step = 1; step < 4; step *= 2) most[r] = fmaxf(most[r], __shfl_xor_sync(kFullMask, most[r], step));
    largest[r] = score(most[r]) - kSumMiddle;
  }
}

// Of the scores' bytes: how weights are made.
struct ByteWeights {
  float step;        // of the bytes, times log2(e)
  float largest[2];  // the byte of the largest score, plus kByteFloor
  uint32_t floor;    // kByteBase

  // Byte `at` of the word of row `r`, as exp(score - the largest one).
  RK_INLINE float of(uint32_t word, int r, int at) const {
#if defined(__CUDA_ARCH__)
    const uint32_t bits = __byte_perm(word, floor, 0x7650u | static_cast<uint32_t>(at));
#else
    const uint32_t bits = floor | (word >> 8 * at & 0xffu);
#endif
    return exp2_fast((float_of(bits) - largest[r]) * step);
  }
  // Those of kBytesTurn keys; 0 behind the end.
  RK_INLINE void of_keys(const float2& words, int left, float (&to)[2][4]) const {
#pragma unroll
    for (int i = 0; i < 8; ++i) to[i / 4][i % 4] = of(bits_of(i < 4 ? words.x : words.y), i / 4, i % 4);
    if (left < kBytesTurn - 6) {
#pragma unroll
      for (int i = 0; i < 8; ++i) to[i / 4][i % 4] = i % 4 / 2 * 8 + i % 2 < left ? to[i / 4][i % 4] : 0.0f;
    }
  }
};

// Turns the bytes of scores into those of rounded weights.
template <int kRounds, int kKeys>
RK_INLINE void weigh_byte_keys(const RoundedAttentionArgs& all, char* held, const ByteWeights& by) {
  const int keys = all.attention.keys - lane_id() % 4 * 2;
  float sum[2] = {0.0f, 0.0f}, inverse[2];
#pragma unroll 1
  for (int turn = 0; turn < kKeys / kBytesTurn; ++turn) {
    float weights[2][4];
    by.of_keys(load_shared2(held, turn * (kWarp * 8)), keys - turn * kBytesTurn, weights);
#pragma unroll
    for (int i = 0; i < 8; ++i) sum[i / 4] += weights[i / 4][i % 4];
  }
#pragma unroll
  for (int r = 0; r < 2; ++r) {
#pragma unroll
    for (int lanes = 1; lanes < 4; lanes *= 2) sum[r] += __shfl_xor_sync(kFullMask, sum[r], lanes);
    inverse[r] = divided(all.weight_steps, sum[r]);
  }
  const float high = all.weight_high + kSumMiddle, again_high = all.again_high + kSumMiddle, again_step = all.again_step;
#pragma unroll 1
  for (int turn = 0; turn < kKeys / kBytesTurn; ++turn) {
    float weights[2][4];
    by.of_keys(load_shared2(held, turn * (kWarp * 8)), keys - turn * kBytesTurn, weights);
    uint32_t words[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        float& w = weights[r][e];
        w = fminf(w * inverse[r] + kSumMiddle, high);
        if constexpr ((kRounds & kRoundsWeightsAgain) != 0) w = fminf((w - kSumMiddle) * again_step + kSumMiddle, again_high);
      }
      words[r] = lowest_bytes(weights[r][0], weights[r][1], weights[r][2], weights[r][3]);
    }
    store_shared2(held, turn * (kWarp * 8), float2{float_of(words[0]), float_of(words[1])});
  }
}

// How sums become results.
template <class Out>
struct ByteResults {
  const RoundedAttentionArgs& all;
  float low, high, steps, begin;

  RK_INLINE explicit ByteResults(const RoundedAttentionArgs& args)
      : all(args), low(args.result_low + kSumMiddle), high(args.result_high + kSumMiddle), steps(args.result_steps), begin(args.out_low) {
    known_now(low);
    known_now(high);
  }
  // Four neighbours.
  RK_INLINE void store(Out* to, const float4& sums) const {
    if constexpr (sizeof(Out) > 1) {
      store4(to, rounded_result(all, sums));
    } else {
      const auto one = [&](float sum) { return fminf(fmaxf(sum * steps + kSumMiddle, low), high) - begin; };
      *as_global(reinterpret_cast<uint32_t*>(to)) = lowest_bytes(one(sums.x), one(sums.y), one(sums.z), one(sums.w));
    }
  }
};

// Weights times values, and what they are rounded to.
template <int kSize, int kKeys, class Out>
RK_INLINE void multiply_byte_values(const RoundedAttentionArgs& all, const char* held, const char* values, Out* out, int32_t m) {
  constexpr int kCells = kSize / 16;
  const AttentionArgs& args = all.attention;
  const int lane = lane_id(), column = lane % 4 * 4;
  const uint32_t zero = static_cast<uint32_t>(all.zeros[kRoundedV] & 0xff) * 0x01010101u;
  const ByteResults<Out> results(all);
  Out* to[2];
#pragma unroll
  for (int r = 0; r < 2; ++r) to[r] = as_global(out + ((m + r * 8) * args.out_m + column));
  const bool exists[2] = {m < args.queries, m + 8 < args.queries};
  const int columns = args.values - column;
#pragma unroll 1
  for (int c = 0; c < kCells; ++c) {
    int32_t even[4] = {0, 0, 0, 0}, odd[4] = {0, 0, 0, 0}, zeros[4] = {0, 0, 0, 0};
    const char* const cells = values + (lane * kCells + bytes_place<kCells>(lane, c)) * 16;
#pragma unroll 2
    for (int first = 0; first < kKeys; first += 32) {
      uint32_t four[4], b[2][2];
      const float2 low = load_shared2(held, first / kBytesTurn * (kWarp * 8)),
                   high = load_shared2(held, (first / kBytesTurn + 1) * (kWarp * 8));
      const uint32_t a[4] = {bits_of(low.x), bits_of(low.y), bits_of(high.x), bits_of(high.y)};
      ldmatrix4_turned(four, cells, first * kSize);
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        b[0][i] = every_second_byte<false>(four[i * 2], four[i * 2 + 1]);
        b[1][i] = every_second_byte<true>(four[i * 2], four[i * 2 + 1]);
      }
      mma_bytes_unsigned(even, a, b[0]);
      mma_bytes_unsigned(odd, a, b[1]);
      mma_bytes_unsigned(zeros, a, {zero, zero});
    }
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const auto sum = [&](int32_t of) { return static_cast<float>(of - zeros[r * 2]); };
      if (exists[r] && c * 16 < columns)
        results.store(to[r], {sum(even[r * 2]), sum(odd[r * 2]), sum(even[r * 2 + 1]), sum(odd[r * 2 + 1])});
      to[r] += 16;
    }
  }
}

// Where a head begins. As attention_batch, in fewer instructions.
RK_INLINE AttentionBatch bytes_batch(const AttentionArgs& args, uint32_t batch) {
  AttentionBatch at;
#pragma unroll 1
  for (int d = args.batch_rank - 1; d >= 0; --d) {
    uint32_t i = batch;
    if (d > 0) batch = divide(batch, args.batch_divisors[d - 1], i);
    const auto number = static_cast<int32_t>(i);
    at.out += static_cast<int64_t>(number) * args.out_batch[d];
    at.q += static_cast<int64_t>(number) * args.q_batch[d];
    at.k += static_cast<int64_t>(number) * args.k_batch[d];
    at.v += static_cast<int64_t>(number) * args.v_batch[d];
    at.bias += static_cast<int64_t>(number) * args.bias_batch[d];
  }
  return at;
}

// See attention_rounded_rows.
template <class Veu, int kSize, int kKeys, AttentionBias kBias, int kRounds, class Out, class Bias>
RK_INLINE void attention_rounded_rows_of_bytes(const Task<Veu>& caller) {
  static_assert(kSize % 32 == 0 && kSize <= 64 && kKeys % kRoundedChunk == 0 && kKeys <= kRoundedRowsKeys);
  static_assert(Veu::kComputeThreads == kAttentionWarps * kWarp);
  const Task<Veu> task = caller;  // in registers; the caller's copy is in memory
  const RoundedAttentionArgs& all = task.template arguments<RoundedAttentionArgs>();
  const AttentionArgs& args = all.attention;
  uint32_t block;
  const uint32_t batch = divide(task.index, args.blocks, block);
  const AttentionBatch at = bytes_batch(args, batch);
  const int32_t m = (static_cast<int32_t>(block) * kAttentionWarps + warp_id()) * kAttentionRows + lane_id() / 4;
  const auto rows = [&](const TensorRef& ref, RoundedOperand which, int64_t from) {
    return SignedRows(RoundedRows<Unsigned8>::at(task, all, ref, which) + from);
  };
  char* const keys = task.template work_as<char>();
  char* const values = keys + kKeys * kSize;
  char* const held = values + kKeys * kSize + (warp_id() * (kKeys / kBytesTurn) * kWarp + lane_id()) * 8;

  task.await_inputs();
  ByteQueries<kSize> queries;
  queries.load(all, rows(args.q, kRoundedQ, at.q), m);
  store_byte_rows<Veu, kSize, kKeys>(args, keys, values, rows(args.k, kRoundedK, at.k), rows(args.v, kRoundedV, at.v));
  sync_compute<Veu>();
  queries.begin_sums(all);
  constexpr bool kSums = (kRounds & kRoundsSums) != 0;
  const RoundedScore score(kSums ? all.sum_low : all.product_low, kSums ? all.sum_high : all.product_high);
  float largest[2];
  score_byte_keys<kBias, kRounds, kSize, kKeys>(all, queries, keys, values_at<const Bias>(task, args.bias) + at.bias, m, score, held,
                                                largest);
  const float step = (kSums ? all.sum_step : all.product_step * all.sum_step) * kLog2E;
  ByteWeights by{step * score.sign, {largest[0] + kByteFloor, largest[1] + kByteFloor}, kByteBase};
  known_now(by.largest[0]);
  known_now(by.largest[1]);
  known_now(by.floor);
  weigh_byte_keys<kRounds, kKeys>(all, held, by);
  multiply_byte_values<kSize, kKeys>(all, held, values, values_at<Out>(task, args.out) + at.out, m);
}

}  // namespace rk
