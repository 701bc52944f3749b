// Stand-in for the CUDA runtime: the same .cu that nvcc compiles runs on a CPU, without a GPU or the CUDA Toolkit:
//   g++ -std=c++20 -O2 -x c++ -DTAMP_CUDA_ON_CPU -I <this folder> NAME.cu -x none MAIN.cpp -lboost_context
// Header-only. Every CUDA thread is a fiber, every thread block a vEU; one OS thread runs them all, in an order drawn
// from a seed (TAMP_SEED), so that a missing wait gives a wrong result with one of a few seeds.
//
// `__shared__` is left undefined on purpose: a variable would be shared by all vEUs, which are one process here. Shared
// memory is cuda_on_cpu::shared_memory() alone. `__noinline__` is left undefined because libstdc++ uses that name.
#pragma once

#include "cuda_runtime_api.h"

#if defined(__cplusplus) && __cplusplus > 201703L
#include "cpu_warp.h"

// After the standard headers, which must not see these macros.
#define __global__
#define __device__
#define __host__
#define __constant__
#define __grid_constant__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __cluster_dims__(...)
#define __align__(n) __attribute__((aligned(n)))

#define threadIdx (::cuda_on_cpu::current->thread_idx)
#define blockIdx (::cuda_on_cpu::current->block_idx)
#define blockDim (::cuda_on_cpu::launch->block_dim)
#define gridDim (::cuda_on_cpu::launch->grid_dim)
#define warpSize 32
#endif
