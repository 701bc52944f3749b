// Programmatic dependent launch, the device half (docs/adr/0012): a kernel may be put on the SMs while the kernel before it in its stream
// still runs. The later kernel itself waits for the end of the earlier one before it touches memory that kernels write. This needs
// sm_90 or later. On other GPUs the functions do nothing, nor on the stand-in, where a launch returns when its kernel has ended.
#pragma once

#include "kernels/vdevice/platform.cuh"

namespace rk {

// Waits until the kernel before has ended and its stores can be seen; passes at once in a kernel that was launched in the usual way. Every
// block of a kernel waits here; so when a kernel has ended, all kernels before it in a row of such launches have ended, too.
RK_INLINE void wait_for_kernel_before() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// The next kernel may be put on the SMs as soon as each block of this kernel has called this function or ended.
RK_INLINE void let_next_kernel_come() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

}  // namespace rk
