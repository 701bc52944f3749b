// Registers that compute warps take over from the service warps (PTX ISA, setmaxnreg).
//
// A block starts with as many registers for each of its threads: with 12 warps on an SM of 65536 registers that is 168. Loader and waiter
// need less than half of them, a tile of 128 x 192 sums needs more. setmaxnreg is for whole warpgroups of four warps, so such a block has
// two warps more than others, which only give their registers away: 4 warps x 72 + 8 warps x 216 = 2016 = 12 x 168.
#pragma once

#include "kernels/vdevice/platform.cuh"

namespace rk {

inline constexpr int kIdleWarps = 2;  // behind the two service warps, where Veu::kManyRegisters

template <class Veu>
RK_INLINE void take_registers() {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  if constexpr (Veu::kManyRegisters) asm volatile("setmaxnreg.inc.sync.aligned.u32 216;");
#endif
}
template <class Veu>
RK_INLINE void give_registers() {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  if constexpr (Veu::kManyRegisters) asm volatile("setmaxnreg.dec.sync.aligned.u32 72;");
#endif
}

}  // namespace rk
