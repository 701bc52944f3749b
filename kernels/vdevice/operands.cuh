// Operands of products in shared memory, in boxes of 64 k whose rows of 128 bytes have permuted cells (boxes.cuh): as wgmma takes them
// where there is wgmma, and elsewhere as ldmatrix does.
#pragma once

#include "kernels/vdevice/wgmma.cuh"

namespace rk {

// A place among operands in shared memory, as an instruction takes it.
struct OperandPlace {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  uint32_t at;
  RK_INLINE OperandPlace(const char* base, int byte) : at(wide_place(base, byte)) {}
  RK_INLINE void move(int bytes) { at += static_cast<uint32_t>(bytes) >> 4; }
#else
  const char* base;
  int at;
  RK_INLINE OperandPlace(const char* base_, int byte) : base(base_), at(byte) {}
  RK_INLINE void move(int bytes) { at += bytes; }
#endif
};

// Around products that an instruction only begins (wgmma.cuh); nothing where it ends them.
RK_INLINE void begin_products() {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  begin_wide();
#endif
}
RK_INLINE void commit_products() {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  commit_wide();
#endif
}
template <int LEFT>
RK_INLINE void wait_products() {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  wait_wide<LEFT>();
#endif
}

// Boxes of operands begin at a multiple of 1024 bytes.
RK_INLINE char* operand_boxes(char* work) {
#if defined(__CUDA_ARCH__)
  return as_shared(work + ((0u - smem_address(work)) & 1023u));
#else
  return work;
#endif
}

}  // namespace rk
