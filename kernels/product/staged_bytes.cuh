// staged_conv whose inputs, results or residual are whole numbers in bytes (kernels/vdevice/bytes.cuh). A row of a box, 128 bytes, is 128
// channels, and an mma multiplies 32 k: all words lie and move as those of 16-bit numbers do, so a step does twice as much. The sums are
// integers, and become floats when they leave for shared memory.
//
// Example: 256 channels of u8 are two boxes. Unit 1 of the second box is channels 160 to 191; lane 13 (g = 3, t = 1) of mma has channels
// 164 to 167 and 180 to 183 of pixel 3.
#pragma once

#include "kernels/product/staged_conv.cuh"
#include "kernels/vdevice/bytes.cuh"
#include "kernels/vdevice/mma_bytes.cuh"

namespace rk {

// Rounded results, in bytes mostly, of products whose warps have all of k. The sums become bytes in registers: results, or in front of a
// scaled sum (kWholeSums) or a table (kWholeTable) what is rounded before it. So a tile takes an eighth of the shared memory that floats
// take, and 16 channels are one access of shared memory and one of global memory, if they are bytes there, too. (Results that somebody
// reads in another type are whole numbers of 256 all the same where this is their body.)
// Example: 128 x 192, 256 threads. Thread 37 has channels 80 to 95 (37 % 8 * 16) of pixels 4, 36, .. 164 (37 / 8 = 4, every 32nd).
template <class Veu, class Product>
struct StagedByteResults {
  using Of = typename Product::Of;
  using Value = typename Of::Out;
  using Added = typename Of::Added;
  static constexpr int kChannels = Product::kChannels, kChannelThreads = kChannels / 16;
  static constexpr int kPixelThreads = Veu::kComputeThreads / kChannelThreads;
  static constexpr int kRounds = byte_rounds(kChannels, Product::kPixels), kRoundPixels = Product::kPixels / kRounds;
  static constexpr int kOutputs = (kRoundPixels + kPixelThreads - 1) / kPixelThreads,
                       kPitch = byte_pitch(kChannels);     // outputs: of a round
  static constexpr int kSumBytes = kRoundPixels * kPitch;  // in shared memory, where the table lies behind them
  struct Sixteen {
    uint32_t word[4];
  };

  float bias[Product::kLaneChannels], scale[Product::kLaneChannels];  // of the channels of the lane's sums
  float row[Of::kRow ? Product::kLaneChannels : 1];
  uint32_t table_word;  // of the thread
  float low, high;      // of what is rounded first
  uint32_t lows;        // what bytes in shared memory are less, in all four places
  Value* out;
  int channel, left;  // channel: in the tensor; left: how many channels exist from there on
  bool plain;
  char* work;

  RK_INLINE static int pixel(int i) { return static_cast<int>(threadIdx.x) / kChannelThreads + i * kPixelThreads; }
  RK_INLINE static int column() { return static_cast<int>(threadIdx.x) % kChannelThreads * 16; }

  RK_INLINE void start(const Task<Veu>& task, const StagedConvArgs& args, const StagedTile& tile) {
    const int first = static_cast<int>(tile.n_block) * kChannels, n = first + column();  // in the group
    const int padded = static_cast<int>(tile.group * args.n_blocks.divisor) * kChannels + first + Product::lane_channel();
#pragma unroll
    for (int i = 0; i < Product::kLaneChannels; ++i) {
      bias[i] = args.epilogue.bias.base == kNullBase ? 0.0f : load_weight1(task.address(args.epilogue.bias) + padded + i);
      scale[i] = load_weight1(task.address(args.scale) + padded + i);
      if constexpr (Of::kRow) row[i] = load_weight1(task.address(again_of(args).row) + padded + i);
    }
    if constexpr (Of::kTable) {
      if (threadIdx.x < kTableBytes / 4) table_word = bits_of(load_weight1(task.address(again_of(args).table) + threadIdx.x));
    }
    left = args.channels - n;
    channel = static_cast<int>(tile.group) * args.channels + n;
    const PixelStrides strides = args.out_strides;
    out = values_at<Value>(task, args.out) + (offset_of(tile.first(), strides) + channel * strides.channel);
    low = args.clip.low;
    high = args.clip.high;
    const float first_low = Of::kSums ? low : Of::kTable ? again_of(args).table_low : args.out_low;
    lows = 0x01010101u * (static_cast<uint32_t>(static_cast<int>(first_low)) & 0xffu);
    work = task.work;
    constexpr int kOfAccess = sizeof(Value) < 4 ? 8 : 4;
    plain = args.vector_out >= kOfAccess && (!Of::kSums || args.vector_residual >= 8);
  }
  RK_INLINE void fetch(const Task<Veu>& task, const StagedConvArgs& args, const StagedTile& tile) const {
    if constexpr (!Of::kSums) return;
    if (!plain) return;
    int to[kRounds * kOutputs];
    residual_offsets(to, task, args, tile, 0);
    const Added* const from = staged_residual<Added>(task, args, tile, channel);
#pragma unroll
    for (int i = 0; i < kRounds * kOutputs; ++i) {
      if (to[i] >= 0) prefetch_l2(from + to[i]);
    }
  }
  RK_INLINE void meanwhile() const {}
  RK_INLINE void share(const Task<Veu>&, const StagedConvArgs& args, const StagedTile&, const Product& product, int round) const {
    char* const sums = work + Product::lane_channel();
    if constexpr (Of::kTable) {
      if (threadIdx.x < kTableBytes / 4) store_shared_word(work, kSumBytes + static_cast<int>(threadIdx.x) * 4, table_word);
    }
    product.template for_pairs<kRounds>(round, [&](int p, int i, auto a, auto b) {
      const uint32_t x = number_bits(args, float_sum(a), 2 * i), y = number_bits(args, float_sum(b), 2 * i + 1);
      *reinterpret_cast<uint16_t*>(sums + p * kPitch + 2 * i) = static_cast<uint16_t>((x & 0xffu) | (y & 0xffu) << 8);
    });
  }
  // Bits whose lowest byte is that of the rounded number, of the lane's channel `i`. The bounds are whole, so it does not matter that they
  // come first.
  RK_INLINE uint32_t number_bits(const StagedConvArgs& args, float sum, int i) const {
    float middle = fminf(fmaxf(fmaf(sum, scale[i], bias[i]), low), high) + kByteMiddle;
    if constexpr (Of::kRow)
      middle =
          fminf(fmaxf(fmaf(middle - kByteMiddle, again_of(args).scale, row[i]), again_of(args).low), again_of(args).high) + kByteMiddle;
    return bits_of(middle);
  }
  // to[i]: how far behind the residual of the tile's first pixel that of output i of a round lies, or -1; as staged_offsets.
  template <int OUTPUTS>
  RK_INLINE void residual_offsets(int (&to)[OUTPUTS], const Task<Veu>&, const StagedConvArgs& args, const StagedTile& tile,
                                  int first) const {
    const int w = static_cast<int>(args.epilogue.residual_strides[3]),
              row = static_cast<int>(args.epilogue.residual_strides[2]) - args.tile_w * w;
    staged_offsets<kPixelThreads>(to, args, tile, first + pixel(0), left);
#pragma unroll
    for (int i = 0; i < OUTPUTS; ++i) {
      const int p = first + pixel(i);
      if (to[i] >= 0) to[i] = p * w + args.row_of(p) * row;
    }
  }
  RK_INLINE Sixteen made(const char* sums, int p) const {
    const float4 v = load_shared4(sums, p * kPitch + column());
    return {four_of(bits_of(v.x)), four_of(bits_of(v.y)), four_of(bits_of(v.z)), four_of(bits_of(v.w))};
  }
  // Of four bytes in shared memory.
  RK_INLINE uint32_t four_of(uint32_t four) const {
    const uint32_t v = less_bytes(four, lows);
    if constexpr (!Of::kTable) return v;
    uint32_t found = 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) found |= load_shared_byte(work, kSumBytes + static_cast<int>(v >> 8 * i & 0xffu)) << 8 * i;
    return found;
  }
  RK_INLINE void finish(const Task<Veu>& task, const StagedConvArgs& args, const StagedTile& tile, const char* sums, int round) const {
    if (!plain) return finish_any(task, args, tile, sums, round);
    int to[kOutputs];
    staged_offsets<kPixelThreads>(to, args, tile, round * kRoundPixels + pixel(0), left);
    if constexpr (!Of::kSums) {
#pragma unroll
      for (int i = 0; i < kOutputs; ++i) {
        if (to[i] < 0 || pixel(i) >= kRoundPixels) continue;
        store_sixteen(args, out + to[i], made(sums, pixel(i)));
      }
    } else {
      int from[kOutputs];
      residual_offsets(from, task, args, tile, round * kRoundPixels);
      const Added* const residual = staged_residual<Added>(task, args, tile, channel);
      Residual16 r[kOutputs];
#pragma unroll
      for (int i = 0; i < kOutputs; ++i) {
        if (to[i] >= 0 && pixel(i) < kRoundPixels) r[i].load(residual + from[i], args.vector_residual, left);
      }
      const ScaledBytes scaled(args);
#pragma unroll
      for (int i = 0; i < kOutputs; ++i) {
        if (to[i] < 0 || pixel(i) >= kRoundPixels) continue;
        const Sixteen v = made(sums, pixel(i));
        Sixteen y;
#pragma unroll
        for (int q = 0; q < 4; ++q) y.word[q] = scaled.sum_of(floats_of_bytes<Unsigned8>(v.word[q]), r[i].four(q));
        store_sixteen(args, out + to[i], y);
      }
    }
  }

 private:
  // 16 values of the residual as they are in memory.
  struct Residual16 {
    uint4 words[sizeof(Added)] = {};
    // `vector`: values of an aligned access; `left`: of which so many exist.
    RK_INLINE void load(const Added* p, int vector, int left) {
      if constexpr (sizeof(Added) == 1) {
        if (vector < 16) {
          const uint2 first = load_pairs2(p), second = left > 8 ? load_pairs2(p + 8) : uint2{0, 0};
          words[0] = {first.x, first.y, second.x, second.y};
          return;
        }
      }
#pragma unroll
      for (int i = 0; i < static_cast<int>(sizeof(Added)); ++i) {
        if (i == 0 || left > 8) words[i] = load_pairs4(reinterpret_cast<const uint4*>(p) + i);
      }
    }
    RK_INLINE float4 four(int q) const {
      if constexpr (sizeof(Added) == 1) {
        const uint32_t all[4] = {words[0].x, words[0].y, words[0].z, words[0].w};
        return floats_of_bytes<Added>(all[q]);
      } else {
        const uint4 w = words[q / 2];
        return Raw4<Added>{q % 2 == 0 ? uint2{w.x, w.y} : uint2{w.z, w.w}}.floats();
      }
    }
  };
  // The scaled sum of four values and a residual, whose bytes begin at other numbers than 0.
  struct ScaledBytes {
    float scale, residual_scale, low, high, first_low, added_low;
    uint32_t out_lows;
    RK_INLINE explicit ScaledBytes(const StagedConvArgs& args)
        : scale(args.epilogue.sum.scale),
          residual_scale(args.epilogue.sum.residual_scale),
          low(args.epilogue.sum.low),
          high(args.epilogue.sum.high),
          first_low(args.clip.low),
          added_low(args.residual_low),
          out_lows(0x01010101u * (static_cast<uint32_t>(static_cast<int>(args.out_low)) & 0xffu)) {}
    RK_INLINE float one(float y, float r) const {
      return fminf(fmaxf(fmaf(r + added_low, residual_scale, (y + first_low) * scale), low), high);
    }
    RK_INLINE uint32_t sum_of(const float4& y, const float4& r) const {
      return less_bytes(bytes_of(float4{one(y.x, r.x), one(y.y, r.y), one(y.z, r.z), one(y.w, r.w)}), out_lows);
    }
  };
  // In another type than bytes the numbers are bytes' from out_low on.
  RK_INLINE static float4 numbers_of(uint32_t four, float out_low) {
    if constexpr (sizeof(Value) == 1) return floats_of_bytes<Value>(four);
    const float4 v = floats_of_bytes<Unsigned8>(four);
    return {v.x + out_low, v.y + out_low, v.z + out_low, v.w + out_low};
  }
  // Sixteen channels, or those of them that exist, in whole accesses.
  RK_INLINE void store_sixteen(const StagedConvArgs& args, Value* to, const Sixteen& v) const {
    if constexpr (sizeof(Value) == 1) {
      if (args.vector_out == 16) {
        *as_global(reinterpret_cast<uint4*>(to)) = uint4{v.word[0], v.word[1], v.word[2], v.word[3]};
        return;
      }
      *as_global(reinterpret_cast<uint2*>(to)) = uint2{v.word[0], v.word[1]};
      if (left > 8) *as_global(reinterpret_cast<uint2*>(to + 8)) = uint2{v.word[2], v.word[3]};
    } else {
#pragma unroll
      for (int q = 0; q < 4; ++q) {
        if (q * 4 < left) store4(to + q * 4, numbers_of(v.word[q], args.out_low));
      }
    }
  }
  // Channels that are no aligned 8.
  RK_INLINE void finish_any(const Task<Veu>& task, const StagedConvArgs& args, const StagedTile& tile, const char* sums, int round) const {
    const Added* const from = Of::kSums ? staged_residual<Added>(task, args, tile, channel) : nullptr;
    const PixelStrides strides = args.out_strides, residual_strides = narrow(args.epilogue.residual_strides);
    const int end = left > 0 ? min(args.pixels, (round + 1) * kRoundPixels) : 0;
    const ScaledBytes scaled(args);
#pragma unroll 1
    for (int p = round * kRoundPixels + pixel(0); p < end; p += kPixelThreads) {
      const int h = args.row_of(p), w = p - h * args.tile_w;
      if (h + static_cast<int>(tile.h) >= args.grid_h || w + static_cast<int>(tile.w) >= args.grid_w) continue;
#pragma unroll 1
      for (int q = 0; q < 4 && q * 4 < left; ++q) {
        uint32_t v = four_of(load_shared_word(sums, (p - round * kRoundPixels) * kPitch + column() + q * 4));
        if constexpr (Of::kSums) {
          const float4 r = load_channels4(from + (h * residual_strides.h + w * residual_strides.w + q * 4 * residual_strides.channel),
                                          residual_strides.channel, args.vector_residual != 0, left - q * 4);
          v = scaled.sum_of(floats_of_bytes<Unsigned8>(v), r);
        }
        store_channels4(out + (h * strides.h + w * strides.w + q * 4 * strides.channel), strides.channel, args.vector_out != 0,
                        left - q * 4, numbers_of(v, args.out_low));
      }
    }
  }
};

template <class Product>
concept MakesBytes =
    (sizeof(typename Product::Of::Out) == 1 || Product::Of::kRow || Product::Of::kTable) && Product::Of::kRounds&& Product::kWarpsK == 1;
template <class Veu, MakesBytes Product>
struct ResultsOf<Veu, Product> {
  using Type = StagedByteResults<Veu, Product>;
};

template <bool SIGNED>
struct ByteProducts {
  using Sum = int32_t;
  RK_INLINE static void multiply(int32_t (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) { mma_bytes<SIGNED>(d, a, b); }
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  template <int EIGHTS>
  RK_INLINE static void multiply_deep(int32_t (&d)[EIGHTS][4], uint64_t a, uint64_t b) {
    deep_bytes<SIGNED>(d, a, b);
  }
#endif
};
// Eight bytes, for results in rounds (StagedRoundedResults).
template <class Value>
struct EightBytes {
  uint2 fours = {0, 0};
  RK_INLINE float4 half(int which) const { return floats_of_bytes<Value>(which == 0 ? fours.x : fours.y); }
};
template <>
struct Eight<Signed8> : EightBytes<Signed8> {};
template <>
struct Eight<Unsigned8> : EightBytes<Unsigned8> {};
template <>
RK_INLINE Eight<Signed8> load_eight(const Signed8* p) {
  return {{load_pairs2(p)}};
}
template <>
RK_INLINE Eight<Unsigned8> load_eight(const Unsigned8* p) {
  return {{load_pairs2(p)}};
}
RK_INLINE void store_eight(Signed8* p, const float4& a, const float4& b) {
  *as_global(reinterpret_cast<uint2*>(p)) = uint2{bytes_of(a), bytes_of(b)};
}
RK_INLINE void store_eight(Unsigned8* p, const float4& a, const float4& b) {
  *as_global(reinterpret_cast<uint2*>(p)) = uint2{bytes_of(a), bytes_of(b)};
}

template <>
struct NarrowProducts<Signed8> : ByteProducts<true> {};
template <>
struct NarrowProducts<Unsigned8> : ByteProducts<false> {};

}  // namespace rk
