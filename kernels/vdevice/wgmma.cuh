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

// The two words of that: where it begins, which grows by 1 for every 16 bytes, and what stays.
RK_INLINE uint32_t wide_place(const void* base, int offset) {
  return 1u << 16 | ((smem_address(base) + static_cast<uint32_t>(offset)) & 0x3ffffu) >> 4;
}
RK_INLINE uint32_t wide_pattern(int step = 1024) { return 1u << 30 | static_cast<uint32_t>(step) >> 4; }
RK_INLINE uint64_t wide_operand(uint32_t place, uint32_t pattern) { return static_cast<uint64_t>(pattern) << 32 | place; }

// All 128 threads call these together. begin_wide comes before a group of products, commit_wide behind it. Until wait_wide says that the
// group is done, nothing may change its operands, and D is not complete.
RK_INLINE void begin_wide() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
RK_INLINE void commit_wide() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
// Until all groups but the last `LEFT` are done.
template <int LEFT>
RK_INLINE void wait_wide() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(LEFT) : "memory");
}
RK_INLINE void end_wide() {
  commit_wide();
  wait_wide<0>();
}

// The operands of an instruction: a thread's sums, d[eights][4], and behind them A and B.
#define RK_REGISTERS_16 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
#define RK_REGISTERS_24 RK_REGISTERS_16 ", %16, %17, %18, %19, %20, %21, %22, %23"
#define RK_REGISTERS_32 RK_REGISTERS_24 ", %24, %25, %26, %27, %28, %29, %30, %31"
#define RK_REGISTERS_40 RK_REGISTERS_32 ", %32, %33, %34, %35, %36, %37, %38, %39"
#define RK_REGISTERS_48 RK_REGISTERS_40 ", %40, %41, %42, %43, %44, %45, %46, %47"
#define RK_REGISTERS_56 RK_REGISTERS_48 ", %48, %49, %50, %51, %52, %53, %54, %55"
#define RK_REGISTERS_64 RK_REGISTERS_56 ", %56, %57, %58, %59, %60, %61, %62, %63"
#define RK_REGISTERS_72 RK_REGISTERS_64 ", %64, %65, %66, %67, %68, %69, %70, %71"
#define RK_REGISTERS_80 RK_REGISTERS_72 ", %72, %73, %74, %75, %76, %77, %78, %79"
#define RK_REGISTERS_96 RK_REGISTERS_80 ", %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"
#define RK_REGISTERS_112 RK_REGISTERS_96 ", %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111"
#define RK_SUM(x) "+f"(x)
#define RK_SUMS_4(j) RK_SUM(d[j][0]), RK_SUM(d[j][1]), RK_SUM(d[j][2]), RK_SUM(d[j][3])
#define RK_SUMS_8(j) RK_SUMS_4(j), RK_SUMS_4(j + 1)
#define RK_SUMS_16(j) RK_SUMS_8(j), RK_SUMS_8(j + 2)
#define RK_REGISTERS_16_ALONE RK_REGISTERS_16
#define RK_SUMS_16_ALONE RK_SUMS_16(0)
#define RK_SUMS_24 RK_SUMS_16(0), RK_SUMS_8(4)
#define RK_SUMS_32 RK_SUMS_24, RK_SUMS_8(6)
#define RK_SUMS_40 RK_SUMS_32, RK_SUMS_8(8)
#define RK_SUMS_48 RK_SUMS_40, RK_SUMS_8(10)
#define RK_SUMS_56 RK_SUMS_48, RK_SUMS_8(12)
#define RK_SUMS_64 RK_SUMS_56, RK_SUMS_8(14)
#define RK_SUMS_72 RK_SUMS_64, RK_SUMS_8(16)
#define RK_SUMS_80 RK_SUMS_72, RK_SUMS_8(18)
#define RK_SUMS_96 RK_SUMS_80, RK_SUMS_16(20)
#define RK_SUMS_112 RK_SUMS_96, RK_SUMS_16(24)

// D[64][n] += A[64][8] * B[8][n], n being 8 * EIGHTS. Warp w of the four holds rows 16 w to 16 w + 15 of A and D in the lanes that mma_tf32
// has them in; d[j] is columns 8 j to 8 j + 7.
#define RK_WIDE(n, sums, operands)                                                                                         \
  asm volatile("wgmma.mma_async.sync.aligned.m64n" #n "k8.f32.tf32.tf32 {" RK_REGISTERS_##sums "}, " operands ", 1, 1, 1;" \
               : RK_SUMS_##sums                                                                                            \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b))
template <int EIGHTS>
RK_INLINE void wide_tf32(float (&d)[EIGHTS][4], const uint32_t (&a)[4], uint64_t b) {
  static_assert(EIGHTS == 8 || EIGHTS == 12 || EIGHTS == 14 || EIGHTS == 16 || EIGHTS == 18 || EIGHTS == 20 || EIGHTS == 24);
  if constexpr (EIGHTS == 8) RK_WIDE(64, 32, "{%32, %33, %34, %35}, %36");
  if constexpr (EIGHTS == 12) RK_WIDE(96, 48, "{%48, %49, %50, %51}, %52");
  if constexpr (EIGHTS == 14) RK_WIDE(112, 56, "{%56, %57, %58, %59}, %60");
  if constexpr (EIGHTS == 16) RK_WIDE(128, 64, "{%64, %65, %66, %67}, %68");
  if constexpr (EIGHTS == 18) RK_WIDE(144, 72, "{%72, %73, %74, %75}, %76");
  if constexpr (EIGHTS == 20) RK_WIDE(160, 80, "{%80, %81, %82, %83}, %84");
  if constexpr (EIGHTS == 24) RK_WIDE(192, 96, "{%96, %97, %98, %99}, %100");
}

// The same for 16-bit values, 16 of k at a time, with A in shared memory, too: a row of A is 128 bytes, as a column of B.
#define RK_DEEP(n, sums, type, operands)                                                                                                  \
  asm volatile("wgmma.mma_async.sync.aligned.m64n" #n "k16.f32." type "." type " {" RK_REGISTERS_##sums "}, " operands ", 1, 1, 1, 0, 0;" \
               : RK_SUMS_##sums                                                                                                           \
               : "l"(a), "l"(b))
#define RK_DEEP_ANY(product, type)                                                                    \
  static_assert(EIGHTS >= 4 && EIGHTS <= 28 && (EIGHTS % 4 == 0 || EIGHTS <= 18) && EIGHTS % 2 == 0); \
  if constexpr (EIGHTS == 4) product(32, 16_ALONE, type, "%16, %17");                                 \
  if constexpr (EIGHTS == 6) product(48, 24, type, "%24, %25");                                       \
  if constexpr (EIGHTS == 8) product(64, 32, type, "%32, %33");                                       \
  if constexpr (EIGHTS == 10) product(80, 40, type, "%40, %41");                                      \
  if constexpr (EIGHTS == 12) product(96, 48, type, "%48, %49");                                      \
  if constexpr (EIGHTS == 14) product(112, 56, type, "%56, %57");                                     \
  if constexpr (EIGHTS == 16) product(128, 64, type, "%64, %65");                                     \
  if constexpr (EIGHTS == 18) product(144, 72, type, "%72, %73");                                     \
  if constexpr (EIGHTS == 20) product(160, 80, type, "%80, %81");                                     \
  if constexpr (EIGHTS == 24) product(192, 96, type, "%96, %97");                                     \
  if constexpr (EIGHTS == 28) product(224, 112, type, "%112, %113")
template <int EIGHTS>
RK_INLINE void deep_f16(float (&d)[EIGHTS][4], uint64_t a, uint64_t b) {
  RK_DEEP_ANY(RK_DEEP, "f16");
}
template <int EIGHTS>
RK_INLINE void deep_bf16(float (&d)[EIGHTS][4], uint64_t a, uint64_t b) {
  RK_DEEP_ANY(RK_DEEP, "bf16");
}
#undef RK_DEEP

// The same for bytes, 32 of k at a time: A is signed, `type` is that of B.
#undef RK_SUM
#define RK_SUM(x) "+r"(x)
#define RK_DEEP(n, sums, type, operands)                                                                                \
  asm volatile("wgmma.mma_async.sync.aligned.m64n" #n "k32.s32.s8." type " {" RK_REGISTERS_##sums "}, " operands ", 1;" \
               : RK_SUMS_##sums                                                                                         \
               : "l"(a), "l"(b))
template <bool SIGNED, int EIGHTS>
RK_INLINE void deep_bytes(int32_t (&d)[EIGHTS][4], uint64_t a, uint64_t b) {
  if constexpr (SIGNED) {
    RK_DEEP_ANY(RK_DEEP, "s8");
  } else {
    RK_DEEP_ANY(RK_DEEP, "u8");
  }
}
#undef RK_SUM
#define RK_SUM(x) "+f"(x)
#undef RK_DEEP_ANY
#undef RK_DEEP

// The same with A in registers, as mma_f16 has it. TURNED 1: a row of B, and not a column, is 128 bytes of shared memory, for n up to 64.
// Example: a key's row of K is a column of B in Q * K, and its row of V is a row of B in P * V.
#define RK_HALF_WIDE(n, registers, sums, type, operands)                                                         \
  asm volatile("wgmma.mma_async.sync.aligned.m64n" #n "k16.f32." type "." type " {" registers "}, " operands ";" \
               : sums                                                                                            \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(TURNED))
#define RK_HALF_WIDE_ANY(type)                                                                                                  \
  static_assert(EIGHTS == 4 || EIGHTS == 8);                                                                                    \
  if constexpr (EIGHTS == 4) RK_HALF_WIDE(32, RK_REGISTERS_16, RK_SUMS_16(0), type, "{%16, %17, %18, %19}, %20, 1, 1, 1, %21"); \
  if constexpr (EIGHTS == 8) RK_HALF_WIDE(64, RK_REGISTERS_32, RK_SUMS_32, type, "{%32, %33, %34, %35}, %36, 1, 1, 1, %37")
template <int TURNED, int EIGHTS>
RK_INLINE void wide_f16(float (&d)[EIGHTS][4], const uint32_t (&a)[4], uint64_t b) {
  RK_HALF_WIDE_ANY("f16");
}
template <int TURNED, int EIGHTS>
RK_INLINE void wide_bf16(float (&d)[EIGHTS][4], const uint32_t (&a)[4], uint64_t b) {
  RK_HALF_WIDE_ANY("bf16");
}
#undef RK_HALF_WIDE_ANY
#undef RK_HALF_WIDE
#undef RK_SUMS_112
#undef RK_SUMS_96
#undef RK_SUMS_80
#undef RK_SUMS_72
#undef RK_SUMS_64
#undef RK_SUMS_56
#undef RK_SUMS_48
#undef RK_SUMS_40
#undef RK_SUMS_32
#undef RK_SUMS_24
#undef RK_SUMS_16_ALONE
#undef RK_SUMS_16
#undef RK_SUMS_8
#undef RK_SUMS_4
#undef RK_SUM
#undef RK_REGISTERS_112
#undef RK_REGISTERS_96
#undef RK_REGISTERS_80
#undef RK_REGISTERS_72
#undef RK_REGISTERS_64
#undef RK_REGISTERS_56
#undef RK_REGISTERS_48
#undef RK_REGISTERS_40
#undef RK_REGISTERS_32
#undef RK_REGISTERS_24
#undef RK_REGISTERS_16_ALONE
#undef RK_REGISTERS_16

}  // namespace rk
#endif
