// The arithmetic of staged_conv's precisions: how a unit of k lies in the stages, and the mma that multiplies it.
#pragma once

#include "kernels/tile/tile_product.cuh"
#include "kernels/vdevice/half.cuh"
#include "kernels/vdevice/mma.cuh"
#include "kernels/vdevice/values.cuh"
#include "kernels/vdevice/wgmma.cuh"

namespace rk {

// One unit of k. Pixels come from ldmatrix: words {k 0-3, 4-7 of one n-tile, k 0-3, 4-7 of the next}, and in 16 bits the same again for k
// 8-15. In 16 bits the k of a lane's word are 4 apart (t and t + 4) instead of neighbours, and the weights are packed in the same way.
struct Fp16 {};  // in tables
struct Bf16 {};  // in tables
// In and Out are the types in memory: at least one of them is Half or Bfloat, the other the same or float. Added is that of a residual:
// Out, or In where Out is float. WHOLE: see Whole. Of whole numbers all three may be Signed8 or Unsigned8, too.
template <class In, class Out, class Added = Out, int WHOLE = kNotWhole>
struct Narrow {};  // in tables

template <class Math>
struct StagedMath {
  using Sum = float;
  using Out = float;    // of the results in memory
  using Added = float;  // and of the residual
  static constexpr StagedUnits kOf = kStaged16Bits;
  static constexpr int kUnits = kOf.units, kLoads = kOf.loads, kWords = kOf.words;
  static constexpr bool kScales = false;  // the sums
  static constexpr bool kRounds = false;  // the results, to whole numbers
  static constexpr bool kSums = false;    // and once more, with a residual
  static constexpr bool kRow = false;     // or with a row
  static constexpr bool kTable = false;   // and taken from a table
  static constexpr bool kRows = false;    // weights lie by rows
  RK_INLINE static void weights(uint32_t (&a)[4], const uint32_t (&words)[kWords]) {
#pragma unroll
    for (int i = 0; i < 4; ++i) a[i] = words[i];
  }
  RK_INLINE static uint32_t narrow(uint32_t low, uint32_t high) {
    if constexpr (std::is_same_v<Math, Fp16>)
      return halves_of(float_of(low), float_of(high));
    else
      return bfloats_of(float_of(low), float_of(high));
  }
  RK_INLINE static void operand(uint32_t (&b)[2], const uint32_t (&words)[kLoads][4], int tile) {
    b[0] = narrow(words[0][tile * 2], words[0][tile * 2 + 1]);
    b[1] = narrow(words[1][tile * 2], words[1][tile * 2 + 1]);
  }
  RK_INLINE static void multiply(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
    if constexpr (std::is_same_v<Math, Fp16>)
      mma_f16(d, a, b);
    else
      mma_bf16(d, a, b);
  }
};
// The tensor core cuts the pixels' lower bits off. The channels' scales make up for what cutting takes from a sum on average (to_tf32 of
// kernels/vdevice/mma.cuh would be an instruction for every pixel and k).
template <>
struct StagedMath<Tf32> {
  using Sum = float;
  using Out = float;
  using Added = float;
  static constexpr bool kRows = false;
  static constexpr StagedUnits kOf = kStagedTf32;
  static constexpr int kUnits = kOf.units, kLoads = kOf.loads, kWords = kOf.words;
  static constexpr bool kScales = true;
  static constexpr bool kRounds = false, kSums = false, kRow = false, kTable = false;
  RK_INLINE static void weights(uint32_t (&a)[4], const uint32_t (&words)[kWords]) {
    const float2 low = floats_of_halves(words[0]), high = floats_of_halves(words[1]);
    a[0] = bits_of(low.x), a[1] = bits_of(low.y), a[2] = bits_of(high.x), a[3] = bits_of(high.y);
  }
  RK_INLINE static void operand(uint32_t (&b)[2], const uint32_t (&words)[kLoads][4], int tile) {
    b[0] = words[0][tile * 2];
    b[1] = words[0][tile * 2 + 1];
  }
  RK_INLINE static void multiply(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) { mma_tf32(d, a, b); }
};

// The product of two operands of a narrow type: of bytes, see kernels/product/staged_bytes.cuh.
template <class In>
struct NarrowProducts {
  using Sum = float;
  RK_INLINE static void multiply(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
    if constexpr (std::is_same_v<In, Half>)
      mma_f16(d, a, b);
    else
      mma_bf16(d, a, b);
  }
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  template <int EIGHTS>
  RK_INLINE static void multiply_deep(float (&d)[EIGHTS][4], uint64_t a, uint64_t b) {
    if constexpr (std::is_same_v<In, Half>)
      deep_f16(d, a, b);
    else
      deep_bf16(d, a, b);
  }
#endif
};

template <class Out_>
struct StagedMath<Narrow<float, Out_>> : StagedMath<std::conditional_t<std::is_same_v<Out_, Half>, Fp16, Bf16>> {
  using Out = Out_;
  using Added = Out_;
};
template <class In, class Out_, class Added_, int WHOLE>
struct StagedMath<Narrow<In, Out_, Added_, WHOLE>> : NarrowProducts<In> {
  using Out = Out_;
  using Added = Added_;
  static constexpr bool kRows = false;
  static constexpr StagedUnits kOf = kStagedNarrow;
  static constexpr int kUnits = kOf.units, kLoads = kOf.loads, kWords = kOf.words;
  static constexpr bool kScales = WHOLE != kNotWhole;
  static constexpr bool kRounds = WHOLE >= kWholeResults, kSums = WHOLE == kWholeSums, kRow = has_row(WHOLE), kTable = has_table(WHOLE);
  RK_INLINE static void weights(uint32_t (&a)[4], const uint32_t (&words)[kWords]) {
#pragma unroll
    for (int i = 0; i < 4; ++i) a[i] = words[i];
  }
  RK_INLINE static void operand(uint32_t (&b)[2], const uint32_t (&words)[kLoads][4], int tile) {
    b[0] = words[0][tile * 2];
    b[1] = words[0][tile * 2 + 1];
  }
};
// As Math, but a step of weights is rows of 64 channels: 128 bytes for each output channel, with cells permuted like those of boxes.
template <class Math>
struct Rows {};
template <class Math>
struct StagedMath<Rows<Math>> : StagedMath<Math> {
  static constexpr bool kRows = true;
};

// As Math, but multiplied by wgmma, for tiles of whole 64 channels whose pixels lie in a box 8 by 8: all follow each other (one tap), or
// 8 are in a row. The weights lie as for Math where that is Tf32, and as for Rows<Math> where it is Narrow with narrow inputs.
template <class Math>
struct Wide {};  // in tables

// Bytes of a pixel's rounded sums in shared memory (StagedRoundedResults).
template <int CHANNELS>
constexpr int kRoundedPitch = rounded_pitch(CHANNELS);

}  // namespace rk
