// The product of bytes on tensor cores, with sums of 32 bits that are exact.
//
// mma_bytes: D[16][8] += A[16][32] * B[32][8], four bytes a word, the one at the smallest k lowest. A is signed; B is, or not.
// mma_bytes_unsigned: A is unsigned, B signed. With g and t as in mma.cuh a lane holds
//   a[0] = A[g][4t ..]  a[1] = A[g+8][4t ..]  a[2] = A[g][4t+16 ..]  a[3] = A[g+8][4t+16 ..]
//   b[0] = B[4t ..][g]  b[1] = B[4t+16 ..][g]
// and d as there (PTX ISA, mma.m16n8k32). So words lie as those of mma_f16 do, for twice as many k.
// Example: a[2] of lane 13 (g = 3, t = 1) is A[3][20] in the lowest byte, up to A[3][23].
#pragma once

#include "kernels/vdevice/platform.cuh"

namespace rk {

template <bool SIGNED>
RK_INLINE void mma_bytes(int32_t (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
#if defined(TAMP_CUDA_ON_CPU)
  cuda_on_cpu::mma_bytes<SIGNED>(d, a, b);
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  if constexpr (SIGNED) {
    asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  } else {
    asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.u8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  }
#elif defined(__CUDA_ARCH__)
  __trap();  // the vDevice has no tensor cores for it; the compiler never chooses such a body for it
#endif
}

RK_INLINE void mma_bytes_unsigned(int32_t (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
#if defined(TAMP_CUDA_ON_CPU)
  cuda_on_cpu::mma_bytes<true, false>(d, a, b);
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
               : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#elif defined(__CUDA_ARCH__)
  __trap();  // see mma_bytes
#endif
}

}  // namespace rk
