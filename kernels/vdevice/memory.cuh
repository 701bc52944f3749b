// Loads, stores and asynchronous copies.
//
// Activations are written inside this kernel, so they are never read through the non-coherent path: load1/load4 read
// L2 (ld.global.cg), and cp_async16 copies from L2. load1_near/load4_near may hit L1; they are for activations that threads of a vEU
// read several times. Nobody writes weights, so load_weight1/4 may use the non-coherent path. Where the GPU has no cp.async (sm_75), the
// copy is done at once and the waits are empty.
#pragma once

#include "kernels/vdevice/platform.cuh"

namespace rk {

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
#define RK_HAS_CP_ASYNC 1
#else
#define RK_HAS_CP_ASYNC 0
#endif

RK_INLINE float load1(const float* p) {
#if defined(__CUDA_ARCH__)
  return __ldcg(p);
#else
  return *p;
#endif
}

RK_INLINE float4 load4(const float* p) {  // p is 16-byte aligned
#if defined(__CUDA_ARCH__)
  return __ldcg(reinterpret_cast<const float4*>(p));
#else
  return *reinterpret_cast<const float4*>(p);
#endif
}

// Loads through L1, of any memory. L1 never has an old value here: the waiter's acquire lies between the producer's store and this load
// and drops the SM's L1 (sync.cuh), and a vEU's own stores are seen in its L1.
RK_INLINE float load1_near(const float* p) { return *p; }
RK_INLINE float4 load4_near(const float* p) { return *reinterpret_cast<const float4*>(p); }  // p is 16-byte aligned

// Brings the line of p to L2.
RK_INLINE void prefetch_l2(const void* p) {
#if defined(__CUDA_ARCH__)
  asm volatile("prefetch.global.L2 [%0];" ::"l"(p));
#else
  (void)p;
#endif
}

RK_INLINE float load_weight1(const float* p) {
#if defined(__CUDA_ARCH__)
  return __ldg(p);
#else
  return *p;
#endif
}

template <class T>
RK_INLINE uint2 load_weight2(const T* p) {  // any 8 bytes
  static_assert(sizeof(T) == 8);
#if defined(__CUDA_ARCH__)
  return __ldg(reinterpret_cast<const uint2*>(p));
#else
  return *reinterpret_cast<const uint2*>(p);
#endif
}

RK_INLINE float4 load_weight4(const float* p) {
#if defined(__CUDA_ARCH__)
  return __ldg(reinterpret_cast<const float4*>(p));
#else
  return *reinterpret_cast<const float4*>(p);
#endif
}

// These tell the compiler that a pointer is to shared or to global memory, which it cannot see for pointers that come out of structs.
// Without that the access is a generic one: slower, and it may alias everything, so that arguments are read again after every store.
// Once a pointer: where a body said it of two chunks of one ring, nvcc 13.0 left out everything behind the second one.
template <class T>
RK_INLINE T* as_shared(T* p) {
#if defined(__CUDA_ARCH__)
  __builtin_assume(__isShared(p));
#endif
  return p;
}
template <class T>
RK_INLINE T* as_global(T* p) {
#if defined(__CUDA_ARCH__)
  __builtin_assume(__isGlobal(p));
#endif
  return p;
}

RK_INLINE float4 add4(float4 a, float4 b) { return {a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w}; }
RK_INLINE void store1(float* p, float v) { *as_global(p) = v; }
RK_INLINE void store4(float* p, float4 v) { *as_global(reinterpret_cast<float4*>(p)) = v; }

// 16 bytes of shared memory, `offset` bytes from `base`, aligned. For pointers of which the compiler cannot see that they are
// to shared memory and would make slower generic accesses. Accesses by these functions keep their order among the folder's functions.
RK_INLINE float4 load_shared4(const void* base, int offset) {
#if defined(__CUDA_ARCH__)
  float4 v;
  asm volatile("ld.shared.v4.f32 {%0,%1,%2,%3}, [%4];"
               : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
               : "r"(smem_address(base) + static_cast<uint32_t>(offset)));
  return v;
#else
  return *reinterpret_cast<const float4*>(static_cast<const char*>(base) + offset);
#endif
}

RK_INLINE float2 load_shared2(const void* base, int offset) {
#if defined(__CUDA_ARCH__)
  float2 v;
  asm volatile("ld.shared.v2.f32 {%0,%1}, [%2];" : "=f"(v.x), "=f"(v.y) : "r"(smem_address(base) + static_cast<uint32_t>(offset)));
  return v;
#else
  return *reinterpret_cast<const float2*>(static_cast<const char*>(base) + offset);
#endif
}
RK_INLINE uint32_t load_shared_word(const void* base, int offset) {
#if defined(__CUDA_ARCH__)
  uint32_t v;
  asm volatile("ld.shared.u32 %0, [%1];" : "=r"(v) : "r"(smem_address(base) + static_cast<uint32_t>(offset)));
  return v;
#else
  return *reinterpret_cast<const uint32_t*>(static_cast<const char*>(base) + offset);
#endif
}

RK_INLINE int load_shared_int16(const void* base, int offset) {
#if defined(__CUDA_ARCH__)
  short v;
  asm volatile("ld.shared.s16 %0, [%1];" : "=h"(v) : "r"(smem_address(base) + static_cast<uint32_t>(offset)));
  return v;
#else
  return *reinterpret_cast<const int16_t*>(static_cast<const char*>(base) + offset);
#endif
}

RK_INLINE void store_shared4(void* base, int offset, float4 v) {
#if defined(__CUDA_ARCH__)
  asm volatile("st.shared.v4.f32 [%0], {%1,%2,%3,%4};" ::"r"(smem_address(base) + static_cast<uint32_t>(offset)), "f"(v.x), "f"(v.y),
               "f"(v.z), "f"(v.w)
               : "memory");
#else
  *reinterpret_cast<float4*>(static_cast<char*>(base) + offset) = v;
#endif
}

RK_INLINE void store_shared2(void* base, int offset, float2 v) {
#if defined(__CUDA_ARCH__)
  asm volatile("st.shared.v2.f32 [%0], {%1,%2};" ::"r"(smem_address(base) + static_cast<uint32_t>(offset)), "f"(v.x), "f"(v.y) : "memory");
#else
  *reinterpret_cast<float2*>(static_cast<char*>(base) + offset) = v;
#endif
}

RK_INLINE void store_shared_word(void* base, int offset, uint32_t word) {
#if defined(__CUDA_ARCH__)
  asm volatile("st.shared.b32 [%0], %1;" ::"r"(smem_address(base) + static_cast<uint32_t>(offset)), "r"(word) : "memory");
#else
  *reinterpret_cast<uint32_t*>(static_cast<char*>(base) + offset) = word;
#endif
}

// Returns x, and makes the compiler compute x here. To save a register the compiler would compute x just before its use: between a
// product and the store of the product, where all threads wait.
RK_INLINE int computed_now(int x) {
#if defined(__CUDA_ARCH__)
  asm volatile("" : "+r"(x));
#endif
  return x;
}

// Copies 16 (4) bytes from global to shared memory; zeros instead where !valid (gmem is then not read). The copying thread sees the
// data after its own cp_async_commit and cp_async_wait, other threads after a barrier that follows these.
RK_INLINE void cp_async16(void* smem, const void* gmem, bool valid) {
#if RK_HAS_CP_ASYNC
  const int bytes = valid ? 16 : 0;
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(smem_address(smem)), "l"(gmem), "r"(bytes) : "memory");
#elif defined(TAMP_CUDA_ON_CPU)
  cuda_on_cpu::cp_async(smem, gmem, 16, valid);
#elif defined(__CUDA_ARCH__)
  *static_cast<float4*>(smem) = valid ? __ldcg(static_cast<const float4*>(gmem)) : float4{0, 0, 0, 0};
#endif
}

RK_INLINE void cp_async4(void* smem, const void* gmem, bool valid) {
#if RK_HAS_CP_ASYNC
  const int bytes = valid ? 4 : 0;
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(smem_address(smem)), "l"(gmem), "r"(bytes) : "memory");
#elif defined(TAMP_CUDA_ON_CPU)
  cuda_on_cpu::cp_async(smem, gmem, 4, valid);
#elif defined(__CUDA_ARCH__)
  *static_cast<float*>(smem) = valid ? __ldcg(static_cast<const float*>(gmem)) : 0.0f;
#endif
}

RK_INLINE void cp_async_commit() {
#if RK_HAS_CP_ASYNC
  asm volatile("cp.async.commit_group;" ::: "memory");
#elif defined(TAMP_CUDA_ON_CPU)
  cuda_on_cpu::cp_async_commit();
#endif
}

// Waits until at most kPending of this thread's groups are still under way.
template <int kPending>
RK_INLINE void cp_async_wait() {
#if RK_HAS_CP_ASYNC
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
#elif defined(TAMP_CUDA_ON_CPU)
  cuda_on_cpu::cp_async_wait(kPending);
#endif
}

}  // namespace rk
