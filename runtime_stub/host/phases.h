// Graph execution, the host half: a model is a list of launches, one per phase of a rOperator, each of a kernel made for its
// body. They are spread over a few streams so that branches of the network run side by side; the caller's stream forks into
// them and joins them again, also while it is being captured, and then they become the branches of the caller's CUDA graph.
//
// A step that needs nothing but the step before it in its stream is launched as a programmatic dependent of that step (docs/adr/0012): when
// the earlier step ends, blocks of the later one may already be on the SMs and loading their weights. Capture keeps this as an edge of the
// same kind.
//
// Odd: nothing is captured here, because addresses of inputs and outputs may differ from run to run. A user who wants a CUDA graph
// captures NAME_run.
#pragma once

#include <algorithm>
#include <vector>

#include "kernels/vdevice/phase.cuh"
#include "runtime_stub/host/instance.h"

// CUDA as of which a stream that is captured keeps programmatic dependents; with an older toolkit or driver all launches are plain.
#define TAMP_DEPENDENT_LAUNCH_VERSION 12030

namespace tamp_host {

// How a step is launched on this device.
struct PhaseGrid {
  unsigned blocks = 0;
  bool dependent = false;         // programmatically, on the step before it in its stream
  bool next_comes_early = false;  // rk::PhaseBases
};

// What a kernel can do on this device.
struct PhaseLimits {
  int resident = 0;         // blocks that one SM holds
  bool can_depend = false;  // its code waits for the kernel before it
};

// A kernel that runs one body.
struct PhaseKernel {
  int smem_bytes;
  cudaError_t (*prepare)(PhaseLimits& limits);
  cudaError_t (*launch)(const rk::Launch& launch, const uint64_t* bases, const void* call, const PhaseGrid& grid, cudaStream_t stream);
};

struct PhaseStep {   // in tables
  int kernel;        // row of Phases::kernels
  const void* call;  // rk::PhaseCall of the body's arguments
  uint32_t rtasks;
  int stream;             // 0: the caller's
  int first_wait, waits;  // rows of Phases::waits
  int signal;             // row of Phases::event_count, or -1
  bool dependent;         // needs the step before it in its stream and no other
};

constexpr int kStartEvent = 0;  // the caller's stream has come here

struct Phases {
  const PhaseKernel* kernels;
  int kernel_count;
  const PhaseStep* steps;
  int step_count;
  const int* waits;  // events
  int event_count;   // the start, and one per step that another stream waits for
  int side_streams;
};

// Streams and events of one instance.
struct PhaseRunner {
  std::vector<PhaseGrid> grids;  // per step
  std::vector<cudaStream_t> streams;
  std::vector<cudaEvent_t> events;

  PhaseRunner() = default;
  PhaseRunner(const PhaseRunner&) = delete;
  PhaseRunner& operator=(const PhaseRunner&) = delete;
  ~PhaseRunner() {
    for (const cudaEvent_t event : events) cudaEventDestroy(event);
    for (const cudaStream_t stream : streams) cudaStreamDestroy(stream);
  }
};

template <class Body>
struct PhaseLauncher {
  using Veu = typename Body::Veu;
  static constexpr int kSmemBytes = rk::kSmemBytesOf<Veu>;
  static constexpr int kThreads = rk::kPhaseThreads<Veu>;

  static cudaError_t prepare(PhaseLimits& limits) {
    cudaError_t error = cudaFuncSetAttribute(&rk::phase_kernel<Body>, cudaFuncAttributeMaxDynamicSharedMemorySize, kSmemBytes);
    if (error != cudaSuccess) return error;
    cudaFuncAttributes attributes{};
    error = cudaFuncGetAttributes(&attributes, &rk::phase_kernel<Body>);
    if (error != cudaSuccess) return error;
    limits.can_depend = attributes.ptxVersion >= 90;  // what it was compiled for, not what it runs on: older code does not wait
    return cudaOccupancyMaxActiveBlocksPerMultiprocessor(&limits.resident, &rk::phase_kernel<Body>, kThreads,
                                                         static_cast<size_t>(kSmemBytes));
  }

  static cudaError_t launch(const rk::Launch& launch, const uint64_t* bases, const void* call, const PhaseGrid& grid, cudaStream_t stream) {
    rk::PhaseBases<Veu> from;
    std::copy_n(bases, Veu::kBases, from.bases);
    from.maps = launch.maps;
    from.next_comes_early = grid.next_comes_early ? 1 : 0;
#if CUDART_VERSION >= TAMP_DEPENDENT_LAUNCH_VERSION
    if (grid.dependent) {
      cudaLaunchAttribute attribute{};
      attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
      attribute.val.programmaticStreamSerializationAllowed = 1;
      // Not by the members' names: gridDim and blockDim are macros of the stand-in.
      const cudaLaunchConfig_t config = {dim3(grid.blocks), dim3(kThreads), static_cast<size_t>(kSmemBytes), stream, &attribute, 1};
      return cudaLaunchKernelEx(&config, &rk::phase_kernel<Body>, from, *static_cast<const rk::PhaseCall<typename Body::Args>*>(call));
    }
#endif
    void* arguments[] = {&from, const_cast<void*>(call)};
    return cudaLaunchKernel(&rk::phase_kernel<Body>, dim3(grid.blocks), dim3(kThreads), arguments, static_cast<size_t>(kSmemBytes), stream);
  }
};

template <class Body>
constexpr PhaseKernel phase_kernel_of() {
  return {PhaseLauncher<Body>::kSmemBytes, &PhaseLauncher<Body>::prepare, &PhaseLauncher<Body>::launch};
}

// Whether blocks of the next kernel should come while all blocks of this kernel run. The GPU puts blocks on the SMs that have most room. If
// this kernel is on every SM, or leaves a free SM for each block of the next kernel, the next kernel's blocks are spread evenly. Else they
// would pile up on the few SMs that this kernel leaves free, and stay there.
inline bool should_come_early(unsigned blocks, unsigned next_blocks, unsigned sms) { return blocks >= sms || blocks + next_blocks <= sms; }

// Decides how each step is launched, from what its kernel can do on this device.
inline void plan_grids(const Phases& phases, const std::vector<PhaseLimits>& limits, unsigned sms, bool has_dependents,
                       std::vector<PhaseGrid>& grids) {
  grids.assign(static_cast<size_t>(phases.step_count), {});
  std::vector<int> last(static_cast<size_t>(phases.side_streams) + 1, -1);  // step of each stream
  for (int n = 0; n < phases.step_count; ++n) {
    const PhaseStep& step = phases.steps[n];
    const PhaseLimits& kernel = limits[static_cast<size_t>(step.kernel)];
    PhaseGrid& grid = grids[static_cast<size_t>(n)];
    const unsigned resident = static_cast<unsigned>(kernel.resident) * sms;
    grid.blocks = step.rtasks < resident ? step.rtasks : resident;
    int& before = last[static_cast<size_t>(step.stream)];
    grid.dependent = has_dependents && step.dependent && kernel.can_depend && before >= 0;
    if (grid.dependent) {
      PhaseGrid& first = grids[static_cast<size_t>(before)];
      first.next_comes_early = should_come_early(first.blocks, grid.blocks, sms);
    }
    before = n;
  }
}

// Model::prepare of graph execution.
inline tamp_status prepare_phases(Instance& instance) {
  const Phases& phases = *instance.model->phases;
  std::string& message = instance.message;
  int device = 0, sms = 0, shared = 0;
  TAMP_TRY_CUDA(message, cudaGetDevice(&device));
  TAMP_TRY_CUDA(message, cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device));
  TAMP_TRY_CUDA(message, cudaDeviceGetAttribute(&shared, cudaDevAttrMaxSharedMemoryPerBlockOptin, device));
  int driver = 0;
  TAMP_TRY_CUDA(message, cudaDriverGetVersion(&driver));
  instance.phases = new PhaseRunner;
  instance.drop_phases = [](PhaseRunner* runner) { delete runner; };
  PhaseRunner& runner = *instance.phases;
  std::vector<PhaseLimits> limits(static_cast<size_t>(phases.kernel_count));
  for (int k = 0; k < phases.kernel_count; ++k) {
    const PhaseKernel& kernel = phases.kernels[k];
    const tamp_status fits = check_shared_memory(shared, kernel.smem_bytes, message);
    if (fits != TAMP_OK) return fits;
    TAMP_TRY_CUDA(message, kernel.prepare(limits[static_cast<size_t>(k)]));
    if (limits[static_cast<size_t>(k)].resident < 1)
      return fail(message, TAMP_DEVICE, "a block of kernel " + std::to_string(k) + " does not fit an SM; compile for its vDevice");
  }
  plan_grids(phases, limits, static_cast<unsigned>(sms), driver >= TAMP_DEPENDENT_LAUNCH_VERSION, runner.grids);
  for (int s = 0; s < phases.side_streams; ++s) {
    cudaStream_t stream = nullptr;
    TAMP_TRY_CUDA(message, cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    runner.streams.push_back(stream);
  }
  for (int e = 0; e < phases.event_count + phases.side_streams; ++e) {
    cudaEvent_t event = nullptr;
    TAMP_TRY_CUDA(message, cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    runner.events.push_back(event);
  }
  return TAMP_OK;
}

// Model::start of graph execution. The side streams' last events join them to the caller's stream.
inline tamp_status start_phases(Instance& instance, const rk::Launch& launch, const uint64_t* bases, cudaStream_t stream) {
  const Phases& phases = *instance.model->phases;
  const PhaseRunner& runner = *instance.phases;
  std::string& message = instance.message;
  if (phases.side_streams > 0) TAMP_TRY_CUDA(message, cudaEventRecord(runner.events[kStartEvent], stream));
  for (int n = 0; n < phases.step_count; ++n) {
    const PhaseStep& step = phases.steps[n];
    const cudaStream_t on = step.stream == 0 ? stream : runner.streams[static_cast<size_t>(step.stream) - 1];
    for (int w = 0; w < step.waits; ++w)
      TAMP_TRY_CUDA(message, cudaStreamWaitEvent(on, runner.events[static_cast<size_t>(phases.waits[step.first_wait + w])], 0));
    TAMP_TRY_CUDA(message, phases.kernels[step.kernel].launch(launch, bases, step.call, runner.grids[static_cast<size_t>(n)], on));
    if (step.signal >= 0) TAMP_TRY_CUDA(message, cudaEventRecord(runner.events[static_cast<size_t>(step.signal)], on));
  }
  for (int s = 0; s < phases.side_streams; ++s) {
    const cudaEvent_t joined = runner.events[static_cast<size_t>(phases.event_count + s)];
    TAMP_TRY_CUDA(message, cudaEventRecord(joined, runner.streams[static_cast<size_t>(s)]));
    TAMP_TRY_CUDA(message, cudaStreamWaitEvent(stream, joined, 0));
  }
  return TAMP_OK;
}

}  // namespace tamp_host
