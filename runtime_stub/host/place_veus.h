// Numbers the vEUs of a program that wants it by the SMs that their blocks are on (RProgram::veus_by_sm).
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include "kernels/vdevice/placement.cuh"
#include "runtime_stub/host/program.h"

namespace tamp_host {

// Gives neighbouring vEUs neighbouring SMs (kernels/vdevice/placement.cuh): a launch of the same shape finds out on which SM each block
// is. The stand-in has no SMs; there vEUs are numbered in reverse, so that a numbering is tested there, too.
inline tamp_status place_veus(Instance& instance) {
  const Model& model = *instance.model;
  std::string& message = instance.message;
  const auto count = static_cast<size_t>(model.veus);
  const size_t bytes = sizeof(uint32_t) * count;
  std::vector<uint32_t> sm(count), blocks(count), veus(count);
  TAMP_TRY_CUDA(message, cudaMalloc(reinterpret_cast<void**>(&instance.veu_of_block), bytes));
#if defined(TAMP_CUDA_ON_CPU)
  for (size_t b = 0; b < count; ++b) sm[b] = static_cast<uint32_t>(count - b);
#else
  void* arguments[] = {&instance.veu_of_block};
  TAMP_TRY_CUDA(message, cudaFuncSetAttribute(rk::find_placement, cudaFuncAttributeMaxDynamicSharedMemorySize, model.smem_bytes));
  TAMP_TRY_CUDA(message,
                cudaLaunchCooperativeKernel(rk::find_placement, dim3(static_cast<unsigned>(model.veus)),
                                            dim3(static_cast<unsigned>(model.threads)), arguments, static_cast<size_t>(model.smem_bytes)));
  TAMP_TRY_CUDA(message, cudaMemcpy(sm.data(), instance.veu_of_block, bytes, cudaMemcpyDeviceToHost));
#endif
  std::iota(blocks.begin(), blocks.end(), 0U);
  std::stable_sort(blocks.begin(), blocks.end(), [&](uint32_t a, uint32_t b) { return sm[a] < sm[b]; });
  for (size_t v = 0; v < count; ++v) veus[blocks[v]] = static_cast<uint32_t>(v);
  TAMP_TRY_CUDA(message, cudaMemcpy(instance.veu_of_block, veus.data(), bytes, cudaMemcpyHostToDevice));
  return TAMP_OK;
}

}  // namespace tamp_host
