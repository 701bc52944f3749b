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

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
// D[64][64] += A[64][8] * B[8][64] by a warpgroup: four warps, the first one's number a multiple of four. Warp w of the four holds rows
// 16 w to 16 w + 15 of A and D in the lanes that mma_tf32 has them in; d[j] is columns 8 j to 8 j + 7. B is in shared memory: a column is
// 128 bytes, with its cells permuted as in boxes (boxes.cuh). All 128 threads call begin_wide and end_wide together. Between the two
// calls nothing may change A; D is complete after end_wide. (PTX ISA, wgmma.)
// `step`: bytes from 8 columns to the next 8, a multiple of 128.
RK_INLINE uint64_t wide_operand(const void* base, int offset, int step = 1024) {
  const uint32_t at = smem_address(base) + static_cast<uint32_t>(offset);
  return uint64_t{1} << 62 | static_cast<uint64_t>(static_cast<uint32_t>(step) >> 4) << 32 | uint64_t{1} << 16 |
         (at & 0x3ffffu) >> 4;  // 128-byte pattern
}
RK_INLINE void begin_wide() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
RK_INLINE void wide_tf32(float (&d)[8][4], const uint32_t (&a)[4], uint64_t b) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n64k8.f32.tf32.tf32 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
      "{%32, %33, %34, %35}, %36, 1, 1, 1;"
      : "+f"(d[0][0]), "+f"(d[0][1]), "+f"(d[0][2]), "+f"(d[0][3]), "+f"(d[1][0]), "+f"(d[1][1]), "+f"(d[1][2]), "+f"(d[1][3]),
        "+f"(d[2][0]), "+f"(d[2][1]), "+f"(d[2][2]), "+f"(d[2][3]), "+f"(d[3][0]), "+f"(d[3][1]), "+f"(d[3][2]), "+f"(d[3][3]),
        "+f"(d[4][0]), "+f"(d[4][1]), "+f"(d[4][2]), "+f"(d[4][3]), "+f"(d[5][0]), "+f"(d[5][1]), "+f"(d[5][2]), "+f"(d[5][3]),
        "+f"(d[6][0]), "+f"(d[6][1]), "+f"(d[6][2]), "+f"(d[6][3]), "+f"(d[7][0]), "+f"(d[7][1]), "+f"(d[7][2]), "+f"(d[7][3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}
// The same for 16-bit values and 64 or 128 columns, with A in shared memory, too: a row of A is 128 bytes, as a column of B.
#define RK_DEEP_SUMS(j) "+f"(d[j][0]), "+f"(d[j][1]), "+f"(d[j][2]), "+f"(d[j][3])
#define RK_DEEP_64(types)                                                                                                               \
  asm volatile("wgmma.mma_async.sync.aligned.m64n64k16.f32." types                                                                      \
               " {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "                                               \
               "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, %32, %33, 1, 1, 1, 0, 0;"              \
               : RK_DEEP_SUMS(0), RK_DEEP_SUMS(1), RK_DEEP_SUMS(2), RK_DEEP_SUMS(3), RK_DEEP_SUMS(4), RK_DEEP_SUMS(5), RK_DEEP_SUMS(6), \
                 RK_DEEP_SUMS(7)                                                                                                        \
               : "l"(a), "l"(b))
#define RK_DEEP_128(types)                                                                                                              \
  asm volatile("wgmma.mma_async.sync.aligned.m64n128k16.f32." types                                                                     \
               " {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "                                               \
               "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "                                       \
               "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "                                       \
               "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, %64, %65, 1, 1, 1, 0, 0;"              \
               : RK_DEEP_SUMS(0), RK_DEEP_SUMS(1), RK_DEEP_SUMS(2), RK_DEEP_SUMS(3), RK_DEEP_SUMS(4), RK_DEEP_SUMS(5), RK_DEEP_SUMS(6), \
                 RK_DEEP_SUMS(7), RK_DEEP_SUMS(8), RK_DEEP_SUMS(9), RK_DEEP_SUMS(10), RK_DEEP_SUMS(11), RK_DEEP_SUMS(12),               \
                 RK_DEEP_SUMS(13), RK_DEEP_SUMS(14), RK_DEEP_SUMS(15)                                                                   \
               : "l"(a), "l"(b))
RK_INLINE void deep_f16(float (&d)[8][4], uint64_t a, uint64_t b) { RK_DEEP_64("f16.f16"); }
RK_INLINE void deep_bf16(float (&d)[8][4], uint64_t a, uint64_t b) { RK_DEEP_64("bf16.bf16"); }
RK_INLINE void deep_f16(float (&d)[16][4], uint64_t a, uint64_t b) { RK_DEEP_128("f16.f16"); }
RK_INLINE void deep_bf16(float (&d)[16][4], uint64_t a, uint64_t b) { RK_DEEP_128("bf16.bf16"); }
#undef RK_DEEP_128
#undef RK_DEEP_64
#undef RK_DEEP_SUMS
RK_INLINE void end_wide() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
}
#endif

}  // namespace rk
