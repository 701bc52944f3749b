// Which vEU a block is. Neighbouring vEUs mostly do neighbouring rTasks, which read the same weights or the same inputs at about the same
// time, and SMs with neighbouring numbers share a path to memory. But the GPU puts blocks 0, 1, 2, .. on distant SMs: on an H200 block 0
// may be on SM 0 and block 1 on SM 18. So where it is faster (RProgram::veus_by_sm), an instance asks once on which SM each block of such
// a launch is put (runtime_stub/host/place_veus.h), and numbers its vEUs in the order of the SMs. Results are right with any
// numbering, even if the GPU puts blocks elsewhere later; only times depend on the numbering.
#pragma once

#include "kernels/vdevice/launch.cuh"

namespace rk {

#if !defined(TAMP_CUDA_ON_CPU)
// sm_of_block: one number for each block, that of its SM.
static __global__ void find_placement(uint32_t* sm_of_block) {
  uint32_t sm;
  asm volatile("mov.u32 %0, %%smid;" : "=r"(sm));
  if (threadIdx.x == 0) sm_of_block[blockIdx.x] = sm;
}
#endif

}  // namespace rk
