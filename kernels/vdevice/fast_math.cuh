// The GPU's own approximations, each wrong by a few units in the last place, for code whose latency counts.
#pragma once

#include "kernels/vdevice/platform.cuh"

namespace rk {

inline constexpr float kLog2E = 1.44269504f;

RK_INLINE float exp2_fast(float x) {
#if defined(__CUDA_ARCH__)
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#else
  return exp2f(x);
#endif
}

RK_INLINE float reciprocal_fast(float x) {
#if defined(__CUDA_ARCH__)
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#else
  return 1.0f / x;
#endif
}

// Wrong by up to 5e-4: for results that are rounded to 16 bits.
RK_INLINE float tanh_coarse(float x) {
#if defined(__CUDA_ARCH__)
  float y;
  asm("tanh.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#else
  return tanhf(x);
#endif
}

}  // namespace rk
