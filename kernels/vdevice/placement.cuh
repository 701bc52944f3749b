// Which vEU a block is. Neighbouring vEUs mostly do neighbouring rTasks, which read the same weights or the same inputs at about the same
// time, and SMs with neighbouring numbers share a way to them. Blocks 0, 1, 2, .. lie on different parts of the GPU instead: on an H200
// block 0 may be on SM 0, block 1 on SM 18. So where it is faster (RProgram::veus_by_sm) an instance asks once where the blocks of such a
// launch are put (place_veus of runtime_stub/host/instance.h), and numbers its vEUs by that. Any numbering is right, should blocks ever be
// put elsewhere; only times depend on it.
#pragma once

#include "kernels/vdevice/launch.cuh"

namespace rk {

#if !defined(TAMP_CUDA_ON_CPU)
// sm_of_block: a number for each block.
static __global__ void find_placement(uint32_t* sm_of_block) {
  uint32_t sm;
  asm volatile("mov.u32 %0, %%smid;" : "=r"(sm));
  if (threadIdx.x == 0) sm_of_block[blockIdx.x] = sm;
}
#endif

}  // namespace rk
