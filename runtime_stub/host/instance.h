// The host half of a generated program: create, run, status, destroy. Its text stands in each NAME.cu; the generated C
// functions are one line each on top of it. Nothing here is global; every CUDA call is checked.
//
// Odd: an instance belongs to the device that was current at create. Only one thread at a time may use the instance, and only one run
// at a time may be under way (two runs of one instance must be ordered by their streams; two instances are independent).
#pragma once

#include <cuda.h>
#include <cuda_runtime.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <numeric>
#include <string>
#include <vector>

#include "kernels/vdevice/interpreter.cuh"
#include "runtime_stub/host/checksum.h"
#include "runtime_stub/host/tamp_api.h"

namespace tamp_host {

// A tensor in the arena whose boxes the copy engine fetches (kernels/vdevice/boxes.cuh): channel, w, h, image; elements.
struct BoxMap {
  size_t offset_bytes;
  int64_t extents[4], strides[4];
  int32_t box_w, box_h, boxes;  // boxes: how many one copy brings, one after the other along the channels
  int32_t value_bytes;          // 4, or 2
};

struct Instance;
struct Phases;       // phases.h; graph execution only
struct PhaseRunner;  // also

// What the generated file knows about its program.
struct Model {
  const char* name;
  const tamp_port* inputs;
  int input_count;
  const tamp_port* outputs;
  int output_count;
  size_t arena_bytes;
  size_t weight_bytes;
  uint64_t structure;                 // a hash of this code; also in the header of NAME.weights, which may be replaced by others of it
  const char* weights_file;           // "NAME.weights": what NULL in tamp_options means, looked for ...
  std::string weights_folder;         // ... here, which is empty or ends with a slash, and in the program's own folder
  const void* embedded_weights;       // or null
  tamp_status (*prepare)(Instance&);  // can the current device run it?
  tamp_status (*start)(Instance&, const rk::Launch&, cudaStream_t);
  void (*kernel)(rk::Launch);  // null in graph execution, like all that only events need
  const Phases* phases;        // null in persistent execution
  int veus, threads, smem_bytes, events, instructions;
  bool veus_by_sm;         // vEUs are numbered by where their blocks are put (place_veus)
  int compute_capability;  // 90: the least that the vDevice's bodies need; 0: the stand-in's
  const BoxMap* maps;      // of the boxes that the copy engine fetches
  int map_count;
  const char* const* event_names;  // for messages
  const char* const* record_names;
};

// The first 32 bytes of NAME.weights.
struct WeightsHeader {
  char magic[8];
  uint64_t bytes;
  uint64_t hash;  // Checksum of the data behind it
  uint64_t structure;
};
constexpr char kMagic[8] = {'t', 'a', 'm', 'p', 'W', 'T', '0', '2'};

struct Instance {
  const Model* model = nullptr;
  char* arena = nullptr;
  char* weights = nullptr;
  uint32_t* state = nullptr;
  rk::TensorMap* maps = nullptr;
  uint32_t* veu_of_block = nullptr;  // rk::Launch
  rk::Report* report = nullptr;      // host view
  rk::Report* report_on_device = nullptr;
  int device = 0;
  uint64_t* trace = nullptr;  // allocated where TAMP_TRACE is defined
  PhaseRunner* phases = nullptr;
  void (*drop_phases)(PhaseRunner*) = nullptr;  // by who knows what it is
  cudaEvent_t probe = nullptr;                  // never recorded; asking for it tells whether the device still works
  tamp_status launched = TAMP_OK;               // what the last launch returned
  uint64_t wait_budget_ns = 0;
  float weights_kept = 0;  // rk::Launch
  bool failed = false;
  std::string message;
};

inline std::string& create_message() {
  thread_local std::string message;
  return message;
}

// Makes the status and its text one expression.
inline tamp_status fail(std::string& message, tamp_status status, std::string text) {
  message = std::move(text);
  return status;
}

inline tamp_status fail_cuda(std::string& message, const char* call, cudaError_t error) {
  const tamp_status status = error == cudaErrorMemoryAllocation ? TAMP_OUT_OF_MEMORY : TAMP_CUDA;
  return fail(message, status, std::string(call) + ": " + cudaGetErrorString(error));
}

#define TAMP_TRY_CUDA(message, call)                                             \
  do {                                                                           \
    const cudaError_t tamp_error = (call);                                       \
    if (tamp_error != cudaSuccess) return fail_cuda(message, #call, tamp_error); \
  } while (false)

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

// Model::prepare of persistent execution: does the current device hold all vEUs at once? Anything less would wait for ever.
inline tamp_status prepare_kernel(Instance& instance) {
  const Model& model = *instance.model;
  std::string& message = instance.message;
  int device = 0, sms = 0, cooperative = 0, shared = 0, resident = 0;
  TAMP_TRY_CUDA(message, cudaGetDevice(&device));
  TAMP_TRY_CUDA(message, cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device));
  TAMP_TRY_CUDA(message, cudaDeviceGetAttribute(&cooperative, cudaDevAttrCooperativeLaunch, device));
  TAMP_TRY_CUDA(message, cudaDeviceGetAttribute(&shared, cudaDevAttrMaxSharedMemoryPerBlockOptin, device));
  const tamp_status fits = check_shared_memory(shared, model.smem_bytes, message);
  if (fits != TAMP_OK) return fits;
  TAMP_TRY_CUDA(message, cudaFuncSetAttribute(model.kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, model.smem_bytes));
  TAMP_TRY_CUDA(message, cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, model.kernel, model.threads,
                                                                       static_cast<size_t>(model.smem_bytes)));
  if (!cooperative || resident * sms < model.veus) {
    return fail(message, TAMP_DEVICE,
                "the model needs " + std::to_string(model.veus) + " resident vEUs, the GPU holds " + std::to_string(resident * sms) +
                    "; compile for its vDevice");
  }
  return TAMP_OK;
}

// Model::start of persistent execution.
inline tamp_status start_kernel(Instance& instance, const rk::Launch& launch, cudaStream_t stream) {
  const Model& model = *instance.model;
  void* arguments[] = {const_cast<rk::Launch*>(&launch)};
  // Cooperative: the driver puts all vEUs on the GPU together or none, so two instances cannot starve each other.
  TAMP_TRY_CUDA(instance.message, cudaLaunchCooperativeKernel(model.kernel, dim3(static_cast<unsigned>(model.veus)),
                                                              dim3(static_cast<unsigned>(model.threads)), arguments,
                                                              static_cast<size_t>(model.smem_bytes), stream));
  return TAMP_OK;
}

// The folder of a path, with its last slash; empty where the path has none.
inline std::string folder_of(const std::string& path) { return path.substr(0, path.rfind('/') + 1); }

inline std::string program_folder() {
  char path[4096];
  const ssize_t bytes = readlink("/proc/self/exe", path, sizeof path);
  return bytes > 0 ? folder_of(std::string(path, static_cast<size_t>(bytes))) : std::string();
}

// Opens the file that the user named, or finds the one that NULL stands for; `path` is set.
inline std::FILE* open_weights(const Model& model, const tamp_options& options, std::string& path, std::string& message) {
  path = options.weights_path != nullptr ? std::string(options.weights_path) : model.weights_folder + model.weights_file;
  std::FILE* file = std::fopen(path.c_str(), "rb");
  if (file != nullptr) return file;
  message = path + ": cannot be opened";
  if (options.weights_path != nullptr) return nullptr;
  path = program_folder() + model.weights_file;
  file = std::fopen(path.c_str(), "rb");
  if (file == nullptr) message += ", nor " + path + "; tamp_options.weights_path names another file";
  return file;
}

inline std::string hexadecimal(uint64_t number) {
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(number));
  return text;
}

// `what`: the file or the memory, for the message.
inline tamp_status check_header(const Model& model, const WeightsHeader& header, const std::string& what, std::string& message) {
  if (std::memcmp(header.magic, kMagic, sizeof kMagic) != 0)
    return fail(message, TAMP_WEIGHTS, what + ": not a tamp weights file of this version");
  if (header.structure != model.structure) {
    return fail(message, TAMP_WEIGHTS,
                what + ": weights for programs of structure " + hexadecimal(header.structure) + ", this one is " +
                    hexadecimal(model.structure) + "; 'tamp weights' writes those of a model for it");
  }
  if (header.bytes != model.weight_bytes) {
    return fail(message, TAMP_WEIGHTS,
                what + ": damaged, it says that it holds " + std::to_string(header.bytes) + " bytes of weights, expected " +
                    std::to_string(model.weight_bytes));
  }
  return TAMP_OK;
}

// Streams the file to the device in pieces, so that the host never holds all of it.
inline tamp_status copy_weights_file(const Model& model, const tamp_options& options, char* to, std::string& message) {
  std::string path;
  std::FILE* const file = open_weights(model, options, path, message);
  if (file == nullptr) return TAMP_WEIGHTS;
  constexpr size_t kPiece = size_t{8} << 20;
  char* const piece = static_cast<char*>(std::malloc(kPiece));
  tamp_status status = piece == nullptr ? fail(message, TAMP_OUT_OF_MEMORY, "out of host memory") : TAMP_OK;
  WeightsHeader header{};
  if (status == TAMP_OK && std::fread(&header, sizeof header, 1, file) != 1) header = {};
  if (status == TAMP_OK) status = check_header(model, header, path, message);
  Checksum checksum;
  for (size_t at = 0; status == TAMP_OK && at < model.weight_bytes;) {
    const size_t want = model.weight_bytes - at < kPiece ? model.weight_bytes - at : kPiece;
    if (std::fread(piece, 1, want, file) != want) {
      status = fail(message, TAMP_WEIGHTS, path + ": shorter than it should be");
      break;
    }
    checksum.add(piece, want);
    const cudaError_t error = cudaMemcpy(to + at, piece, want, cudaMemcpyHostToDevice);
    if (error != cudaSuccess) status = fail_cuda(message, "cudaMemcpy of the weights", error);
    at += want;
  }
  if (status == TAMP_OK && std::fgetc(file) != EOF) status = fail(message, TAMP_WEIGHTS, path + ": longer than it should be");
  if (status == TAMP_OK && checksum.value() != header.hash)
    status = fail(message, TAMP_WEIGHTS, path + ": damaged, the checksum of its data is not the one that was written");
  std::free(piece);
  std::fclose(file);
  return status;
}

inline tamp_status load_weights(const Model& model, const tamp_options& options, char* to, std::string& message) {
  const void* data = options.weights;
  if (data != nullptr && options.weights_bytes != sizeof(WeightsHeader) + model.weight_bytes) {
    return fail(message, TAMP_WEIGHTS,
                "weights_bytes is " + std::to_string(options.weights_bytes) + ", expected " +
                    std::to_string(sizeof(WeightsHeader) + model.weight_bytes));
  }
  if (data != nullptr) {
    WeightsHeader header;
    std::memcpy(&header, data, sizeof header);
    const tamp_status checked = check_header(model, header, "the weights in memory", message);
    if (checked != TAMP_OK) return checked;
    data = static_cast<const char*>(data) + sizeof header;
    Checksum checksum;
    checksum.add(data, model.weight_bytes);
    if (checksum.value() != header.hash)
      return fail(message, TAMP_WEIGHTS, "the weights in memory: damaged, the checksum of the data is not the one that was written");
  } else if (options.weights_path == nullptr) {
    data = model.embedded_weights;
  }
  if (data == nullptr) return copy_weights_file(model, options, to, message);
  TAMP_TRY_CUDA(message, cudaMemcpy(to, data, model.weight_bytes, cudaMemcpyHostToDevice));
  return TAMP_OK;
}

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
  const CUtensorMapDataType type = box.value_bytes == 2 ? CU_TENSOR_MAP_DATA_TYPE_UINT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT32;
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

// The share of the weights that L2 shall keep from run to run; 0, which tells L2 nothing, if all weights fit. (alexnet on an H200, with
// 122 MB of weights: 87.2 us with 18 MB of them kept, 88.4 with 31, 91.9 with 43, 92.8 if L2 is told nothing.)
inline float weights_kept(const Model& model) {
  int device = 0, l2_bytes = 0;
  if (cudaGetDevice(&device) != cudaSuccess || cudaDeviceGetAttribute(&l2_bytes, cudaDevAttrL2CacheSize, device) != cudaSuccess) return 0;
  if (static_cast<size_t>(l2_bytes) >= model.weight_bytes) return 0;
  return 0.4F * static_cast<float>(l2_bytes) / static_cast<float>(model.weight_bytes);
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
  const std::string what = report->event == rk::kExchange ? std::string("the others of its gang")
                                                          : "event '" + std::string(model.event_names[report->event]) + "'";
  instance->failed = true;
  return fail(instance->message, TAMP_TIMED_OUT,
              std::string(model.name) + ": vEU " + std::to_string(report->veu) + ", " + task + ": waited in vain for " + what + ", seen " +
                  std::to_string(report->seen) + ", wanted " + std::to_string(report->wanted));
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

// Inputs are read while outputs are being written, so an output in the memory of an input would give wrong numbers.
inline tamp_status check_overlaps(Instance& instance, const void* const* inputs, void* const* outputs) {
  const Model& model = *instance.model;
  for (int o = 0; o < model.output_count; ++o) {
    const tamp_port& output = model.outputs[o];
    for (int i = 0; i < model.input_count; ++i) {
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
  launch.bases[rk::kArena] = reinterpret_cast<uint64_t>(instance->arena);
  launch.bases[rk::kWeights] = reinterpret_cast<uint64_t>(instance->weights);
  for (int i = 0; i < model.input_count; ++i) launch.bases[rk::kFirstPort + i] = reinterpret_cast<uint64_t>(inputs[i]);
  for (int i = 0; i < model.output_count; ++i)
    launch.bases[rk::kFirstPort + model.input_count + i] = reinterpret_cast<uint64_t>(outputs[i]);
  launch.maps = instance->maps;
  launch.veu_of_block = instance->veu_of_block;
  launch.state = instance->state;
  launch.trace = instance->trace;
  launch.report = instance->report_on_device;
  launch.wait_budget_ns = instance->wait_budget_ns;
  launch.weights_kept = instance->weights_kept;
  instance->launched = model.start(*instance, launch, stream);
  return instance->launched;
}

inline const char* message(const Instance* instance) { return instance != nullptr ? instance->message.c_str() : create_message().c_str(); }

}  // namespace tamp_host
