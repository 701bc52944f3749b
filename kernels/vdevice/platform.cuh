// What every body includes: macros and small functions that let the same source compile with nvcc (sm_75 to sm_120) and, with the
// stand-in of runtime_stub/cuda_on_cpu in the include path, with g++. All PTX of tamp is in this folder, each piece in a named
// function with three branches: for the GPU, for the stand-in (TAMP_CUDA_ON_CPU), and for nvcc's host pass, which never runs.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <type_traits>

#include "kernels/vdevice/numbers.cuh"

// The interpreter loop calls a body through a switch. Bodies are not inlined, so that the registers of one body do not count for
// the others and many rOperators share one copy of a body's code (docs/adr/0002).
#if defined(TAMP_CUDA_ON_CPU)
#define RK_BODY inline
#else
#define RK_BODY __device__ __noinline__
#endif
#define RK_INLINE __device__ __forceinline__  // in tables

// Generated code says RK_PRAGMA(unroll 1) where the sources have the pragma itself (codegen/amalgamate.cpp), since g++ warns of the pragma.
#if defined(__CUDACC__)
#define RK_PRAGMA(text) _Pragma(#text)
#else
#define RK_PRAGMA(text)
#endif

namespace rk {

constexpr unsigned kFullMask = 0xffffffffu;

#if !defined(TAMP_CUDA_ON_CPU)
// Shared-memory address as PTX wants it.
RK_INLINE uint32_t smem_address(const void* p) { return static_cast<uint32_t>(__cvta_generic_to_shared(p)); }
#endif

// Has a value in a register from here on. Left to itself the compiler computes what is needed behind a wait behind it, although there is
// nothing else to do before: the first product of a tile waited for a hundred clocks of zeros and addresses.
#if defined(__CUDA_ARCH__)
RK_INLINE void known_now(uint32_t& value) { asm volatile("" : "+r"(value)); }
RK_INLINE void known_now(int32_t& value) { asm volatile("" : "+r"(value)); }
RK_INLINE void known_now(float& value) { asm volatile("" : "+f"(value)); }
template <class T>
RK_INLINE void known_now(T*& value) {
  asm volatile("" : "+l"(value));
}
#else
template <class T>
RK_INLINE void known_now(T&) {}
#endif

RK_INLINE uint32_t divide(uint32_t x, const Divisor& d) {
#if defined(__CUDA_ARCH__)
  return d.multiplier == 0 ? x : __umulhi(x, d.multiplier) >> d.shift;
#else
  return d.multiplier == 0 ? x : static_cast<uint32_t>((static_cast<uint64_t>(x) * d.multiplier) >> 32) >> d.shift;
#endif
}
RK_INLINE uint32_t divide(uint32_t x, const Divisor& d, uint32_t& remainder) {
  const uint32_t q = divide(x, d);
  remainder = x - q * d.divisor;
  return q;
}

RK_INLINE int lane_id() { return static_cast<int>(threadIdx.x) & (kWarp - 1); }
RK_INLINE int warp_id() { return static_cast<int>(threadIdx.x) / kWarp; }

}  // namespace rk
