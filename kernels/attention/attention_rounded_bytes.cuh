// The attention of quantised networks whose Q, K and V are whole numbers in bytes (In: Unsigned8), which become halves on their way to the
// tensor cores, and whose Y may be, too. Each of Q, K and V may be signed, or unsigned from a number of its own on: a signed byte whose
// highest bit is flipped is an unsigned one that begins at -128.
// A half of 1024 and more has steps of 1 up to 2048, so 0x6400 + b is 1024 + b. Example: bytes of 3 that begin at -122 have the base
// 1024 + 122 = 1146, and 1027 - 1146 is -119.
#pragma once

#include "kernels/attention/attention_rounded.cuh"
#include "kernels/vdevice/bytes.cuh"
#include "kernels/vdevice/pairs.cuh"

namespace rk {

// Rows of bytes as a pointer at halves: `flip` is 0x80808080 of signed bytes, `base` two halves of 1024 less the number that a byte of 0
// stands for.
struct RoundedBytes {
  const Unsigned8* at;
  uint32_t flip, base;

  RK_INLINE RoundedBytes operator+(int64_t elements) const { return {at + elements, flip, base}; }
  // Two pairs of four bytes.
  RK_INLINE uint2 halves(uint32_t four) const {
    const uint32_t bytes = four ^ flip;
#if defined(__CUDA_ARCH__)
    return {less(__byte_perm(bytes, 0x64646464u, 0x4140u)), less(__byte_perm(bytes, 0x64646464u, 0x4342u))};
#else
    return {less(0x64006400u | (bytes & 0xffu) | (bytes >> 8 & 0xffu) << 16),
            less(0x64006400u | (bytes >> 16 & 0xffu) | (bytes >> 24) << 16)};
#endif
  }
  RK_INLINE uint32_t less(uint32_t pair) const {
#if defined(__CUDA_ARCH__)
    uint32_t v;
    asm("sub.f16x2 %0, %1, %2;" : "=r"(v) : "r"(pair), "r"(base));
    return v;
#else
    const float2 x = floats_of_halves(pair), y = floats_of_halves(base);
    return halves_of(x.x - y.x, x.y - y.y);
#endif
  }
  RK_INLINE uint32_t byte(int64_t element) const { return static_cast<uint32_t>(load1(at + element)); }
};

// Four values, and eight.
RK_INLINE uint2 load_pairs2(const RoundedBytes& rows) { return rows.halves(load_bytes4(rows.at)); }
RK_INLINE uint4 load_pairs4(const RoundedBytes& rows) {
  const uint2 eight = load_pairs2(rows.at);  // bytes: as four values of 16 bits
  const uint2 low = rows.halves(eight.x), high = rows.halves(eight.y);
  return {low.x, low.y, high.x, high.y};
}

// As that of rows.cuh: zeros behind the end.
template <int kLie>
RK_INLINE uint2 attention_load(const RoundedBytes& rows, int32_t stride, int at, int end) {
  if constexpr (kLie != kElements) {
    if (kLie == kWholeVectors || at < end) return load_pairs2(rows + at);
    return uint2{0, 0};
  } else {
    uint32_t four = 0, exists[2] = {0, 0};
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      if (at + e >= end) continue;
      four |= rows.byte(static_cast<int64_t>(at + e) * stride) << 8 * e;
      exists[e / 2] |= 0xffffu << e % 2 * 16;
    }
    const uint2 pairs = rows.halves(four);
    return uint2{pairs.x & exists[0], pairs.y & exists[1]};
  }
}

template <>
struct RoundedRows<Unsigned8> {
  using Word = Half;
  using Pointer = RoundedBytes;
  template <class Veu>
  RK_INLINE static Pointer at(const Task<Veu>& task, const RoundedAttentionArgs& args, const TensorRef& ref, RoundedOperand which) {
    return {values_at<const Unsigned8>(task, ref), args.flips[which], args.bases[which]};
  }
};

}  // namespace rk
