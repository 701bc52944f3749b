// What the files of the host half share: Model, all that the generated file says of its program; Instance, all that one context of the API
// owns; and how an error gets its text.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "kernels/vdevice/launch.cuh"
#include "runtime_stub/host/tamp_api.h"

namespace tamp_host {

// A tensor in the arena whose boxes the copy engine fetches (kernels/vdevice/boxes.cuh): channel, w, h, image; elements.
struct BoxMap {
  size_t offset_bytes;
  int64_t extents[4], strides[4];
  int32_t box_w, box_h, boxes;  // boxes: how many one copy brings, one after the other along the channels
  int32_t value_bytes;          // 4, 2 or 1
};

struct Instance;
struct Phases;       // phases.h; graph execution only
struct PhaseRunner;  // also
struct TokenMemory;  // tokens.h; programs that make tokens only

// What the generated file knows about its program.
struct Model {
  const char* name;
  const tamp_port* inputs;
  int input_count;
  const tamp_port* outputs;
  int output_count;
  const int* in_place;  // for each output the input whose memory it may take, or -1
  size_t arena_bytes;
  size_t weight_bytes;
  float weights_in_l2;                // the share of L2 in which weights shall stay from one inference to the next
  uint64_t structure;                 // a hash of this code; also in the header of NAME.weights, which may be replaced by others of it
  const char* weights_file;           // "NAME.weights": what NULL in tamp_options means, looked for ...
  std::string weights_folder;         // ... here, which is empty or ends with a slash, and in the program's own folder
  const void* embedded_weights;       // or null
  tamp_status (*prepare)(Instance&);  // can the current device run it?
  tamp_status (*start)(Instance&, const rk::Launch&, const uint64_t* bases, cudaStream_t);  // bases: rk::LaunchOf
  const Phases* phases;                                                                     // null in persistent execution
  int veus, threads, smem_bytes, events, instructions;
  bool veus_by_sm;         // vEUs are numbered by where their blocks are put (place_veus.h)
  int compute_capability;  // 90: the least that the vDevice's bodies need; 0: the stand-in's
  const BoxMap* maps;      // of the boxes that the copy engine fetches
  int map_count;
  const char* const* event_names;  // for messages
  const char* const* record_names;
};

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
  TokenMemory* tokens = nullptr;
  void (*drop_tokens)(TokenMemory*) = nullptr;
  const rk::TokenRequest* request = nullptr;  // of the next launch
  cudaEvent_t probe = nullptr;                // never recorded; asking for it tells whether the device still works
  tamp_status launched = TAMP_OK;             // what the last launch returned
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

}  // namespace tamp_host
