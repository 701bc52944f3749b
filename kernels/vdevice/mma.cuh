// Tensor-core products of one warp, and the loads that feed them.
//
// mma_tf32: D[16][8] += A[16][8] * B[8][8]. With g = lane / 4 and t = lane % 4, a lane holds
//   a[0] = A[g][t]  a[1] = A[g+8][t]  a[2] = A[g][t+4]  a[3] = A[g+8][t+4]
//   b[0] = B[t][g]  b[1] = B[t+4][g]
//   d[0] = D[g][2t] d[1] = D[g][2t+1] d[2] = D[g+8][2t] d[3] = D[g+8][2t+1]
// (PTX ISA, mma.m16n8k8 for .tf32). Example: lane 13 has g = 3 and t = 1, so a = A[3][1], A[11][1], A[3][5], A[11][5],
// b = B[1][3], B[5][3] and d = D[3][2], D[3][3], D[11][2], D[11][3].
//
// The GPU reads the upper 19 bits of an operand and ignores the lower 13. That would make numbers too small on average. So to_tf32 first
// adds x * kTf32Share, a part of half a unit of the last place that is kept. Then what is added and what is cut off cancel on average;
// a number that is tf32 already stays the same; the error is below 0.7 of a last place (rounding to nearest: 0.5). It is one
// multiply-add, which keeps NaN. (cvt.rna.tf32 is two dependent instructions on sm_90. Adding 0x1000 to the bits of x would turn the
// GPU's own NaN, 0x7fffffff, into a zero.)
#pragma once

#include "kernels/vdevice/platform.cuh"

namespace rk {

RK_INLINE uint32_t bits_of(float x) {
#if defined(TAMP_CUDA_ON_CPU)
  return cuda_on_cpu::bits_of(x);
#else
  return __float_as_uint(x);
#endif
}
RK_INLINE float float_of(uint32_t x) {
#if defined(TAMP_CUDA_ON_CPU)
  return cuda_on_cpu::float_of(x);
#else
  return __uint_as_float(x);
#endif
}

RK_INLINE uint32_t to_tf32(float x) {
#if defined(TAMP_CUDA_ON_CPU)
  return cuda_on_cpu::bits_of(fmaf(x, kTf32Share, x)) & 0xffffe000u;
#else
  return __float_as_uint(fmaf(x, kTf32Share, x));
#endif
}

RK_INLINE void mma_tf32(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
#if defined(TAMP_CUDA_ON_CPU)
  cuda_on_cpu::mma_tf32(d, a, b);
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#elif defined(__CUDA_ARCH__)
  __trap();  // the vDevice has no tf32; the compiler never chooses such a body for it
#endif
}

// mma_f16, mma_bf16: D[16][8] += A[16][16] * B[16][8], two 16-bit values a word, the one at the smaller k in the lower half. A lane holds
//   a[0] = A[g][2t, 2t+1]  a[1] = A[g+8][2t, 2t+1]  a[2] = A[g][2t+8, 2t+9]  a[3] = A[g+8][2t+8, 2t+9]
//   b[0] = B[2t, 2t+1][g]  b[1] = B[2t+8, 2t+9][g]
// and d as above. (PTX ISA, mma.m16n8k16.) Example: a[2] of lane 13 (g = 3, t = 1) is A[3][10] in the lower half, A[3][11] in the upper.
RK_INLINE void mma_f16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
#if defined(TAMP_CUDA_ON_CPU)
  cuda_on_cpu::mma_f16(d, a, b);
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#elif defined(__CUDA_ARCH__)
  __trap();  // as for tf32
#endif
}
RK_INLINE void mma_bf16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
#if defined(TAMP_CUDA_ON_CPU)
  cuda_on_cpu::mma_bf16(d, a, b);
#elif defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#elif defined(__CUDA_ARCH__)
  __trap();
#endif
}

// Four 8 x 16-byte matrices from shared memory. Lane l gives the address (base plus offset in bytes) of row l % 8 of matrix l / 8;
// afterwards r[i] of lane l holds word l % 4 of row l / 4 of matrix i. With rows of 4 tf32 values this is exactly operand A of mma_tf32
// when the matrices are (rows 0-7, k 0-3), (rows 8-15, k 0-3), (rows 0-7, k 4-7), (rows 8-15, k 4-7).
// Example: lane 13 gives the address of row 5 of matrix 1 and gets word 1 of row 3 of each matrix: A[3][1], A[11][1], A[3][5], A[11][5].
RK_INLINE void ldmatrix4(uint32_t (&r)[4], const void* base, int offset) {
#if defined(TAMP_CUDA_ON_CPU)
  cuda_on_cpu::ldmatrix4(r, static_cast<const char*>(base) + offset);
#elif defined(__CUDA_ARCH__)
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(smem_address(base) + static_cast<uint32_t>(offset))
               : "memory");
#endif
}

// The same matrices, of 16-bit values, turned round: afterwards the lower half of r[i] of lane l holds column l / 4 of row l % 4 * 2 of
// matrix i, the upper half that of the next row. With rows of B (k) as rows of memory, this is operand B of mma_f16 and mma_bf16.
// Example: lane 13 gets column 3 of rows 2 and 3 of each matrix: B[2][3], B[3][3] and, if matrix 1 is k 8 to 15, B[10][3], B[11][3].
RK_INLINE void ldmatrix4_turned(uint32_t (&r)[4], const void* base, int offset) {
#if defined(TAMP_CUDA_ON_CPU)
  cuda_on_cpu::ldmatrix4_turned(r, static_cast<const char*>(base) + offset);
#elif defined(__CUDA_ARCH__)
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(smem_address(base) + static_cast<uint32_t>(offset))
               : "memory");
#endif
}

}  // namespace rk
