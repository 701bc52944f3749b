// Launches a kernel on the stand-in, and memory for it. Device memory is host memory here, so tests read it directly.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <type_traits>

namespace standin {

template <class... P>
cudaError_t launch(void (*kernel)(P...), unsigned veus, unsigned threads, int shared_bytes, std::type_identity_t<P>... values) {
  void* arguments[] = {&values..., nullptr};
  const cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes);
  if (error != cudaSuccess) return error;
  return cudaLaunchCooperativeKernel(kernel, dim3(veus), dim3(threads), arguments, static_cast<size_t>(shared_bytes), nullptr);
}

template <class T>
struct DeviceArray {
  explicit DeviceArray(size_t count, int byte = 0) : size(count) {
    cudaMalloc(&data, count * sizeof(T));
    cudaMemset(data, byte, count * sizeof(T));
  }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;
  ~DeviceArray() { cudaFree(data); }
  T& operator[](size_t i) { return data[i]; }

  T* data = nullptr;
  size_t size;
};

}  // namespace standin
