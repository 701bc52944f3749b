// The host half of a generated program: create, run, status, destroy. Its text stands in each NAME.cu; the generated C
// functions are one line each on top of it. Nothing here is global; every CUDA call is checked.
//
// Odd: an instance belongs to the device that was current at create. Only one thread at a time may use the instance, and only one run
// at a time may be under way (two runs of one instance must be ordered by their streams; two instances are independent).
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <new>
#include <span>
#include <string>

#include "kernels/vdevice/control.cuh"
#include "runtime_stub/host/box_maps.h"
#include "runtime_stub/host/place_veus.h"
#include "runtime_stub/host/program.h"
#include "runtime_stub/host/tamp_api.h"
#include "runtime_stub/host/weights.h"

namespace tamp_host {

inline void destroy(Instance* instance) {
  if (instance == nullptr) return;
  if (instance->probe != nullptr) cudaEventDestroy(instance->probe);
  cudaFree(instance->arena);
  cudaFree(instance->weights);
  cudaFree(instance->state);
  cudaFree(instance->maps);
  cudaFree(instance->veu_of_block);
  cudaFree(instance->trace);
  if (instance->report != nullptr) cudaFreeHost(instance->report);
  if (instance->drop_phases != nullptr) instance->drop_phases(instance->phases);
  if (instance->drop_tokens != nullptr) instance->drop_tokens(instance->tokens);
  delete instance;
}

inline tamp_status check_shared_memory(int has, int needs, std::string& message) {
  if (has >= needs) return TAMP_OK;
  return fail(message, TAMP_DEVICE,
              "a vEU needs " + std::to_string(needs) + " bytes of shared memory, the GPU gives a block " + std::to_string(has));
}

inline tamp_status check_device(const Model& model, std::string& message) {
  int devices = 0, device = 0, major = 0, minor = 0;
  const cudaError_t counted = cudaGetDeviceCount(&devices);
  if (counted == cudaErrorNoDevice || counted == cudaErrorInsufficientDriver || (counted == cudaSuccess && devices == 0)) {
    return fail(message, TAMP_DEVICE,
                std::string("no CUDA device was found") +
                    (counted == cudaSuccess ? std::string() : std::string(": ") + cudaGetErrorString(counted)));
  }
  TAMP_TRY_CUDA(message, counted);
  TAMP_TRY_CUDA(message, cudaGetDevice(&device));
  TAMP_TRY_CUDA(message, cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
  TAMP_TRY_CUDA(message, cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device));
  if (model.compute_capability > major * 10 + minor) {
    return fail(message, TAMP_DEVICE,
                "the GPU has compute capability " + std::to_string(major) + "." + std::to_string(minor) +
                    ", the model was compiled for sm_" + std::to_string(model.compute_capability));
  }
  return TAMP_OK;
}

// How many vEUs of the kernel the current device holds at once, launched as the kernel says: in clusters or not. Clusters do not reach over
// groups of SMs that share hardware, so they may leave some SMs empty.
template <auto KERNEL>
cudaError_t count_resident(const Model& model, int sms, int& veus) {
  int resident = 0;
  cudaError_t error =
      cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, KERNEL, model.threads, static_cast<size_t>(model.smem_bytes));
  veus = resident * sms;
#if !defined(TAMP_CUDA_ON_CPU)
  cudaFuncAttributes attributes{};
  if (error == cudaSuccess) error = cudaFuncGetAttributes(&attributes, KERNEL);
  if (error != cudaSuccess || attributes.requiredClusterWidth <= 1) return error;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(model.veus));
  config.blockDim = dim3(static_cast<unsigned>(model.threads));
  config.dynamicSmemBytes = static_cast<size_t>(model.smem_bytes);
  cudaLaunchAttribute cluster{};
  cluster.id = cudaLaunchAttributeClusterDimension;
  cluster.val.clusterDim.x = static_cast<unsigned>(attributes.requiredClusterWidth);
  cluster.val.clusterDim.y = cluster.val.clusterDim.z = 1;
  config.attrs = &cluster;
  config.numAttrs = 1;
  int clusters = 0;
  error = cudaOccupancyMaxActiveClusters(&clusters, KERNEL, &config);
  veus = clusters * attributes.requiredClusterWidth;
#endif
  return error;
}

// Model::prepare of persistent execution: does the current device hold all vEUs at once? Anything less would wait for ever.
template <auto KERNEL>
tamp_status prepare_kernel(Instance& instance) {
  const Model& model = *instance.model;
  std::string& message = instance.message;
  int device = 0, sms = 0, cooperative = 0, shared = 0, held = 0;
  TAMP_TRY_CUDA(message, cudaGetDevice(&device));
  TAMP_TRY_CUDA(message, cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device));
  TAMP_TRY_CUDA(message, cudaDeviceGetAttribute(&cooperative, cudaDevAttrCooperativeLaunch, device));
  TAMP_TRY_CUDA(message, cudaDeviceGetAttribute(&shared, cudaDevAttrMaxSharedMemoryPerBlockOptin, device));
  const tamp_status fits = check_shared_memory(shared, model.smem_bytes, message);
  if (fits != TAMP_OK) return fits;
  TAMP_TRY_CUDA(message, cudaFuncSetAttribute(KERNEL, cudaFuncAttributeMaxDynamicSharedMemorySize, model.smem_bytes));
  TAMP_TRY_CUDA(message, count_resident<KERNEL>(model, sms, held));
  if (!cooperative || held < model.veus) {
    return fail(message, TAMP_DEVICE,
                "the model needs " + std::to_string(model.veus) + " resident vEUs, the GPU holds " + std::to_string(held) +
                    "; compile for its vDevice, or for one with fewer SMs (\"sms\", \"sms_in_clusters\")");
  }
  return TAMP_OK;
}

// The kernel's parameter: as many of the addresses as it has room for.
template <int BASES>
rk::LaunchOf<BASES> parameter_of(void (*)(rk::LaunchOf<BASES>), const rk::Launch& launch, const uint64_t* bases) {
  rk::LaunchOf<BASES> parameter;
  static_cast<rk::Launch&>(parameter) = launch;
  std::copy_n(bases, BASES, parameter.bases);
  return parameter;
}

// Model::start of persistent execution.
template <auto KERNEL>
tamp_status start_kernel(Instance& instance, const rk::Launch& launch, const uint64_t* bases, cudaStream_t stream) {
  const Model& model = *instance.model;
  auto parameter = parameter_of(KERNEL, launch, bases);
  void* arguments[] = {&parameter};
  // Cooperative: the driver puts all vEUs on the GPU together or none, so two instances cannot starve each other.
  TAMP_TRY_CUDA(instance.message,
                cudaLaunchCooperativeKernel(KERNEL, dim3(static_cast<unsigned>(model.veus)), dim3(static_cast<unsigned>(model.threads)),
                                            arguments, static_cast<size_t>(model.smem_bytes), stream));
  return TAMP_OK;
}

// The share of the weights that L2 shall keep from one inference to the next (Model::weights_in_l2). 0, which tells L2 nothing, if there
// are no weights or nobody knows how large L2 is.
inline float weights_kept(const Model& model) {
  int device = 0, l2_bytes = 0;
  if (cudaGetDevice(&device) != cudaSuccess || cudaDeviceGetAttribute(&l2_bytes, cudaDevAttrL2CacheSize, device) != cudaSuccess) return 0;
  if (model.weight_bytes == 0) return 0;
  const float kept = model.weights_in_l2 * static_cast<float>(l2_bytes) / static_cast<float>(model.weight_bytes);
  return kept < 1 ? kept : 1;
}

inline tamp_status read_wait_budget(double seconds, uint64_t& ns, std::string& message) {
  if (!(seconds >= 0))  // false of not-a-number, too
    return fail(message, TAMP_INVALID_ARGUMENT, "wait_budget_seconds is negative or not a number; 0: two seconds, infinity: no limit");
  const double wanted = (seconds > 0 ? seconds : 2.0) * 1e9;
  if (wanted >= 18446744073709551615.0)  // 584 years
    ns = UINT64_MAX;
  else
    ns = wanted > 1 ? static_cast<uint64_t>(wanted) : 1;
  return TAMP_OK;
}

inline tamp_status fill(Instance& instance, const tamp_options& options) {
  const Model& model = *instance.model;
  std::string& message = instance.message;
  const tamp_status budget = read_wait_budget(options.wait_budget_seconds, instance.wait_budget_ns, message);
  if (budget != TAMP_OK) return budget;
  tamp_status device = check_device(model, message);
  if (device == TAMP_OK) device = model.prepare(instance);
  if (device != TAMP_OK) return device;
  TAMP_TRY_CUDA(message, cudaGetDevice(&instance.device));
  TAMP_TRY_CUDA(message, cudaEventCreateWithFlags(&instance.probe, cudaEventDisableTiming));
  instance.weights_kept = weights_kept(*instance.model);
  const size_t state_bytes = sizeof(uint32_t) * rk::kLineWords * static_cast<size_t>(rk::kStateLines + model.events);
  TAMP_TRY_CUDA(message, cudaMalloc(reinterpret_cast<void**>(&instance.arena), model.arena_bytes + 256));
  TAMP_TRY_CUDA(message, cudaMemset(instance.arena, 0, model.arena_bytes + 256));  // the words of exchange.cuh begin at epoch 0
  TAMP_TRY_CUDA(message, cudaMalloc(reinterpret_cast<void**>(&instance.weights), model.weight_bytes + 256));
  TAMP_TRY_CUDA(message, cudaMalloc(reinterpret_cast<void**>(&instance.state), state_bytes));
  TAMP_TRY_CUDA(message, cudaMemset(instance.state, 0, state_bytes));
#if defined(TAMP_TRACE)
  const size_t trace_bytes = sizeof(uint64_t) * rk::kTraceColumns * static_cast<size_t>(model.instructions);
  TAMP_TRY_CUDA(message, cudaMalloc(reinterpret_cast<void**>(&instance.trace), trace_bytes + 8));
  TAMP_TRY_CUDA(message, cudaMemset(instance.trace, 0, trace_bytes));
#endif
  TAMP_TRY_CUDA(message, cudaHostAlloc(reinterpret_cast<void**>(&instance.report), sizeof(rk::Report), cudaHostAllocMapped));
  std::memset(static_cast<void*>(instance.report), 0, sizeof(rk::Report));
  TAMP_TRY_CUDA(message, cudaHostGetDevicePointer(reinterpret_cast<void**>(&instance.report_on_device), instance.report, 0));
  const tamp_status weights = load_weights(model, options, instance.weights, message);
  if (weights != TAMP_OK) return weights;
  const tamp_status maps = make_maps(instance);
  if (maps != TAMP_OK) return maps;
  if (model.veus_by_sm) {
    const tamp_status placed = place_veus(instance);
    if (placed != TAMP_OK) return placed;
  }
  TAMP_TRY_CUDA(message, cudaDeviceSynchronize());
  return TAMP_OK;
}

inline tamp_status create(const Model& model, const tamp_options* options, Instance** out) {
  if (out == nullptr) return fail(create_message(), TAMP_INVALID_ARGUMENT, "the place for the context is null");
  *out = nullptr;
  Instance* const instance = new (std::nothrow) Instance;
  if (instance == nullptr) return fail(create_message(), TAMP_OUT_OF_MEMORY, "out of host memory");
  instance->model = &model;
  const tamp_options defaults{};
  const tamp_status status = fill(*instance, options != nullptr ? *options : defaults);
  if (status == TAMP_OK) {
    *out = instance;
    return TAMP_OK;
  }
  create_message() = std::string(model.name) + ": " + instance->message;
  destroy(instance);
  return status;
}

// The device's report of a wait that outlived its budget, if there is one.
inline tamp_status reported(Instance* instance) {
  const volatile rk::Report* const report = instance->report;
  if (report->valid == 0) return TAMP_OK;
  const Model& model = *instance->model;
  const std::string task = report->record == rk::kNone16
                               ? std::string("no rTask")
                               : "rTask " + std::to_string(report->index) + " of '" + model.record_names[report->record] + "'";
  const std::string what = report->event == rk::kExchange   ? std::string("values that other rTasks make")
                           : report->event == rk::kDecision ? std::string("whether another token follows")
                                                            : "event '" + std::string(model.event_names[report->event]) + "'";
  instance->failed = true;
  return fail(instance->message, TAMP_TIMED_OUT,
              std::string(model.name) + ": vEU " + std::to_string(report->veu) + ", " + task + ": waited in vain for " + what + ", seen " +
                  std::to_string(report->seen) + ", wanted " + std::to_string(report->wanted) +
                  (report->iteration > 0 ? ", in iteration " + std::to_string(report->iteration) + " of its loop" : std::string()) +
                  (report->run > 0 ? ", at token " + std::to_string(report->run) + " of prompt and text" : std::string()));
}

// The device's report; else the error of a kernel that died, which CUDA returns from every later call; else the last launch's status.
inline tamp_status status(Instance* instance) {
  if (instance == nullptr) return TAMP_INVALID_ARGUMENT;
  const tamp_status waited = reported(instance);
  if (waited != TAMP_OK) return waited;
  // Another thread may be capturing; asking for an event is harmless to it, but only in this mode allowed.
  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  TAMP_TRY_CUDA(instance->message, cudaThreadExchangeStreamCaptureMode(&mode));
  const cudaError_t error = cudaEventQuery(instance->probe);
  TAMP_TRY_CUDA(instance->message, cudaThreadExchangeStreamCaptureMode(&mode));
  if (error != cudaSuccess)
    return fail_cuda(instance->message, (std::string(instance->model->name) + ": a kernel of this program failed").c_str(), error);
  return instance->launched;
}

inline tamp_status check_pointers(Instance& instance, const char* what, const void* const* pointers, const tamp_port* ports, int count) {
  if (count > 0 && pointers == nullptr)
    return fail(instance.message, TAMP_INVALID_ARGUMENT, std::string("the array of ") + what + "s is null");
  for (int i = 0; i < count; ++i) {
    if (ports[i].bytes == 0) continue;
    if (pointers[i] == nullptr || reinterpret_cast<uintptr_t>(pointers[i]) % 16 != 0) {
      return fail(instance.message, TAMP_INVALID_ARGUMENT, std::string(what) + " '" + ports[i].name + "' is null or not 16-byte aligned");
    }
  }
  return TAMP_OK;
}

inline bool overlap(const void* a, size_t a_bytes, const void* b, size_t b_bytes) {
  const uintptr_t from_a = reinterpret_cast<uintptr_t>(a), from_b = reinterpret_cast<uintptr_t>(b);
  return from_a < from_b + b_bytes && from_b < from_a + a_bytes && a_bytes > 0 && b_bytes > 0;
}

// Whether the caller has put the output where an input lies that stays in place.
inline bool stays_in_place(const Model& model, const void* const* inputs, void* const* outputs, int output) {
  const int input = model.in_place[output];
  return input >= 0 && inputs[input] == outputs[output];
}

// Whether an output shares memory with another port, but for what stays in place. In the order of their addresses each is compared with
// what came before, since every run asks and there may be hundreds of ports.
inline bool has_overlap(const Model& model, const void* const* inputs, void* const* outputs) {
  struct Range {
    uintptr_t begin, end;
    bool is_output;
  };
  Range ranges[rk::kMaxPorts];
  int count = 0;
  const auto add = [&](const void* at, size_t bytes, bool is_output) {
    const uintptr_t begin = reinterpret_cast<uintptr_t>(at);
    if (bytes > 0) ranges[count++] = {begin, begin + bytes, is_output};
  };
  bool is_stored[rk::kMaxPorts] = {};  // of inputs: an output, too, since it stays in place
  for (int o = 0; o < model.output_count; ++o) {
    if (stays_in_place(model, inputs, outputs, o))
      is_stored[model.in_place[o]] = true;
    else
      add(outputs[o], model.outputs[o].bytes, true);
  }
  for (int i = 0; i < model.input_count; ++i) add(inputs[i], model.inputs[i].bytes, is_stored[i]);
  std::sort(ranges, ranges + count, [](const Range& a, const Range& b) { return a.begin < b.begin; });
  uintptr_t end = 0, end_of_outputs = 0;
  for (const Range& range : std::span<const Range>(ranges, static_cast<size_t>(count))) {
    if (range.begin < (range.is_output ? end : end_of_outputs)) return true;
    end = std::max(end, range.end);
    if (range.is_output) end_of_outputs = std::max(end_of_outputs, range.end);
  }
  return false;
}

// Inputs are read while outputs are being written, so an output in the memory of an input would give wrong numbers, unless it stays in
// place.
inline tamp_status check_overlaps(Instance& instance, const void* const* inputs, void* const* outputs) {
  const Model& model = *instance.model;
  if (!has_overlap(model, inputs, outputs)) return TAMP_OK;
  for (int o = 0; o < model.output_count; ++o) {
    const tamp_port& output = model.outputs[o];
    for (int i = 0; i < model.input_count; ++i) {
      if (model.in_place[o] == i && stays_in_place(model, inputs, outputs, o)) continue;
      if (!overlap(inputs[i], model.inputs[i].bytes, outputs[o], output.bytes)) continue;
      return fail(instance.message, TAMP_INVALID_ARGUMENT,
                  std::string("input '") + model.inputs[i].name + "' and output '" + output.name +
                      "' overlap; a run needs memory of its own for each");
    }
    for (int other = 0; other < o; ++other) {
      if (!overlap(outputs[other], model.outputs[other].bytes, outputs[o], output.bytes)) continue;
      return fail(instance.message, TAMP_INVALID_ARGUMENT,
                  std::string("outputs '") + model.outputs[other].name + "' and '" + output.name +
                      "' overlap; a run needs memory of its own for each");
    }
  }
  return TAMP_OK;
}

inline int index_of(const tamp_port* ports, int count, const char* name) {
  for (int i = 0; i < count && name != nullptr; ++i) {
    if (std::strcmp(ports[i].name, name) == 0) return i;
  }
  return -1;
}

inline tamp_status run(Instance* instance, const void* const* inputs, void* const* outputs, cudaStream_t stream) {
  if (instance == nullptr) return TAMP_INVALID_ARGUMENT;
  const Model& model = *instance->model;
  const tamp_status earlier = reported(instance);
  if (earlier != TAMP_OK) return earlier;
  tamp_status checked = check_pointers(*instance, "input", inputs, model.inputs, model.input_count);
  if (checked == TAMP_OK) checked = check_pointers(*instance, "output", outputs, model.outputs, model.output_count);
  if (checked == TAMP_OK) checked = check_overlaps(*instance, inputs, outputs);
  if (checked != TAMP_OK) return checked;
  rk::Launch launch{};
  uint64_t bases[rk::kMaxBases];  // as many as the model has are set
  bases[rk::kArena] = reinterpret_cast<uint64_t>(instance->arena);
  bases[rk::kWeights] = reinterpret_cast<uint64_t>(instance->weights);
  for (int i = 0; i < model.input_count; ++i) bases[rk::kFirstPort + i] = reinterpret_cast<uint64_t>(inputs[i]);
  for (int i = 0; i < model.output_count; ++i) bases[rk::kFirstPort + model.input_count + i] = reinterpret_cast<uint64_t>(outputs[i]);
  launch.maps = instance->maps;
  launch.veu_of_block = instance->veu_of_block;
  launch.state = instance->state;
  launch.trace = instance->trace;
  launch.report = instance->report_on_device;
  launch.wait_budget_ns = instance->wait_budget_ns;
  launch.weights_kept = instance->weights_kept;
  launch.tokens = instance->request;
  instance->launched = model.start(*instance, launch, bases, stream);
  return instance->launched;
}

inline const char* message(const Instance* instance) { return instance != nullptr ? instance->message.c_str() : create_message().c_str(); }

}  // namespace tamp_host
