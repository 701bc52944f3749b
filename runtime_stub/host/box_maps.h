// Makes the descriptors by which the copy engine finds boxes of inputs (kernels/vdevice/boxes.cuh).
#pragma once

#include <cuda.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <string>

#include "runtime_stub/host/program.h"

namespace tamp_host {

// Makes the copy engine's descriptor of a tensor.
inline tamp_status encode(const BoxMap& box, char* arena, rk::TensorMap& map, std::string& message) {
#if defined(TAMP_CUDA_ON_CPU)
  (void)message;
  map.base = arena + box.offset_bytes;
  for (int d = 0; d < 4; ++d) {
    map.extents[d] = box.extents[d];
    map.strides[d] = box.strides[d] * box.value_bytes;
  }
  map.box_w = box.box_w;
  map.box_h = box.box_h;
  map.boxes = box.boxes;
  return TAMP_OK;
#else
  // From the driver by way of the runtime: linking needs the runtime only.
  void* symbol = nullptr;
  cudaDriverEntryPointQueryResult found{};
  TAMP_TRY_CUDA(message, cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &symbol, 12000, cudaEnableDefault, &found));
  if (found != cudaDriverEntryPointSuccess || symbol == nullptr)
    return fail(message, TAMP_DEVICE, "the driver has no cuTensorMapEncodeTiled; it is older than CUDA 12");
  // The fifth dimension is the boxes of a copy.
  const int64_t channels = rk::kBoxRowBytes / box.value_bytes, blocks = box.boxes > 1 ? box.extents[0] / channels : 1;
  cuuint64_t extents[5], strides[4];
  for (int d = 0; d < 4; ++d) extents[d] = static_cast<cuuint64_t>(box.extents[d]);
  for (int d = 0; d < 3; ++d) strides[d] = static_cast<cuuint64_t>(box.strides[d + 1] * box.value_bytes);
  extents[0] /= static_cast<cuuint64_t>(blocks);
  extents[4] = static_cast<cuuint64_t>(blocks);
  strides[3] = rk::kBoxRowBytes;
  const cuuint32_t sizes[5] = {static_cast<cuuint32_t>(channels), static_cast<cuuint32_t>(box.box_w), static_cast<cuuint32_t>(box.box_h), 1,
                               static_cast<cuuint32_t>(box.boxes)};
  const cuuint32_t ones[5] = {1, 1, 1, 1, 1};
  static_assert(sizeof(CUtensorMap) == sizeof(rk::TensorMap));
  const CUtensorMapDataType type = box.value_bytes == 1   ? CU_TENSOR_MAP_DATA_TYPE_UINT8
                                   : box.value_bytes == 2 ? CU_TENSOR_MAP_DATA_TYPE_UINT16
                                                          : CU_TENSOR_MAP_DATA_TYPE_FLOAT32;
  const CUresult result = reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(symbol)(
      reinterpret_cast<CUtensorMap*>(&map), type, 5, arena + box.offset_bytes, extents, strides, sizes, ones, CU_TENSOR_MAP_INTERLEAVE_NONE,
      CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS) return fail(message, TAMP_CUDA, "cuTensorMapEncodeTiled: error " + std::to_string(static_cast<int>(result)));
  return TAMP_OK;
#endif
}

inline tamp_status make_maps(Instance& instance) {
  const Model& model = *instance.model;
  std::string& message = instance.message;
  const size_t bytes = sizeof(rk::TensorMap) * static_cast<size_t>(model.map_count);
  if (bytes == 0) return TAMP_OK;
  TAMP_TRY_CUDA(message, cudaMalloc(reinterpret_cast<void**>(&instance.maps), bytes));
  for (int i = 0; i < model.map_count; ++i) {
    rk::TensorMap map{};
    const tamp_status encoded = encode(model.maps[i], instance.arena, map, message);
    if (encoded != TAMP_OK) return encoded;
    TAMP_TRY_CUDA(message, cudaMemcpy(instance.maps + i, &map, sizeof map, cudaMemcpyHostToDevice));
  }
  return TAMP_OK;
}

}  // namespace tamp_host
