// Programmatic dependent launch, the device half (docs/adr/0012): a kernel may be put on the SMs while the one before it in its stream
// still runs, and waits itself for that one's end before it touches memory that kernels write. sm_90 and later; nothing on other GPUs,
// and nothing on the stand-in, where a launch returns when its kernel has ended.
#pragma once

#include "kernels/vdevice/platform.cuh"

namespace rk {

// Until the kernel before has ended and what it wrote can be seen; passes at once in a kernel that was launched in the usual way. Since
// every block of a kernel waits, the end of a kernel says that all before it in a row of such launches have ended, too.
RK_INLINE void wait_for_kernel_before() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// The next kernel may come as soon as all blocks of this one have said so, or have ended.
RK_INLINE void let_next_kernel_come() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

}  // namespace rk
