// Graph execution, the host half: a model is a list of launches, one per phase of a rOperator, each of a kernel made for its
// body. They are spread over a few streams so that branches of the network run side by side; the caller's stream forks into
// them and joins them again, also while it is being captured, and then they become the branches of the caller's CUDA graph.
//
// Odd: nothing is captured here, because addresses of inputs and outputs may differ from run to run. Who wants a CUDA graph
// captures NAME_run.
#pragma once

#include <vector>

#include "kernels/vdevice/phase.cuh"
#include "runtime_stub/host/instance.h"

namespace tamp_host {

// A kernel that runs one body.
struct PhaseKernel {
  int smem_bytes;
  cudaError_t (*prepare)(int* resident);  // blocks that one SM holds
  cudaError_t (*launch)(const rk::Launch& launch, const void* call, unsigned blocks, cudaStream_t stream);
};

struct PhaseStep {
  int kernel;        // row of Phases::kernels
  const void* call;  // rk::PhaseCall of the body's arguments
  uint32_t rtasks;
  int stream;             // 0: the caller's
  int first_wait, waits;  // rows of Phases::waits
  int signal;             // row of Phases::event_count, or -1
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
  std::vector<int> resident;  // blocks of each kernel that the device holds
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

  static cudaError_t prepare(int* resident) {
    const cudaError_t error = cudaFuncSetAttribute(&rk::phase_kernel<Body>, cudaFuncAttributeMaxDynamicSharedMemorySize, kSmemBytes);
    if (error != cudaSuccess) return error;
    return cudaOccupancyMaxActiveBlocksPerMultiprocessor(resident, &rk::phase_kernel<Body>, kThreads, static_cast<size_t>(kSmemBytes));
  }

  static cudaError_t launch(const rk::Launch& launch, const void* call, unsigned blocks, cudaStream_t stream) {
    rk::PhaseBases<Veu> from{};
    for (int b = 0; b < Veu::kBases; ++b) from.bases[b] = launch.bases[b];
    from.maps = launch.maps;
    void* arguments[] = {&from, const_cast<void*>(call)};
    return cudaLaunchKernel(&rk::phase_kernel<Body>, dim3(blocks), dim3(kThreads), arguments, static_cast<size_t>(kSmemBytes), stream);
  }
};

template <class Body>
constexpr PhaseKernel phase_kernel_of() {
  return {PhaseLauncher<Body>::kSmemBytes, &PhaseLauncher<Body>::prepare, &PhaseLauncher<Body>::launch};
}

// Model::prepare of graph execution.
inline tamp_status prepare_phases(Instance& instance) {
  const Phases& phases = *instance.model->phases;
  std::string& message = instance.message;
  int device = 0, sms = 0, shared = 0;
  TAMP_TRY_CUDA(message, cudaGetDevice(&device));
  TAMP_TRY_CUDA(message, cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, device));
  TAMP_TRY_CUDA(message, cudaDeviceGetAttribute(&shared, cudaDevAttrMaxSharedMemoryPerBlockOptin, device));
  instance.phases = std::make_shared<PhaseRunner>();
  PhaseRunner& runner = *instance.phases;
  for (int k = 0; k < phases.kernel_count; ++k) {
    const PhaseKernel& kernel = phases.kernels[k];
    const tamp_status fits = check_shared_memory(shared, kernel.smem_bytes, message);
    if (fits != TAMP_OK) return fits;
    int resident = 0;
    TAMP_TRY_CUDA(message, kernel.prepare(&resident));
    if (resident < 1)
      return fail(message, TAMP_DEVICE, "a block of kernel " + std::to_string(k) + " does not fit an SM; compile for its vDevice");
    runner.resident.push_back(resident * sms);
  }
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
inline tamp_status start_phases(Instance& instance, const rk::Launch& launch, cudaStream_t stream) {
  const Phases& phases = *instance.model->phases;
  const PhaseRunner& runner = *instance.phases;
  std::string& message = instance.message;
  if (phases.side_streams > 0) TAMP_TRY_CUDA(message, cudaEventRecord(runner.events[kStartEvent], stream));
  for (int n = 0; n < phases.step_count; ++n) {
    const PhaseStep& step = phases.steps[n];
    const cudaStream_t on = step.stream == 0 ? stream : runner.streams[static_cast<size_t>(step.stream) - 1];
    for (int w = 0; w < step.waits; ++w)
      TAMP_TRY_CUDA(message, cudaStreamWaitEvent(on, runner.events[static_cast<size_t>(phases.waits[step.first_wait + w])], 0));
    const auto resident = static_cast<uint32_t>(runner.resident[static_cast<size_t>(step.kernel)]);
    TAMP_TRY_CUDA(message, phases.kernels[step.kernel].launch(launch, step.call, step.rtasks < resident ? step.rtasks : resident, on));
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
