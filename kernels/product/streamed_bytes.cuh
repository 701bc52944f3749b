// streamed_conv whose inputs or results are whole numbers in bytes (kernels/vdevice/bytes.cuh), or whose results are rounded to whole
// numbers. An mma multiplies 32 bytes of k where it multiplies 16 numbers of 16 bits, so all words lie and move as those do.
//
// Example: 24 channels of u8, STEPS 1: lane 13 (t = 1) loads channels 8 to 15 of its pixels; lane 15 (t = 3) has none, and zeros.
#pragma once

#include "kernels/product/streamed_conv.cuh"
#include "kernels/vdevice/bytes.cuh"
#include "kernels/vdevice/mma_bytes.cuh"

namespace rk {

// Up to 128 products of bytes are less than 2^22. So if a sum begins with the bits of 1.5 * 2^23, which numbers of this size lie 1 apart
// from, then it is, read as a float, that number and the sum: a subtraction makes it a float, where a conversion takes eight times as long
// (an SM makes 16 of them a clock).
template <class In, bool FEW>
struct StreamedByteProducts {
  using Sum = int32_t;
  static constexpr int32_t kNone = FEW ? 0x4b400000 : 0;
  RK_INLINE static void multiply(int32_t (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
    if constexpr (std::is_same_v<In, Signed8>)
      mma_bytes<true>(d, a, b);
    else
      mma_bytes_unsigned(d, a, b);
  }
  RK_INLINE static float number_of(int32_t sum) {
    if constexpr (FEW) return float_of(static_cast<uint32_t>(sum)) - kByteMiddle;
    return static_cast<float>(sum);
  }
};
template <int STEPS>
struct StreamedProducts<Signed8, STEPS> : StreamedByteProducts<Signed8, (STEPS <= 4)> {};
template <int STEPS>
struct StreamedProducts<Unsigned8, STEPS> : StreamedByteProducts<Unsigned8, (STEPS <= 4)> {};

// Results that are rounded: once; then by a row, or with a residual; then found in a table (Whole). `lows`: what bytes in memory are less
// than the numbers, in all four places of a word.
template <class Of, int TILES>
struct StreamedWholeResults {
  using Out = typename Of::Out;
  using Added = typename Of::Added;
  static constexpr int kChannels = 2 * TILES, kFours = kChannels / 4;  // of a lane
  struct Constants {
    float low, high, out_low, again_scale, again_low, again_high;
    float sum_scale, residual_scale, residual_low;
    uint32_t lows, table_lows;
    int32_t wide_out;
    RK_INLINE static uint32_t four_times(float low) { return 0x01010101u * (static_cast<uint32_t>(static_cast<int>(low)) & 0xffu); }
    RK_INLINE explicit Constants(const StreamedConvArgs& args)
        : low(args.clip.low), high(args.clip.high), out_low(args.out_low), wide_out(args.wide_out) {
      lows = four_times(args.out_low);
      if constexpr (Of::kTable) table_lows = four_times(args.table_low);
      if constexpr (Of::kRow) again_scale = args.again_scale, again_low = args.again_low, again_high = args.again_high;
      if constexpr (Of::kSums) {
        sum_scale = args.epilogue.sum.scale, residual_scale = args.epilogue.sum.residual_scale, residual_low = args.residual_low;
        again_low = args.epilogue.sum.low, again_high = args.epilogue.sum.high;
      }
    }
  };
  struct Residual {
    Raw4<Added> fours[Of::kSums ? kFours : 1];
  };
  float4 bias[kFours], scale[kFours], row[Of::kRow ? kFours : 1];
  const char* table;

  RK_INLINE void start(const char* rows, int first, int channels) {
    const int each = streamed_row_bytes(channels);
    table = rows + 3 * each;
#pragma unroll
    for (int i = 0; i < kFours; ++i) {
      scale[i] = load_shared4(rows, (first + 4 * i) * 4);
      bias[i] = load_shared4(rows, each + (first + 4 * i) * 4);
      if constexpr (Of::kRow) row[i] = load_shared4(rows, 2 * each + (first + 4 * i) * 4);
    }
  }
  RK_INLINE static void fetch(const Added* from, int left, Residual& r) {
#pragma unroll
    for (int i = 0; i < (Of::kSums ? kFours : 0); ++i) {
      if (4 * i < left) r.fours[i] = load_raw4(from + 4 * i);
    }
  }
  RK_INLINE void store(const Constants& k, const float (&sums)[kChannels], const Residual& r, bool exists, int left, Out* to) const {
    if constexpr (sizeof(Out) == 1) {
      uint32_t words[kFours];
#pragma unroll
      for (int i = 0; i < kFours; ++i) {
        const float4 v = numbers_of(k, sums + 4 * i, r, i);
        if constexpr (Of::kTable)
          words[i] = found(k, v);
        else
          words[i] = less_bytes(bytes_of(v), k.lows);
      }
      if (exists) store_words(k, words, left, to);
    } else {
#pragma unroll
      for (int i = 0; i < kFours; ++i) {
        float4 v = numbers_of(k, sums + 4 * i, r, i);
        if constexpr (Of::kTable) {
          v = floats_of_bytes<Unsigned8>(found(k, v));
          v = {v.x + k.out_low, v.y + k.out_low, v.z + k.out_low, v.w + k.out_low};
        }
        if (exists && 4 * i < left) store4(to + 4 * i, v);
      }
    }
  }

 private:
  RK_INLINE static float between(float v, float low, float high) { return fminf(fmaxf(v, low), high); }
  // Where bytes follow, these round; so here only what comes before another step is rounded.
  template <bool ROUNDS>
  RK_INLINE static float4 made(const float4& v, float low, float high) {
    const float4 c = {between(v.x, low, high), between(v.y, low, high), between(v.z, low, high), between(v.w, low, high)};
    if constexpr (ROUNDS) return {whole(c.x), whole(c.y), whole(c.z), whole(c.w)};
    return c;
  }
  // Four results in front of the table, or of the way to bytes.
  RK_INLINE float4 numbers_of(const Constants& k, const float* sums, const Residual& r, int i) const {
    constexpr bool kBytes = sizeof(Out) == 1 || Of::kTable, kAgain = Of::kSums || Of::kRow;
    const float4 s = scale[i], b = bias[i];
    float4 v = {fmaf(sums[0], s.x, b.x), fmaf(sums[1], s.y, b.y), fmaf(sums[2], s.z, b.z), fmaf(sums[3], s.w, b.w)};
    v = made<(kAgain || !kBytes)>(v, k.low, k.high);
    if constexpr (Of::kSums) {
      const float4 a = r.fours[i].floats();
      const float t = k.residual_scale, u = k.sum_scale, from = k.residual_low;
      v = {fmaf(a.x + from, t, v.x * u), fmaf(a.y + from, t, v.y * u), fmaf(a.z + from, t, v.z * u), fmaf(a.w + from, t, v.w * u)};
      v = made<!kBytes>(v, k.again_low, k.again_high);
    }
    if constexpr (Of::kRow) {
      const float4 c = row[i];
      const float t = k.again_scale;
      v = {fmaf(v.x, t, c.x), fmaf(v.y, t, c.y), fmaf(v.z, t, c.z), fmaf(v.w, t, c.w)};
      v = made<!kBytes>(v, k.again_low, k.again_high);
    }
    return v;
  }
  // The bytes of the table that stand for four numbers.
  RK_INLINE uint32_t found(const Constants& k, const float4& v) const {
    const uint32_t at = less_bytes(bytes_of(v), k.table_lows);
    uint32_t four = 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) four |= load_shared_byte(table, static_cast<int>(at >> 8 * i & 0xffu)) << 8 * i;
    return four;
  }
  // In accesses of 16 bytes where those are aligned, else of 8, or of 4 where a lane has no more.
  RK_INLINE static void store_words(const Constants& k, const uint32_t (&words)[kFours], int left, Out* to) {
    if constexpr (kFours == 4) {
      if (left >= 16 && k.wide_out != 0) {
        *as_global(reinterpret_cast<uint4*>(to)) = uint4{words[0], words[1], words[2], words[3]};
        return;
      }
    }
    if constexpr (kFours >= 2) {
#pragma unroll
      for (int i = 0; i < kFours; i += 2) {
        if (4 * i < left) *as_global(reinterpret_cast<uint2*>(to + 4 * i)) = uint2{words[i], words[i + 1]};
      }
    } else {
      if (left > 0) *as_global(reinterpret_cast<uint32_t*>(to)) = words[0];
    }
  }
};
template <class Of>
concept RoundsResults = Of::kRounds;
template <RoundsResults Of, int TILES, int ADDS, bool SMOOTH>
struct StreamedResultsOf<Of, TILES, ADDS, SMOOTH> {
  using Type = StreamedWholeResults<Of, TILES>;
};

}  // namespace rk
