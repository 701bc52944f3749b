// Stand-in, part 8: the part of the CUDA runtime API that tamp's generated host code and its tests use. Everything is
// done before the call returns, so streams and events are only names; a failed kernel is reported by its launch.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <map>
#include <tuple>
#include <type_traits>
#include <utility>

#include "cpu_launch.h"
#include "cpu_names.h"

// Functions that C may call as well (cuda_runtime_api.h): present in every object of C++, called there or not.
#define CUDA_ON_CPU_API extern "C" __attribute__((used)) inline

// The numbers are CUDA's.
enum cudaDeviceAttr {
  cudaDevAttrMaxThreadsPerBlock = 1,
  cudaDevAttrMaxSharedMemoryPerBlock = 8,
  cudaDevAttrWarpSize = 10,
  cudaDevAttrMaxRegistersPerBlock = 12,
  cudaDevAttrClockRate = 13,
  cudaDevAttrMultiProcessorCount = 16,
  cudaDevAttrCanMapHostMemory = 19,
  cudaDevAttrL2CacheSize = 38,
  cudaDevAttrMaxThreadsPerMultiProcessor = 39,
  cudaDevAttrComputeCapabilityMajor = 75,
  cudaDevAttrComputeCapabilityMinor = 76,
  cudaDevAttrMaxSharedMemoryPerMultiprocessor = 81,
  cudaDevAttrCooperativeLaunch = 95,
  cudaDevAttrMaxSharedMemoryPerBlockOptin = 97,
  cudaDevAttrReservedSharedMemoryPerBlock = 111,
};

enum cudaStreamCaptureMode { cudaStreamCaptureModeGlobal, cudaStreamCaptureModeThreadLocal, cudaStreamCaptureModeRelaxed };

enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize = 8, cudaFuncAttributePreferredSharedMemoryCarveout = 9 };

enum cudaLaunchAttributeID { cudaLaunchAttributeIgnore = 0, cudaLaunchAttributeProgrammaticStreamSerialization = 6 };

union cudaLaunchAttributeValue {
  char pad[64];
  int programmaticStreamSerializationAllowed;
};

struct cudaLaunchAttribute {
  cudaLaunchAttributeID id;
  cudaLaunchAttributeValue val;
};

struct cudaLaunchConfig_t {
  dim3 gridDim, blockDim;
  size_t dynamicSmemBytes;
  cudaStream_t stream;
  cudaLaunchAttribute* attrs;
  unsigned numAttrs;
};

struct cudaFuncAttributes {
  int maxDynamicSharedSizeBytes, maxThreadsPerBlock, numRegs, ptxVersion, binaryVersion;
};

struct CUstream_st {};
struct CUevent_st {
  double ms;
};

struct cudaDeviceProp {
  char name[256];
  size_t totalGlobalMem, sharedMemPerBlock, sharedMemPerBlockOptin;
  int major, minor, multiProcessorCount, warpSize, maxThreadsPerBlock, l2CacheSize, cooperativeLaunch;
};

namespace cuda_on_cpu {

constexpr int kSharedPerBlock = 48 * 1024;        // without opting in by cudaFuncSetAttribute
constexpr int kSharedPerBlockOptin = 227 * 1024;  // an sm_90's
constexpr int kSharedPerMultiprocessor = 228 * 1024;
constexpr int kSharedReserved = 1024;  // of each vEU
constexpr int kThreadsPerMultiprocessor = 2048;
// More than the vDevice of any program asks for, and so is the compute capability.
constexpr int kDefaultMultiprocessors = 1 << 16;
constexpr int kComputeCapabilityMajor = 99;

// What the host half of the runtime remembers.
struct HostState {
  Mutex mutex;
  int multiprocessors = kDefaultMultiprocessors;
  int devices = 1;
  cudaError_t last_error = cudaSuccess;
  cudaError_t died = cudaSuccess;             // of a kernel of the past
  std::map<uintptr_t, Guarded> allocations;   // device memory and mapped host memory, by address
  std::map<const void*, int> dynamic_shared;  // cudaFuncSetAttribute, by kernel
};
inline HostState& host_state() {
  static HostState state;
  return state;
}

inline cudaError_t report(cudaError_t error) {
  if (error != cudaSuccess) host_state().last_error = error;
  return error;
}

// The device pretends to have this many SMs.
inline void set_multiprocessors(int count) { host_state().multiprocessors = count; }

// The machine pretends to have no device, or one.
inline void set_devices(int count) { host_state().devices = count; }
// The device pretends that a kernel died on it: as on a GPU, all later calls return the error.
inline void kill_device(cudaError_t error) { host_state().died = error; }

inline cudaError_t allocate(void** pointer, size_t bytes) {
  *pointer = nullptr;
  if (bytes == 0) return cudaSuccess;
  const Guarded block = map_guarded(bytes, 256);
  if (block.begin == nullptr) return cudaErrorMemoryAllocation;
  HostState& state = host_state();
  const Lock lock(state.mutex);
  state.allocations[reinterpret_cast<uintptr_t>(block.begin)] = block;
  *pointer = block.begin;
  return cudaSuccess;
}

inline cudaError_t release(void* pointer) {
  if (pointer == nullptr) return cudaSuccess;
  HostState& state = host_state();
  const Lock lock(state.mutex);
  const auto found = state.allocations.find(reinterpret_cast<uintptr_t>(pointer));
  if (found == state.allocations.end()) return cudaErrorInvalidValue;
  const bool clean = unmap_guarded(found->second);
  const size_t bytes = found->second.bytes;
  state.allocations.erase(found);
  if (clean) return cudaSuccess;
  std::fprintf(stderr, "cuda_on_cpu: something wrote outside the %zu bytes at %p\n", bytes, pointer);
  return cudaErrorIllegalAddress;
}

// False for a range that begins in an allocation and leaves it.
inline bool in_bounds(const void* pointer, size_t bytes) {
  HostState& state = host_state();
  const Lock lock(state.mutex);
  const uintptr_t address = reinterpret_cast<uintptr_t>(pointer);
  auto next = state.allocations.upper_bound(address);
  if (next == state.allocations.begin()) return true;
  const auto& [begin, block] = *--next;
  if (address - begin >= block.bytes) return true;
  return bytes <= block.bytes - (address - begin);
}

inline cudaError_t copy(void* to, const void* from, size_t bytes) {
  if (bytes == 0) return cudaSuccess;
  if (to == nullptr || from == nullptr || !in_bounds(to, bytes) || !in_bounds(from, bytes)) return cudaErrorInvalidValue;
  std::memmove(to, from, bytes);
  return cudaSuccess;
}

inline int dynamic_shared_limit(const void* kernel) {
  const auto& limits = host_state().dynamic_shared;
  const auto found = limits.find(kernel);
  return found == limits.end() ? kSharedPerBlock : found->second;
}

inline int veus_per_multiprocessor(int threads, size_t shared_bytes) {
  if (threads <= 0 || threads > static_cast<int>(kMaxThreads) || shared_bytes > static_cast<size_t>(kSharedPerBlockOptin)) return 0;
  const int by_threads = kThreadsPerMultiprocessor / static_cast<int>(round_up(static_cast<size_t>(threads), kWarpSize));
  const int by_shared = kSharedPerMultiprocessor / (static_cast<int>(shared_bytes) + kSharedReserved);
  return std::min({by_threads, by_shared, 32});
}

inline cudaError_t check_launch(const void* kernel, dim3 grid, dim3 block, size_t shared_bytes, bool cooperative) {
  const uint64_t threads = uint64_t{block.x} * block.y * block.z;
  const uint64_t veus = uint64_t{grid.x} * grid.y * grid.z;
  if (threads == 0 || threads > kMaxThreads || veus == 0 || veus > 0x7fffffffu) return cudaErrorInvalidConfiguration;
  if (shared_bytes > static_cast<size_t>(dynamic_shared_limit(kernel))) return cudaErrorInvalidValue;
  const uint64_t per_multiprocessor = static_cast<uint64_t>(veus_per_multiprocessor(static_cast<int>(threads), shared_bytes));
  const uint64_t resident = per_multiprocessor * static_cast<uint64_t>(host_state().multiprocessors);
  return cooperative && veus > resident ? cudaErrorCooperativeLaunchTooLarge : cudaSuccess;
}

// A kernel and a copy of its arguments, as cudaLaunchKernel takes them at the call.
template <class... P>
struct Call {
  void (*kernel)(P...);
  std::tuple<std::remove_cv_t<P>...> values;

  static void run(const void* self) {
    const Call& call = *static_cast<const Call*>(self);
    std::apply(call.kernel, call.values);
  }
};

template <class... P, size_t... I>
inline cudaError_t launch_kernel(void (*kernel)(P...), dim3 grid, dim3 block, [[maybe_unused]] void** arguments, size_t shared_bytes,
                                 bool cooperative, std::index_sequence<I...>) {
  const cudaError_t error = check_launch(reinterpret_cast<const void*>(kernel), grid, block, shared_bytes, cooperative);
  if (error != cudaSuccess) return report(error);
  const Call<P...> call{kernel, {*static_cast<const std::remove_cv_t<P>*>(arguments[I])...}};
  return report(run_grid(grid, block, shared_bytes, cooperative, Call<P...>::run, &call) ? cudaSuccess : cudaErrorLaunchFailure);
}

}  // namespace cuda_on_cpu

// --- kernels -----------------------------------------------------------------------------------------------------------

template <class... P>
inline cudaError_t cudaLaunchCooperativeKernel(void (*kernel)(P...), dim3 grid, dim3 block, void** arguments, size_t shared_bytes = 0,
                                               cudaStream_t = nullptr) {
  return cuda_on_cpu::launch_kernel(kernel, grid, block, arguments, shared_bytes, /*cooperative=*/true, std::index_sequence_for<P...>{});
}
template <class... P>
inline cudaError_t cudaLaunchKernel(void (*kernel)(P...), dim3 grid, dim3 block, void** arguments, size_t shared_bytes = 0,
                                    cudaStream_t = nullptr) {
  return cuda_on_cpu::launch_kernel(kernel, grid, block, arguments, shared_bytes, /*cooperative=*/false, std::index_sequence_for<P...>{});
}

// Kernels run one after another, so a programmatic dependent finds the kernel before it done.
template <class... P, class... A>
inline cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(P...), A&&... values) {
  for (unsigned a = 0; a < config->numAttrs; ++a) {
    const cudaLaunchAttributeID id = config->attrs[a].id;
    if (id != cudaLaunchAttributeIgnore && id != cudaLaunchAttributeProgrammaticStreamSerialization)
      return cuda_on_cpu::report(cudaErrorNotSupported);
  }
  std::tuple<std::remove_cv_t<P>...> copies(std::forward<A>(values)...);
  return std::apply(
      [&](auto&... copy) {
        void* arguments[] = {&copy..., nullptr};
        return cudaLaunchKernel(kernel, config->gridDim, config->blockDim, arguments, config->dynamicSmemBytes, config->stream);
      },
      copies);
}

template <class... P>
inline cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, void (*kernel)(P...)) {
  *attributes = {};
  attributes->maxDynamicSharedSizeBytes = cuda_on_cpu::dynamic_shared_limit(reinterpret_cast<const void*>(kernel));
  attributes->maxThreadsPerBlock = static_cast<int>(cuda_on_cpu::kMaxThreads);
  attributes->ptxVersion = attributes->binaryVersion = cuda_on_cpu::kComputeCapabilityMajor * 10;
  return cudaSuccess;
}

template <class... P>
inline cudaError_t cudaFuncSetAttribute(void (*kernel)(P...), cudaFuncAttribute attribute, int value) {
  if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize) return cudaSuccess;
  if (value < 0 || value > cuda_on_cpu::kSharedPerBlockOptin) return cuda_on_cpu::report(cudaErrorInvalidValue);
  cuda_on_cpu::host_state().dynamic_shared[reinterpret_cast<const void*>(kernel)] = value;
  return cudaSuccess;
}

template <class... P>
inline cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* veus, void (*kernel)(P...), int threads, size_t shared_bytes) {
  const bool allowed = shared_bytes <= static_cast<size_t>(cuda_on_cpu::dynamic_shared_limit(reinterpret_cast<const void*>(kernel)));
  *veus = allowed ? cuda_on_cpu::veus_per_multiprocessor(threads, shared_bytes) : 0;
  return cudaSuccess;
}

// --- memory ------------------------------------------------------------------------------------------------------------

CUDA_ON_CPU_API cudaError_t cudaMalloc(void** pointer, size_t bytes) { return cuda_on_cpu::report(cuda_on_cpu::allocate(pointer, bytes)); }
CUDA_ON_CPU_API cudaError_t cudaMallocHost(void** pointer, size_t bytes) { return cudaMalloc(pointer, bytes); }
template <class T>
inline cudaError_t cudaMalloc(T** pointer, size_t bytes) {
  void* memory = nullptr;
  const cudaError_t error = cudaMalloc(&memory, bytes);
  *pointer = static_cast<T*>(memory);
  return error;
}
template <class T>
inline cudaError_t cudaHostAlloc(T** pointer, size_t bytes, unsigned) {
  return cudaMalloc(pointer, bytes);
}
template <class T>
inline cudaError_t cudaMallocHost(T** pointer, size_t bytes, unsigned = 0) {
  return cudaMalloc(pointer, bytes);
}
CUDA_ON_CPU_API cudaError_t cudaFree(void* pointer) { return cuda_on_cpu::report(cuda_on_cpu::release(pointer)); }
CUDA_ON_CPU_API cudaError_t cudaFreeHost(void* pointer) { return cudaFree(pointer); }
template <class T>
inline cudaError_t cudaHostGetDevicePointer(T** device, void* host, unsigned) {
  *device = static_cast<T*>(host);
  return cudaSuccess;
}

CUDA_ON_CPU_API cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind) {
  return cuda_on_cpu::report(cuda_on_cpu::copy(to, from, bytes));
}
CUDA_ON_CPU_API cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t = nullptr) {
  return cudaMemcpy(to, from, bytes, kind);
}
CUDA_ON_CPU_API cudaError_t cudaMemset(void* pointer, int value, size_t bytes) {
  if (bytes != 0 && (pointer == nullptr || !cuda_on_cpu::in_bounds(pointer, bytes))) return cuda_on_cpu::report(cudaErrorInvalidValue);
  if (bytes != 0) std::memset(pointer, value, bytes);
  return cudaSuccess;
}
CUDA_ON_CPU_API cudaError_t cudaMemsetAsync(void* pointer, int value, size_t bytes, cudaStream_t = nullptr) {
  return cudaMemset(pointer, value, bytes);
}
CUDA_ON_CPU_API cudaError_t cudaMemGetInfo(size_t* free_bytes, size_t* total_bytes) {
  *total_bytes = static_cast<size_t>(sysconf(_SC_PHYS_PAGES)) * cuda_on_cpu::page_bytes();
  *free_bytes = static_cast<size_t>(sysconf(_SC_AVPHYS_PAGES)) * cuda_on_cpu::page_bytes();
  return cudaSuccess;
}

// --- device ------------------------------------------------------------------------------------------------------------

CUDA_ON_CPU_API cudaError_t cudaGetDeviceCount(int* count) {
  *count = cuda_on_cpu::host_state().devices;
  return *count > 0 ? cudaSuccess : cuda_on_cpu::report(cudaErrorNoDevice);
}
CUDA_ON_CPU_API cudaError_t cudaDriverGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}
CUDA_ON_CPU_API cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}
CUDA_ON_CPU_API cudaError_t cudaSetDevice(int device) { return device == 0 ? cudaSuccess : cuda_on_cpu::report(cudaErrorInvalidDevice); }
CUDA_ON_CPU_API cudaError_t cudaDeviceSynchronize() { return cuda_on_cpu::report(cuda_on_cpu::host_state().died); }

inline cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  if (device != 0) return cuda_on_cpu::report(cudaErrorInvalidDevice);
  switch (attribute) {
    case cudaDevAttrMaxThreadsPerBlock: *value = cuda_on_cpu::kMaxThreads; break;
    case cudaDevAttrMaxSharedMemoryPerBlock: *value = cuda_on_cpu::kSharedPerBlock; break;
    case cudaDevAttrWarpSize: *value = cuda_on_cpu::kWarpSize; break;
    case cudaDevAttrMaxRegistersPerBlock: *value = 65536; break;
    case cudaDevAttrClockRate: *value = 3000000; break;
    case cudaDevAttrMultiProcessorCount: *value = cuda_on_cpu::host_state().multiprocessors; break;
    case cudaDevAttrCanMapHostMemory: *value = 1; break;
    case cudaDevAttrL2CacheSize: *value = 1 << 20; break;
    case cudaDevAttrMaxThreadsPerMultiProcessor: *value = cuda_on_cpu::kThreadsPerMultiprocessor; break;
    case cudaDevAttrComputeCapabilityMajor: *value = cuda_on_cpu::kComputeCapabilityMajor; break;
    case cudaDevAttrComputeCapabilityMinor: *value = 0; break;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor: *value = cuda_on_cpu::kSharedPerMultiprocessor; break;
    case cudaDevAttrCooperativeLaunch: *value = 1; break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = cuda_on_cpu::kSharedPerBlockOptin; break;
    case cudaDevAttrReservedSharedMemoryPerBlock: *value = cuda_on_cpu::kSharedReserved; break;
    default: return cuda_on_cpu::report(cudaErrorInvalidValue);
  }
  return cudaSuccess;
}

inline cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  if (device != 0) return cuda_on_cpu::report(cudaErrorInvalidDevice);
  *properties = {};
  std::snprintf(properties->name, sizeof properties->name, "CUDA on the CPU");
  properties->sharedMemPerBlock = cuda_on_cpu::kSharedPerBlock;
  properties->sharedMemPerBlockOptin = cuda_on_cpu::kSharedPerBlockOptin;
  properties->major = cuda_on_cpu::kComputeCapabilityMajor;
  properties->multiProcessorCount = cuda_on_cpu::host_state().multiprocessors;
  properties->warpSize = cuda_on_cpu::kWarpSize;
  properties->maxThreadsPerBlock = cuda_on_cpu::kMaxThreads;
  properties->l2CacheSize = 1 << 20;
  properties->cooperativeLaunch = 1;
  size_t free_bytes = 0;
  return cudaMemGetInfo(&free_bytes, &properties->totalGlobalMem);
}

inline cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode*) { return cudaSuccess; }

// --- errors, streams, events -------------------------------------------------------------------------------------------

CUDA_ON_CPU_API cudaError_t cudaPeekAtLastError() { return cuda_on_cpu::host_state().last_error; }
CUDA_ON_CPU_API cudaError_t cudaGetLastError() { return std::exchange(cuda_on_cpu::host_state().last_error, cudaSuccess); }

CUDA_ON_CPU_API const char* cudaGetErrorName(cudaError_t error) {
  switch (error) {
    case cudaSuccess: return "cudaSuccess";
    case cudaErrorInvalidValue: return "cudaErrorInvalidValue";
    case cudaErrorMemoryAllocation: return "cudaErrorMemoryAllocation";
    case cudaErrorInvalidConfiguration: return "cudaErrorInvalidConfiguration";
    case cudaErrorInsufficientDriver: return "cudaErrorInsufficientDriver";
    case cudaErrorNoDevice: return "cudaErrorNoDevice";
    case cudaErrorInvalidDevice: return "cudaErrorInvalidDevice";
    case cudaErrorIllegalAddress: return "cudaErrorIllegalAddress";
    case cudaErrorLaunchFailure: return "cudaErrorLaunchFailure";
    case cudaErrorCooperativeLaunchTooLarge: return "cudaErrorCooperativeLaunchTooLarge";
    case cudaErrorNotSupported: return "cudaErrorNotSupported";
  }
  return "unknown error";
}
CUDA_ON_CPU_API const char* cudaGetErrorString(cudaError_t error) {
  switch (error) {
    case cudaSuccess: return "no error";
    case cudaErrorInvalidValue: return "a value is out of range";
    case cudaErrorMemoryAllocation: return "out of memory";
    case cudaErrorInvalidConfiguration: return "grid or block size out of range";
    case cudaErrorInsufficientDriver: return "the driver is too old";
    case cudaErrorNoDevice: return "there is no device";
    case cudaErrorInvalidDevice: return "no such device";
    case cudaErrorIllegalAddress: return "memory was written outside its bounds";
    case cudaErrorLaunchFailure: return "the kernel failed (standard error says how)";
    case cudaErrorCooperativeLaunchTooLarge: return "the grid does not fit the device at once";
    case cudaErrorNotSupported: return "not supported by the stand-in";
  }
  return "unknown error";
}

CUDA_ON_CPU_API cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  *stream = new CUstream_st;
  return cudaSuccess;
}
CUDA_ON_CPU_API cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) { return cudaStreamCreate(stream); }
CUDA_ON_CPU_API cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  delete stream;
  return cudaSuccess;
}
CUDA_ON_CPU_API cudaError_t cudaStreamSynchronize(cudaStream_t) { return cuda_on_cpu::report(cuda_on_cpu::host_state().died); }
CUDA_ON_CPU_API cudaError_t cudaStreamQuery(cudaStream_t) { return cuda_on_cpu::report(cuda_on_cpu::host_state().died); }
CUDA_ON_CPU_API cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned = 0) { return cudaSuccess; }

CUDA_ON_CPU_API cudaError_t cudaEventCreate(cudaEvent_t* event) {
  *event = new CUevent_st{};
  return cudaSuccess;
}
CUDA_ON_CPU_API cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) { return cudaEventCreate(event); }
CUDA_ON_CPU_API cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t = nullptr) {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  event->ms = static_cast<double>(now.tv_sec) * 1e3 + static_cast<double>(now.tv_nsec) * 1e-6;
  return cudaSuccess;
}
CUDA_ON_CPU_API cudaError_t cudaEventSynchronize(cudaEvent_t) { return cuda_on_cpu::report(cuda_on_cpu::host_state().died); }
CUDA_ON_CPU_API cudaError_t cudaEventQuery(cudaEvent_t) { return cuda_on_cpu::report(cuda_on_cpu::host_state().died); }
CUDA_ON_CPU_API cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t from, cudaEvent_t to) {
  *milliseconds = static_cast<float>(to->ms - from->ms);
  return cudaSuccess;
}
CUDA_ON_CPU_API cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}
