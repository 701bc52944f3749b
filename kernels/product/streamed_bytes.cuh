// streamed_conv whose inputs or results are whole numbers in bytes (kernels/vdevice/bytes.cuh), or whose results are rounded to whole
// numbers. An mma multiplies 32 bytes of k where it multiplies 16 numbers of 16 bits, so all words lie and move as those do.
//
// Example: 24 channels of u8, STEPS 1: lane 13 (t = 1) loads channels 8 to 15 of its pixels; lane 15 (t = 3) has none, and zeros.
#pragma once

#include "kernels/product/streamed_conv.cuh"
#include "kernels/vdevice/bytes.cuh"
#include "kernels/vdevice/mma_bytes.cuh"

namespace rk {

template <>
struct StreamedProducts<Signed8> {
  using Sum = int32_t;
  RK_INLINE static void multiply(int32_t (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) { mma_bytes<true>(d, a, b); }
};
template <>
struct StreamedProducts<Unsigned8> {
  using Sum = int32_t;
  RK_INLINE static void multiply(int32_t (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) { mma_bytes_unsigned(d, a, b); }
};

// Results that are rounded: once; then by a row, or with a residual; then found in a table (Whole).
template <class Of, int TILES>
struct StreamedWholeResults {
  using Out = typename Of::Out;
  using Added = typename Of::Added;
  static constexpr int kChannels = 2 * TILES, kFours = kChannels / 4;  // of a lane
  float4 bias[kFours], scale[kFours], row[Of::kRow ? kFours : 1];
  const char* table;

  RK_INLINE void start(const StreamedConvArgs&, const char* rows, int first, int channels) {
    const int each = streamed_row_bytes(channels);
    table = rows + 3 * each;
#pragma unroll
    for (int i = 0; i < kFours; ++i) {
      scale[i] = load_shared4(rows, (first + 4 * i) * 4);
      bias[i] = load_shared4(rows, each + (first + 4 * i) * 4);
      if constexpr (Of::kRow) row[i] = load_shared4(rows, 2 * each + (first + 4 * i) * 4);
    }
  }
  struct Residual {
    Raw4<Added> fours[Of::kSums ? kFours : 1];
  };
  RK_INLINE static void fetch(const Added* from, int left, Residual& r) {
    if constexpr (!Of::kSums) return;
#pragma unroll
    for (int i = 0; i < (Of::kSums ? kFours : 1); ++i) {
      if (4 * i < left) r.fours[i] = load_raw4(from + 4 * i);
    }
  }
  RK_INLINE static float between(float v, float low, float high) { return fminf(fmaxf(v, low), high); }
  // Four whole numbers; what stands behind them in memory is less than they are by out_low.
  RK_INLINE float4 numbers_of(const StreamedConvArgs& args, const float* sums, const Residual& r, int i) const {
    const float low = args.clip.low, high = args.clip.high;
    const float4 s = scale[i], b = bias[i];
    float4 v = {whole(between(fmaf(sums[0], s.x, b.x), low, high)), whole(between(fmaf(sums[1], s.y, b.y), low, high)),
                whole(between(fmaf(sums[2], s.z, b.z), low, high)), whole(between(fmaf(sums[3], s.w, b.w), low, high))};
    if constexpr (Of::kSums) {
      const SumArgs& sum = args.epilogue.sum;
      const float4 a = r.fours[i].floats();
      const float t = sum.residual_scale, from = args.residual_low, least = sum.low, most = sum.high;
      v = {whole(between(fmaf(a.x + from, t, v.x * sum.scale), least, most)),
           whole(between(fmaf(a.y + from, t, v.y * sum.scale), least, most)),
           whole(between(fmaf(a.z + from, t, v.z * sum.scale), least, most)),
           whole(between(fmaf(a.w + from, t, v.w * sum.scale), least, most))};
    }
    if constexpr (Of::kRow) {
      const float4 c = row[i];
      const float t = args.again_scale, least = args.again_low, most = args.again_high;
      v = {whole(between(fmaf(v.x, t, c.x), least, most)), whole(between(fmaf(v.y, t, c.y), least, most)),
           whole(between(fmaf(v.z, t, c.z), least, most)), whole(between(fmaf(v.w, t, c.w), least, most))};
    }
    return v;
  }
  // The bytes of the table that stand for four numbers.
  RK_INLINE uint32_t found(const StreamedConvArgs& args, const float4& v) const {
    const uint32_t at = less_bytes(bytes_of(v), 0x01010101u * (static_cast<uint32_t>(static_cast<int>(args.table_low)) & 0xffu));
    uint32_t four = 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) four |= load_shared_byte(table, static_cast<int>(at >> 8 * i & 0xffu)) << 8 * i;
    return four;
  }
  RK_INLINE void store(const StreamedConvArgs& args, const float (&sums)[kChannels], const Residual& r, bool, int left, Out* to) const {
    if constexpr (sizeof(Out) == 1) {
      const uint32_t lows = 0x01010101u * (static_cast<uint32_t>(static_cast<int>(args.out_low)) & 0xffu);
      uint32_t words[kFours];
#pragma unroll
      for (int i = 0; i < kFours; ++i) {
        const float4 v = numbers_of(args, sums + 4 * i, r, i);
        if constexpr (Of::kTable)
          words[i] = found(args, v);
        else
          words[i] = less_bytes(bytes_of(v), lows);
      }
      store_words(args, words, left, to);
    } else {
#pragma unroll
      for (int i = 0; i < kFours; ++i) {
        if (4 * i >= left) continue;
        float4 v = numbers_of(args, sums + 4 * i, r, i);
        if constexpr (Of::kTable) {
          v = floats_of_bytes<Unsigned8>(found(args, v));
          v = {v.x + args.out_low, v.y + args.out_low, v.z + args.out_low, v.w + args.out_low};
        }
        store4(to + 4 * i, v);
      }
    }
  }

 private:
  // In accesses of 16 bytes where those are aligned, else of 8, or of 4 where a lane has no more.
  RK_INLINE static void store_words(const StreamedConvArgs& args, const uint32_t (&words)[kFours], int left, Out* to) {
    if constexpr (kFours == 4) {
      if (left >= 16 && args.wide_out != 0) {
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
      *as_global(reinterpret_cast<uint32_t*>(to)) = words[0];
    }
  }
};
template <class Of>
concept RoundsResults = Of::kRounds;
template <RoundsResults Of, int TILES>
struct StreamedResultsOf<Of, TILES> {
  using Type = StreamedWholeResults<Of, TILES>;
};

}  // namespace rk
