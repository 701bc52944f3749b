// Products by wgmma: a warpgroup, four warps of which the first one's number is a multiple of four, multiplies at once (PTX ISA, wgmma).
#pragma once

#include "kernels/vdevice/platform.cuh"
#include "kernels/vdevice/sync.cuh"

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
namespace rk {

// Columns of B in shared memory: a column is 128 bytes, with its cells permuted as in boxes (boxes.cuh). `step`: bytes from 8 columns to
// the next 8, a multiple of 128.
RK_INLINE uint64_t wide_operand(const void* base, int offset, int step = 1024) {
  const uint32_t at = smem_address(base) + static_cast<uint32_t>(offset);
  return uint64_t{1} << 62 | static_cast<uint64_t>(static_cast<uint32_t>(step) >> 4) << 32 | uint64_t{1} << 16 |
         (at & 0x3ffffu) >> 4;  // 128-byte pattern
}

// All 128 threads call begin_wide and end_wide together. Between the two calls nothing may change A; D is complete after end_wide.
RK_INLINE void begin_wide() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
RK_INLINE void end_wide() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
}

// The operands of an instruction: d[8 * eights][4], a thread's sums.
#define RK_REGISTERS_32                                                    \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define RK_REGISTERS_64                                                                  \
  RK_REGISTERS_32                                                                        \
      ", "                                                                               \
      "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
      "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define RK_REGISTERS_96                                                                  \
  RK_REGISTERS_64                                                                        \
      ", "                                                                               \
      "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, " \
      "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"
#define RK_SUMS_4(j) "+f"(d[j][0]), "+f"(d[j][1]), "+f"(d[j][2]), "+f"(d[j][3])
#define RK_SUMS_16(j) RK_SUMS_4(j), RK_SUMS_4(j + 1), RK_SUMS_4(j + 2), RK_SUMS_4(j + 3)
#define RK_SUMS_32 RK_SUMS_16(0), RK_SUMS_16(4)
#define RK_SUMS_64 RK_SUMS_32, RK_SUMS_16(8), RK_SUMS_16(12)
#define RK_SUMS_96 RK_SUMS_64, RK_SUMS_16(16), RK_SUMS_16(20)

// D[64][n] += A[64][8] * B[8][n], n being 64, 128 or 192. Warp w of the four holds rows 16 w to 16 w + 15 of A and D in the lanes that
// mma_tf32 has them in; d[j] is columns 8 j to 8 j + 7.
#define RK_WIDE(n, sums, operands)                                                                                         \
  asm volatile("wgmma.mma_async.sync.aligned.m64n" #n "k8.f32.tf32.tf32 {" RK_REGISTERS_##sums "}, " operands ", 1, 1, 1;" \
               : RK_SUMS_##sums                                                                                            \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b))
template <int EIGHTS>
RK_INLINE void wide_tf32(float (&d)[EIGHTS][4], const uint32_t (&a)[4], uint64_t b) {
  static_assert(EIGHTS == 8 || EIGHTS == 16 || EIGHTS == 24);
  if constexpr (EIGHTS == 8) RK_WIDE(64, 32, "{%32, %33, %34, %35}, %36");
  if constexpr (EIGHTS == 16) RK_WIDE(128, 64, "{%64, %65, %66, %67}, %68");
  if constexpr (EIGHTS == 24) RK_WIDE(192, 96, "{%96, %97, %98, %99}, %100");
}

// The same for 16-bit values, 16 of k at a time, with A in shared memory, too: a row of A is 128 bytes, as a column of B.
#define RK_DEEP(n, sums, type, operands)                                                                                                  \
  asm volatile("wgmma.mma_async.sync.aligned.m64n" #n "k16.f32." type "." type " {" RK_REGISTERS_##sums "}, " operands ", 1, 1, 1, 0, 0;" \
               : RK_SUMS_##sums                                                                                                           \
               : "l"(a), "l"(b))
#define RK_DEEP_ANY(type)                                         \
  static_assert(EIGHTS == 8 || EIGHTS == 16 || EIGHTS == 24);     \
  if constexpr (EIGHTS == 8) RK_DEEP(64, 32, type, "%32, %33");   \
  if constexpr (EIGHTS == 16) RK_DEEP(128, 64, type, "%64, %65"); \
  if constexpr (EIGHTS == 24) RK_DEEP(192, 96, type, "%96, %97")
template <int EIGHTS>
RK_INLINE void deep_f16(float (&d)[EIGHTS][4], uint64_t a, uint64_t b) {
  RK_DEEP_ANY("f16");
}
template <int EIGHTS>
RK_INLINE void deep_bf16(float (&d)[EIGHTS][4], uint64_t a, uint64_t b) {
  RK_DEEP_ANY("bf16");
}
#undef RK_DEEP_ANY
#undef RK_DEEP
#undef RK_WIDE
#undef RK_SUMS_96
#undef RK_SUMS_64
#undef RK_SUMS_32
#undef RK_SUMS_16
#undef RK_SUMS_4
#undef RK_REGISTERS_96
#undef RK_REGISTERS_64
#undef RK_REGISTERS_32

}  // namespace rk
#endif
