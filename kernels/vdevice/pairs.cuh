// Words of two 16-bit values of activations (kernels/vdevice/values.cuh), as tensor cores take them.
#pragma once

#include "kernels/vdevice/epilogue.cuh"
#include "kernels/vdevice/memory.cuh"
#include "kernels/vdevice/mma.cuh"
#include "kernels/vdevice/values.cuh"

namespace rk {

// Byte i of the result is the byte of `word` that hexadecimal digit i of the selector names (0 is the lowest); digit 4 gives a zero byte.
// Example: pick_bytes(0x44332211, 0x4140) is 0x00220011.
RK_INLINE uint32_t pick_bytes(uint32_t word, uint32_t selector) {
#if defined(__CUDA_ARCH__)
  return __byte_perm(word, 0, selector);
#else
  uint32_t picked = 0;
  for (uint32_t i = 0; i < 4; ++i) {
    const uint32_t byte = selector >> 4 * i & 7u;
    if (byte < 4) picked |= (word >> 8 * byte & 0xffu) << 8 * i;
  }
  return picked;
#endif
}

// Of two words, the larger and the smaller values; NaN where either is.
template <class Value>
RK_INLINE uint32_t max_pairs(uint32_t a, uint32_t b) {
  static_assert(sizeof(Value) == 2);
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  uint32_t v;
  if constexpr (std::is_same_v<Value, Half>)
    asm("max.NaN.f16x2 %0, %1, %2;" : "=r"(v) : "r"(a), "r"(b));
  else
    asm("max.NaN.bf16x2 %0, %1, %2;" : "=r"(v) : "r"(a), "r"(b));
  return v;
#else
  const float2 x = floats_of<Value>(a), y = floats_of<Value>(b);
  return pair_of<Value>(max_nan(x.x, y.x), max_nan(x.y, y.y));
#endif
}
template <class Value>
RK_INLINE uint32_t min_pairs(uint32_t a, uint32_t b) {
  static_assert(sizeof(Value) == 2);
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  uint32_t v;
  if constexpr (std::is_same_v<Value, Half>)
    asm("min.NaN.f16x2 %0, %1, %2;" : "=r"(v) : "r"(a), "r"(b));
  else
    asm("min.NaN.bf16x2 %0, %1, %2;" : "=r"(v) : "r"(a), "r"(b));
  return v;
#else
  const float2 x = floats_of<Value>(a), y = floats_of<Value>(b);
  return pair_of<Value>(min_nan(x.x, y.x), min_nan(x.y, y.y));
#endif
}

// mma_f16 or mma_bf16.
template <class Value>
RK_INLINE void mma_pairs(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  static_assert(sizeof(Value) == 2);
  if constexpr (std::is_same_v<Value, Half>)
    mma_f16(d, a, b);
  else
    mma_bf16(d, a, b);
}

// cp_async16 for four values, 8 aligned bytes.
RK_INLINE void cp_async8(void* smem, const void* gmem) {
#if RK_HAS_CP_ASYNC
  asm volatile("cp.async.ca.shared.global [%0], [%1], 8;" ::"r"(smem_address(smem)), "l"(gmem) : "memory");
#elif defined(TAMP_CUDA_ON_CPU)
  cuda_on_cpu::cp_async(smem, gmem, 8, true);
#elif defined(__CUDA_ARCH__)
  *static_cast<uint2*>(smem) = __ldcg(static_cast<const uint2*>(gmem));
#endif
}

// cp_async16 for 4, 8 or 16 aligned bytes through L1, as load4_near: for what neighbouring threads copy, too.
template <int kBytes>
RK_INLINE void cp_async_near(void* smem, const void* gmem, bool valid) {
  static_assert(kBytes == 4 || kBytes == 8 || kBytes == 16);
#if RK_HAS_CP_ASYNC
  asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(smem_address(smem)), "l"(gmem), "n"(kBytes), "r"(valid ? kBytes : 0)
               : "memory");
#elif defined(TAMP_CUDA_ON_CPU)
  cuda_on_cpu::cp_async(smem, gmem, kBytes, valid);
#elif defined(__CUDA_ARCH__)
  uint32_t* const to = static_cast<uint32_t*>(smem);
  const uint32_t* const from = static_cast<const uint32_t*>(gmem);
#pragma unroll
  for (int i = 0; i < kBytes / 4; ++i) to[i] = valid ? from[i] : 0;
#endif
}

}  // namespace rk
