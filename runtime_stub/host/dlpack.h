// A run whose inputs and outputs are DLPack's tensors. The structs have the same layout in memory as those of dlpack.h 0.8 and 1.x, so that
// a generated project needs no header of another library; NAME.h only declares the name DLManagedTensor.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <string>
#include <vector>

#include "runtime_stub/host/instance.h"

namespace tamp_host {
namespace dl {

enum Device : int32_t { kCpu = 1, kCuda = 2 };
enum Code : uint8_t { kInt = 0, kUInt = 1, kFloat = 2, kBfloat = 4, kBool = 6 };

struct Type {
  uint8_t code, bits;
  uint16_t lanes;
};

struct Tensor {
  void* data;
  int32_t device_type, device_id;
  int32_t ndim;
  Type dtype;
  int64_t* shape;
  int64_t* strides;  // in elements; null: dense, row-major
  uint64_t byte_offset;
};

struct ManagedTensor {
  Tensor tensor;
  void* manager_ctx;
  void (*deleter)(ManagedTensor* self);
};
static_assert(sizeof(void*) != 8 || (sizeof(Tensor) == 48 && offsetof(Tensor, shape) == 24 && sizeof(ManagedTensor) == 64));

#if defined(TAMP_CUDA_ON_CPU)
constexpr int32_t kDevice = kCpu;
#else
constexpr int32_t kDevice = kCuda;
#endif

}  // namespace dl

inline dl::Type dl_type(const tamp_port& port) {
  const std::string dtype = port.dtype;
  if (dtype == "bool") return {dl::kBool, 8, 1};
  const dl::Code code = dtype[0] == 'b' ? dl::kBfloat : dtype[0] == 'f' ? dl::kFloat : dtype[0] == 'i' ? dl::kInt : dl::kUInt;
  return {code, static_cast<uint8_t>(std::atoi(dtype.c_str() + dtype.find_first_of("0123456789"))), 1};
}

// "f32", "bool", or, for a type that tamp has no name for, "code 5 with 64 bits".
inline std::string dl_type_text(const dl::Type& type) {
  const std::string bits = std::to_string(type.bits);
  const std::string lanes = type.lanes == 1 ? std::string() : std::string(" in ") + std::to_string(type.lanes) + " lanes";
  switch (type.code) {
    case dl::kInt: return "i" + bits + lanes;
    case dl::kUInt: return "u" + bits + lanes;
    case dl::kFloat: return "f" + bits + lanes;
    case dl::kBfloat: return "bf" + bits + lanes;
    case dl::kBool: return (type.bits == 8 ? "bool" : "bool of " + bits + " bits") + lanes;
    default: return std::string("DLPack's type code ") + std::to_string(type.code) + " with " + bits + " bits" + lanes;
  }
}

inline std::string dl_device_text(int32_t type, int32_t id) {
  if (type == dl::kCpu) return "the CPU";
  if (type == dl::kCuda) return std::string("CUDA device ") + std::to_string(id);
  return std::string("DLPack's device type ") + std::to_string(type) + " number " + std::to_string(id);
}

inline std::string extents_text(const int64_t* extents, int32_t count) {
  std::string text = "[";
  for (int32_t d = 0; d < count; ++d) text.append(d == 0 ? "" : ",").append(std::to_string(extents[d]));
  return text + "]";
}

inline bool has_shape(const dl::Tensor& tensor, const tamp_port& port) {
  if (tensor.ndim != port.rank || (port.rank > 0 && tensor.shape == nullptr)) return false;
  for (int32_t d = 0; d < port.rank; ++d) {
    if (tensor.shape[d] != port.shape[d]) return false;
  }
  return true;
}

// Strides along extents of 1 do not count.
inline bool is_dense(const dl::Tensor& tensor, const tamp_port& port) {
  if (tensor.strides == nullptr || port.bytes == 0) return true;
  int64_t stride = 1;
  for (int32_t d = port.rank; d-- > 0;) {
    if (port.shape[d] != 1 && tensor.strides[d] != stride) return false;
    stride *= port.shape[d];
  }
  return true;
}

// Returns what is wrong with the tensor for the port; empty if nothing is.
inline std::string misfit(const dl::ManagedTensor* managed, const tamp_port& port, int device) {
  const std::string wanted = ", wanted " + std::string(port.dtype) + extents_text(port.shape, port.rank);
  if (managed == nullptr) return "a null tensor" + wanted;
  const dl::Tensor& tensor = managed->tensor;
  if (tensor.device_type != dl::kDevice || (dl::kDevice == dl::kCuda && tensor.device_id != device))
    return std::string("lies on ") + dl_device_text(tensor.device_type, tensor.device_id) + ", wanted " +
           dl_device_text(dl::kDevice, device);
  const dl::Type type = dl_type(port);
  const bool is_byte_for_bool = type.code == dl::kBool && tensor.dtype.code == dl::kUInt;  // as some libraries give it
  if ((tensor.dtype.code != type.code && !is_byte_for_bool) || tensor.dtype.bits != type.bits || tensor.dtype.lanes != 1)
    return std::string("elements of ") + dl_type_text(tensor.dtype) + wanted;
  if (!has_shape(tensor, port)) {
    const bool can_say = tensor.ndim >= 0 && tensor.ndim <= 64 && (tensor.ndim == 0 || tensor.shape != nullptr);
    return std::string("shape ") +
           (can_say ? extents_text(tensor.shape, tensor.ndim) : std::string("of rank ") + std::to_string(tensor.ndim)) + wanted;
  }
  if (!is_dense(tensor, port))
    return std::string("strides ") + extents_text(tensor.strides, port.rank) + ", wanted a dense, row-major tensor" + wanted;
  return {};
}

inline void* data_of(const dl::ManagedTensor& managed) {
  return managed.tensor.data == nullptr ? nullptr : static_cast<char*>(managed.tensor.data) + managed.tensor.byte_offset;
}

// A tensor that was made here, with all that its deleter frees.
struct OwnTensor {
  dl::ManagedTensor managed{};
  std::vector<int64_t> shape, strides;
};

inline void delete_tensor(dl::ManagedTensor* managed) {
  if (managed == nullptr) return;
  cudaFree(managed->tensor.data);
  delete static_cast<OwnTensor*>(managed->manager_ctx);
}

inline tamp_status make_tensor(Instance& instance, const tamp_port& port, dl::ManagedTensor*& out) {
  auto* const own = new (std::nothrow) OwnTensor;
  if (own == nullptr) return fail(instance.message, TAMP_OUT_OF_MEMORY, "out of host memory");
  own->shape.assign(port.shape, port.shape + port.rank);
  own->strides.assign(own->shape.size(), 1);
  for (size_t d = own->shape.size(); d-- > 1;) own->strides[d - 1] = own->strides[d] * own->shape[d];
  own->managed.manager_ctx = own;
  own->managed.deleter = delete_tensor;
  dl::Tensor& tensor = own->managed.tensor;
  tensor.device_type = dl::kDevice;
  tensor.device_id = dl::kDevice == dl::kCuda ? instance.device : 0;
  tensor.ndim = port.rank;
  tensor.dtype = dl_type(port);
  tensor.shape = own->shape.data();
  tensor.strides = own->strides.data();
  const cudaError_t error = cudaMalloc(&tensor.data, port.bytes > 0 ? port.bytes : 16);
  if (error != cudaSuccess) {
    delete own;
    return fail_cuda(instance.message, "cudaMalloc of an output", error);
  }
  out = &own->managed;
  return TAMP_OK;
}

// run() with DLPack tensors. Tensors of `outputs` that are null are made here, and are set to null again if anything fails.
inline tamp_status run_tensors(Instance* instance, DLManagedTensor* const* inputs, DLManagedTensor** outputs, cudaStream_t stream) {
  if (instance == nullptr) return TAMP_INVALID_ARGUMENT;
  const Model& model = *instance->model;
  std::string& message = instance->message;
  if (model.input_count > 0 && inputs == nullptr) return fail(message, TAMP_INVALID_ARGUMENT, "the array of inputs is null");
  if (model.output_count > 0 && outputs == nullptr) return fail(message, TAMP_INVALID_ARGUMENT, "the array of outputs is null");
  int device = 0;
  TAMP_TRY_CUDA(message, cudaGetDevice(&device));
  if (device != instance->device) {
    return fail(message, TAMP_INVALID_ARGUMENT,
                std::string("CUDA device ") + std::to_string(device) + " is the current one, the model was created on " +
                    std::to_string(instance->device));
  }
  std::vector<const void*> from;
  for (int i = 0; i < model.input_count; ++i) {
    const auto* const managed = reinterpret_cast<const dl::ManagedTensor*>(inputs[i]);
    const std::string wrong = misfit(managed, model.inputs[i], device);
    if (!wrong.empty()) return fail(message, TAMP_INVALID_ARGUMENT, std::string("input '") + model.inputs[i].name + "': " + wrong);
    from.push_back(data_of(*managed));
  }
  std::vector<dl::ManagedTensor*> to(static_cast<size_t>(model.output_count), nullptr);
  for (int i = 0; i < model.output_count; ++i) {
    if (outputs[i] == nullptr) continue;
    to[static_cast<size_t>(i)] = reinterpret_cast<dl::ManagedTensor*>(outputs[i]);
    const std::string wrong = misfit(to[static_cast<size_t>(i)], model.outputs[i], device);
    if (!wrong.empty()) return fail(message, TAMP_INVALID_ARGUMENT, std::string("output '") + model.outputs[i].name + "': " + wrong);
  }
  tamp_status status = TAMP_OK;
  std::vector<void*> into;
  for (int i = 0; i < model.output_count && status == TAMP_OK; ++i) {
    dl::ManagedTensor*& managed = to[static_cast<size_t>(i)];
    if (managed == nullptr) status = make_tensor(*instance, model.outputs[i], managed);
    if (status == TAMP_OK) into.push_back(data_of(*managed));
  }
  if (status == TAMP_OK) status = run(instance, from.data(), into.data(), stream);
  for (size_t i = 0; i < to.size(); ++i) {
    if (outputs[i] != nullptr) continue;
    if (status == TAMP_OK)
      outputs[i] = reinterpret_cast<DLManagedTensor*>(to[i]);
    else
      delete_tensor(to[i]);
  }
  return status;
}

}  // namespace tamp_host
