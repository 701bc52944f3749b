// Times stages of a program, for `--measure` of the policies of IOS (docs/policies.md). This file is a part of runner.cpp if TAMP_STAGES is
// defined. It comes after the generated source and uses functions from inside of it: the launches of graph execution one by one, or the
// interpreter, with other lanes than the program's.
//
// A stage is run once alone, and once followed by copies of itself. The time that the copies add is the stage's time as one of many. In
// graph execution the copies are launched here, in one CUDA graph; in persistent execution the lanes contain the copies, in one launch.
//
// runner.cpp includes this file inside its own namespace, after all headers that this file needs.
//
// The file of stages. Graph execution: one line for each stage, with groups of launches: "0 1|2" is launch 1 after launch 0, and launch 2
// beside these two. Persistent execution: codegen::lane_table of pairs of lanes, one after another; the number printed for a pair is how
// much longer the second takes than the first.
#pragma once

namespace stages {

namespace host = MODEL(detail)::tamp_host;
namespace device = MODEL(detail)::rk;

#if defined(TAMP_CUDA_ON_CPU)
constexpr int kCopies = 1, kRounds = 1;  // its times say nothing
#else
constexpr int kCopies = 8, kRounds = 5;
#endif

// Gets the parameters with which NAME_run launches, by a run that launches nothing.
class Hook {
 public:
  explicit Hook(Instance& instance) {
    host::Instance& context = *instance.context;
    const host::Model& model = *context.model;
    host::Model asking = model;
    asking.start = [](host::Instance& asked, const device::Launch& launch, const uint64_t* bases, cudaStream_t) {
      const int count = device::kFirstPort + asked.model->input_count + asked.model->output_count;
      seen() = {launch, {bases, bases + count}};
      return TAMP_OK;
    };
    context.model = &asking;
    call_model(instance);
    context.model = &model;
    parameters = seen();
  }
  struct Parameters {
    device::Launch launch;
    std::vector<uint64_t> bases;
  };
  Parameters parameters;

 private:
  static Parameters& seen() {
    static Parameters parameters;
    return parameters;
  }
};

// Microseconds from the start to the end of what `enqueue` puts on the instance's stream, the median of some times.
template <class F>
double time_us(Instance& instance, const F& enqueue) {
#if !defined(TAMP_CUDA_ON_CPU)
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t runs = nullptr;
  CHECK_CUDA(cudaStreamBeginCapture(instance.stream, cudaStreamCaptureModeThreadLocal));
  enqueue();
  CHECK_CUDA(cudaStreamEndCapture(instance.stream, &graph));
  CHECK_CUDA(cudaGraphInstantiate(&runs, graph, 0));
  CHECK_CUDA(cudaGraphDestroy(graph));
#endif
  std::vector<float> milliseconds;
  for (int round = -kWarmUps; round < kRounds; ++round) {
    CHECK_CUDA(cudaEventRecord(instance.before, instance.stream));
#if defined(TAMP_CUDA_ON_CPU)
    enqueue();
#else
    CHECK_CUDA(cudaGraphLaunch(runs, instance.stream));
#endif
    CHECK_CUDA(cudaEventRecord(instance.after, instance.stream));
    CHECK_CUDA(cudaStreamSynchronize(instance.stream));
    float time = 0;
    CHECK_CUDA(cudaEventElapsedTime(&time, instance.before, instance.after));
    if (round >= 0) milliseconds.push_back(time);
  }
#if !defined(TAMP_CUDA_ON_CPU)
  CHECK_CUDA(cudaGraphExecDestroy(runs));
#endif
  std::sort(milliseconds.begin(), milliseconds.end());
  return static_cast<double>(milliseconds[milliseconds.size() / 2]) * 1e3;
}

std::vector<char> read_stages(const std::string& path) {
  std::FILE* const file = std::fopen(path.c_str(), "rb");
  if (file == nullptr) stop(1, path + ": cannot be read");
  std::vector<char> data;
  char piece[1 << 16];
  for (size_t bytes = 0; (bytes = std::fread(piece, 1, sizeof piece, file)) > 0;) data.insert(data.end(), piece, piece + bytes);
  std::fclose(file);
  data.push_back('\0');
  return data;
}

#if defined(TAMP_STAGES_OF_LAUNCHES)

using Groups = std::vector<std::vector<int>>;

std::vector<Groups> parse(const char* text, int steps) {
  std::vector<Groups> stages;
  while (*text != '\0') {
    stages.push_back({{}});
    for (; *text != '\n' && *text != '\0'; text += *text == ' ' ? 1 : 0) {
      if (*text == '|') stages.back().emplace_back(), ++text;
      char* end = nullptr;
      const long step = std::strtol(text, &end, 10);
      if (end == text || step < 0 || step >= steps) stop(1, "--stages: no such launch");
      stages.back().back().push_back(static_cast<int>(step));
      text = end;
    }
    if (*text == '\n') ++text;
  }
  return stages;
}

class Timer {
 public:
  explicit Timer(Instance& instance)
      : instance_(instance), hook_(instance), phases_(*instance.context->model->phases), grids_(instance.context->phases->grids) {
    int number = 0, sms = 0;
    CHECK_CUDA(cudaGetDevice(&number));
    CHECK_CUDA(cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, number));
    sms_ = static_cast<unsigned>(sms);
  }
  ~Timer() {
    for (const cudaStream_t stream : streams_) cudaStreamDestroy(stream);
    for (const cudaEvent_t event : events_) cudaEventDestroy(event);
  }
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;

  void print(const std::vector<char>& file) {
    for (const Groups& stage : parse(file.data(), phases_.step_count)) {
      while (events_.size() < stage.size()) add_stream();
      const double one_us = time_us(instance_, [&] { enqueue(stage, 1); });
      std::printf("stage %.4f\n", (time_us(instance_, [&] { enqueue(stage, 1 + kCopies); }) - one_us) / kCopies);
    }
  }

 private:
  void add_stream() {
    events_.emplace_back();
    CHECK_CUDA(cudaEventCreateWithFlags(&events_.back(), cudaEventDisableTiming));
    if (events_.size() == 1) return;  // the first group uses the instance's stream
    streams_.emplace_back();
    CHECK_CUDA(cudaStreamCreateWithFlags(&streams_.back(), cudaStreamNonBlocking));
  }

  void enqueue(const Groups& stage, int copies) const {
    const cudaStream_t stream = instance_.stream;
    for (int copy = 0; copy < copies; ++copy) {
      if (stage.size() > 1) CHECK_CUDA(cudaEventRecord(events_[0], stream));
      for (size_t g = 1; g < stage.size(); ++g) CHECK_CUDA(cudaStreamWaitEvent(streams_[g - 1], events_[0], 0));
      for (size_t g = 0; g < stage.size(); ++g) {
        const bool alone = stage.size() == 1;
        enqueue_group(stage[g], g == 0 ? stream : streams_[g - 1], alone && copy > 0, alone && copy + 1 < copies);
      }
      for (size_t g = 1; g < stage.size(); ++g) {
        CHECK_CUDA(cudaEventRecord(events_[g], streams_[g - 1]));
        CHECK_CUDA(cudaStreamWaitEvent(stream, events_[g], 0));
      }
    }
  }

  // Launches as prepare_phases plans it for launches that follow each other. `goes_on`: a copy of the group comes before; `again`: a copy
  // of the group follows.
  void enqueue_group(const std::vector<int>& group, cudaStream_t stream, bool goes_on, bool again) const {
    for (size_t k = 0; k < group.size(); ++k) {
      const host::PhaseStep& step = phases_.steps[group[k]];
      host::PhaseGrid grid = grids_[static_cast<size_t>(group[k])];
      grid.dependent = grid.dependent && (k > 0 || goes_on);
      const bool is_last = k + 1 == group.size();
      const host::PhaseGrid& next = grids_[static_cast<size_t>(group[is_last ? 0 : k + 1])];
      grid.next_comes_early = (!is_last || again) && next.dependent && host::should_come_early(grid.blocks, next.blocks, sms_);
      CHECK_CUDA(phases_.kernels[step.kernel].launch(hook_.parameters.launch, hook_.parameters.bases.data(), step.call, grid, stream));
    }
  }

  Instance& instance_;
  Hook hook_;
  const host::Phases& phases_;
  const std::vector<host::PhaseGrid>& grids_;  // of launches one behind another
  unsigned sms_ = 0;
  std::vector<cudaStream_t> streams_;
  std::vector<cudaEvent_t> events_;
};

#else

// Addresses of lanes on the device.
struct Lanes {
  const device::Instruction* instructions;
  const uint32_t* lane_begin;
  const uint32_t* event_count;
};

using Parameter = device::LaunchOf<MODEL(detail)::Veu::kBases>;

__global__ void __launch_bounds__(device::kThreadsOf<MODEL(detail)::Veu>, 1)
    stage_kernel(const __grid_constant__ Parameter launch, const __grid_constant__ Lanes lanes) {
  device::interpret<MODEL(detail)::Program>(
      launch, device::Tables{lanes.instructions, lanes.lane_begin, MODEL(detail)::kRecords, lanes.event_count});
}

class Timer {
 public:
  explicit Timer(Instance& instance) : instance_(instance) {
    const Hook hook(instance);
    parameter_ = host::parameter_of(&MODEL(detail)::MODEL(kernel), hook.parameters.launch, hook.parameters.bases.data());
    CHECK_CUDA(cudaFuncSetAttribute(&stage_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, model().smem_bytes));
  }

  void print(const std::vector<char>& file) {
    char* const tables = static_cast<char*>(device_memory(file.size()));
    CHECK_CUDA(cudaMemcpy(tables, file.data(), file.size(), cudaMemcpyHostToDevice));
    std::vector<Stage> stages;
    const size_t words = (file.size() - 1) / sizeof(uint32_t);  // behind them is a zero
    const uint32_t* const header = reinterpret_cast<const uint32_t*>(file.data());
    uint32_t most_events = 0;
    for (size_t at = 0; at < words; at += header[at]) {
      const auto word = [&](size_t n) { return reinterpret_cast<const uint32_t*>(tables) + at + n; };
      const size_t counts = 4 + static_cast<size_t>(model().veus) + 1;
      const uint32_t events = header[at + 1], first_row = header[at + 2];
      stages.push_back({{reinterpret_cast<const device::Instruction*>(word(first_row)), word(4), word(counts)}, events});
      most_events = std::max(most_events, events);
    }
    state_bytes_ = sizeof(uint32_t) * device::kLineWords * (device::kStateLines + static_cast<size_t>(most_events));
    parameter_.state = static_cast<uint32_t*>(device_memory(state_bytes_));
    for (size_t s = 0; s + 1 < stages.size(); s += 2) {
      const double one_us = time_of(stages[s]);
      std::printf("stage %.4f\n", time_of(stages[s + 1]) - one_us);
    }
    CHECK_CUDA(cudaFree(parameter_.state));
    CHECK_CUDA(cudaFree(tables));
  }

 private:
  struct Stage {
    Lanes lanes;
    uint32_t events;
  };

  const host::Model& model() const { return *instance_.context->model; }

  // Events count from run to run, so that other lanes begin from zero.
  double time_of(Stage& stage) {
    CHECK_CUDA(cudaMemset(parameter_.state, 0, state_bytes_));
    void* arguments[] = {&parameter_, &stage.lanes};
    return time_us(instance_, [&] {
      CHECK_CUDA(cudaLaunchCooperativeKernel(&stage_kernel, dim3(static_cast<unsigned>(model().veus)),
                                             dim3(static_cast<unsigned>(model().threads)), arguments,
                                             static_cast<size_t>(model().smem_bytes), instance_.stream));
    });
  }

  Instance& instance_;
  Parameter parameter_{};
  size_t state_bytes_ = 0;
};

#endif

}  // namespace stages
