// Pairs of 16-bit floating-point numbers (fp16, bf16) in one 32-bit word, to and from two floats. The first number is in the lower half.
// Example: the fp16 pair (1.0, 2.0) is 0x40003c00, the bf16 pair 0x40003f80.
#pragma once

#include "kernels/vdevice/platform.cuh"

namespace rk {

#if defined(TAMP_CUDA_ON_CPU)
inline float float_of_half(uint32_t bits) {
  const uint32_t sign = (bits & 0x8000u) << 16, exponent = bits >> 10 & 0x1fu, mantissa = bits & 0x3ffu;
  if (exponent == 0) {  // zero or a subnormal number: the mantissa counts units of 2^-24
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
    return sign != 0 ? -magnitude : magnitude;
  }
  const uint32_t wide = exponent == 0x1fu ? 0xffu : exponent + 112u;
  return __uint_as_float(sign | wide << 23 | mantissa << 13);
}
#endif

RK_INLINE float2 floats_of_halves(uint32_t pair) {
#if defined(__CUDA_ARCH__)
  float2 v;
  asm("{\n\t.reg .f16 low, high;\n\tmov.b32 {low, high}, %2;\n\tcvt.f32.f16 %0, low;\n\tcvt.f32.f16 %1, high;\n\t}"
      : "=f"(v.x), "=f"(v.y)
      : "r"(pair));
  return v;
#elif defined(TAMP_CUDA_ON_CPU)
  return float2{float_of_half(pair & 0xffffu), float_of_half(pair >> 16)};
#else
  return float2{0.0f, 0.0f};  // nvcc's host pass
#endif
}

// Rounded to nearest, ties to even; `low` in the lower half.
RK_INLINE uint32_t halves_of(float low, float high) {
#if defined(__CUDA_ARCH__)
  uint32_t pair;
#if __CUDA_ARCH__ >= 800
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
#else
  asm("{\n\t.reg .f16 l, h;\n\tcvt.rn.f16.f32 l, %1;\n\tcvt.rn.f16.f32 h, %2;\n\tmov.b32 %0, {l, h};\n\t}"
      : "=r"(pair)
      : "f"(low), "f"(high));
#endif
  return pair;
#elif defined(TAMP_CUDA_ON_CPU)
  return cuda_on_cpu::half_of(low) | cuda_on_cpu::half_of(high) << 16;
#else
  return 0;
#endif
}

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
RK_INLINE uint32_t bfloat_of(float x) {
  const uint32_t bits = __float_as_uint(x);
  return x != x ? 0x7fffu : (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
}
#endif

RK_INLINE uint32_t bfloats_of(float low, float high) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  uint32_t pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
#elif defined(TAMP_CUDA_ON_CPU)
  return cuda_on_cpu::bfloat_of(low) | cuda_on_cpu::bfloat_of(high) << 16;
#elif defined(__CUDA_ARCH__)
  return bfloat_of(low) | bfloat_of(high) << 16;
#else
  return 0;
#endif
}

RK_INLINE float2 floats_of_bfloats(uint32_t pair) { return float2{__uint_as_float(pair << 16), __uint_as_float(pair & 0xffff0000u)}; }

}  // namespace rk
