// The program that `tamp run` builds beside a generated model and starts as a child process. Plain C++ on the generated C
// API and the CUDA runtime, nothing of tamp; it is also an example of how to call a model.
//
//   g++/nvcc -DTAMP_MODEL_HEADER='"NAME.h"' -DTAMP_MODEL=NAME runner.cpp NAME.cu
//   runner --input FILE... --output FILE... [--weights FILE] [--repeat N] [--wait-budget SECONDS] [--graph] [--instances N]
//          [--train N] [--trace FILE [--trace-all]] [--multiprocessors N]
//          [--races FILE [--kept BEGIN:END]...] [--arena FILE] [--stages FILE] [--lengths N,N..]
//          [--prompt N,N.. [--max-tokens N] [--temperature T] [--top-k K] [--top-p P] [--repetition-penalty P] [--seed S]]
//
// Files hold the raw bytes of one port each, in the model's order. Prints `key value...` lines: `device NAME`, per
// timed run `run MICROSECONDS_BY_EVENTS MICROSECONDS_BY_CLOCK`, per stage `stage MICROSECONDS`; with a
// prompt `token NUMBER` for each token as it is made, instead of outputs. Exit codes: 0 good, 1 failed, 4 a repeat or
// a second instance gave other bytes than the first run, or single runs other tokens, 10 + tamp_status where the model's API refused. The
// message is on stderr.
#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <string>
#include <vector>

#if defined(TAMP_RACES)
#include <cpu_races.h>
#endif
#if defined(TAMP_STAGES) || defined(TAMP_TOKENS)
#include <algorithm>
#endif
#include TAMP_MODEL_HEADER

#define TAMP_JOIN_AGAIN(a, b) a##_##b
#define TAMP_JOIN(a, b) TAMP_JOIN_AGAIN(a, b)
#define MODEL(function) TAMP_JOIN(TAMP_MODEL, function)

namespace {

// The first run on a GPU loads code and weights from far away; it is checked like the others but not timed.
#if defined(TAMP_CUDA_ON_CPU)
constexpr int kWarmUps = 0;
#else
constexpr int kWarmUps = 1;
#endif

struct Job {
  std::string weights;
  std::vector<std::string> inputs, outputs;
  int repeat = 1;
  int instances = 1;
  bool graph = false;
  int train = 0;           // also times N launches back to back, as a server under load would see them
  std::string trace;       // time stamps of the last run, u64 [instruction][column]; needs a build with -DTAMP_TRACE
  bool trace_all = false;  // of every timed run, one after another
  double wait_budget_seconds = 0;
  std::string races;  // log of all accesses to device memory; needs a build with -DTAMP_RACES (cpu_races.h)
  std::vector<std::string> kept;
  std::string arena;            // all activations after the runs; needs a build with -DTAMP_ARENA that includes the generated source
  std::string stages;           // of the program, to be timed one by one (stages.h); needs a build with -DTAMP_STAGES like that
  int multiprocessors = 0;      // of the stand-in; 0: as many as it likes
  std::vector<int64_t> prompt;  // of a program that makes tokens: that is what is run. Needs a build with -DTAMP_TOKENS
  int max_tokens = 16, top_k = 0;
  double temperature = 0, top_p = 0, repetition_penalty = 0;
  uint64_t seed = 0;
  std::vector<int64_t> lengths;  // of a program with lengths, in their order; none: the largest. Needs a build with -DTAMP_LENGTHS
};

[[noreturn]] void stop(int exit_code, const std::string& message) {
  std::fprintf(stderr, "%s\n", message.c_str());
  std::exit(exit_code);
}

void check_cuda(cudaError_t error, const char* call) {
  if (error != cudaSuccess) stop(1, std::string(call) + ": " + cudaGetErrorString(error));
}
#define CHECK_CUDA(call) check_cuda((call), #call)

void check_model(tamp_status status, MODEL(context) * context) {
  if (status != TAMP_OK) stop(10 + status, MODEL(message)(context));
}

std::vector<int64_t> read_numbers(const std::string& text) {
  std::vector<int64_t> numbers;
  for (const char* at = text.c_str(); *at != '\0'; at += *at == ',' ? 1 : 0)
    numbers.push_back(std::strtoll(at, const_cast<char**>(&at), 10));
  return numbers;
}

Job read_job(int argc, char** argv) {
  Job job;
  for (int i = 1; i < argc; ++i) {
    const std::string flag = argv[i];
    if (flag == "--graph" || flag == "--trace-all") {
      (flag == "--graph" ? job.graph : job.trace_all) = true;
      continue;
    }
    if (++i == argc) stop(1, flag + " needs a value");
    const std::string value = argv[i];
    if (flag == "--weights")
      job.weights = value;
    else if (flag == "--input")
      job.inputs.push_back(value);
    else if (flag == "--output")
      job.outputs.push_back(value);
    else if (flag == "--repeat")
      job.repeat = std::atoi(value.c_str());
    else if (flag == "--instances")
      job.instances = std::atoi(value.c_str());
    else if (flag == "--train")
      job.train = std::atoi(value.c_str());
    else if (flag == "--trace")
      job.trace = value;
    else if (flag == "--races")
      job.races = value;
    else if (flag == "--arena")
      job.arena = value;
    else if (flag == "--stages")
      job.stages = value;
    else if (flag == "--kept")
      job.kept.push_back(value);
    else if (flag == "--multiprocessors")
      job.multiprocessors = std::atoi(value.c_str());
    else if (flag == "--lengths")
      job.lengths = read_numbers(value);
    else if (flag == "--prompt")
      job.prompt = read_numbers(value);
    else if (flag == "--max-tokens")
      job.max_tokens = std::atoi(value.c_str());
    else if (flag == "--top-k")
      job.top_k = std::atoi(value.c_str());
    else if (flag == "--temperature")
      job.temperature = std::atof(value.c_str());
    else if (flag == "--top-p")
      job.top_p = std::atof(value.c_str());
    else if (flag == "--repetition-penalty")
      job.repetition_penalty = std::atof(value.c_str());
    else if (flag == "--seed")
      job.seed = std::strtoull(value.c_str(), nullptr, 10);
    else if (flag == "--wait-budget")
      job.wait_budget_seconds = std::atof(value.c_str());
    else
      stop(1, "unknown option " + flag);
  }
  if (job.repeat < 1 || job.instances < 1) stop(1, "--repeat and --instances must be at least 1");
  if (static_cast<int>(job.inputs.size()) != MODEL(input_count)() || static_cast<int>(job.outputs.size()) != MODEL(output_count)()) {
    stop(1, "the model has other numbers of inputs and outputs than the job");
  }
  return job;
}

std::vector<char> read_file(const std::string& path, size_t bytes) {
  std::vector<char> data(bytes + 1);  // to see that nothing is behind them
  std::FILE* const file = std::fopen(path.c_str(), "rb");
  const size_t read = file == nullptr ? 0 : std::fread(data.data(), 1, data.size(), file);
  if (file == nullptr || read != bytes) stop(1, path + ": cannot be read, or not " + std::to_string(bytes) + " bytes");
  std::fclose(file);
  data.resize(bytes);
  return data;
}

void write_file(const std::string& path, const void* data, size_t bytes, const char* mode = "wb") {
  std::FILE* const file = std::fopen(path.c_str(), mode);
  const bool written = file != nullptr && std::fwrite(data, 1, bytes, file) == bytes;
  if (file == nullptr || std::fclose(file) != 0 || !written) stop(1, path + ": cannot be written");
}

double clock_us() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) * 1e6 + static_cast<double>(now.tv_nsec) * 1e-3;
}

std::string device_name() {
#if defined(TAMP_CUDA_ON_CPU)
  return "stand-in on the CPU";
#else
  int device = 0;
  cudaDeviceProp properties;
  CHECK_CUDA(cudaGetDevice(&device));
  CHECK_CUDA(cudaGetDeviceProperties(&properties, device));
  return properties.name;
#endif
}

// One context with memory and a stream of its own.
struct Instance {
  MODEL(context) * context = nullptr;
  cudaStream_t stream = nullptr;
  cudaEvent_t before = nullptr, after = nullptr;
  std::vector<void*> inputs, outputs;
  std::vector<size_t> output_bytes;
  std::vector<int64_t> lengths;
#if !defined(TAMP_CUDA_ON_CPU)
  cudaGraphExec_t graph = nullptr;
#endif
};

void* device_memory(size_t bytes) {
  void* memory = nullptr;
  CHECK_CUDA(cudaMalloc(&memory, bytes > 0 ? bytes : 16));
  return memory;
}

// What a port has at these lengths.
size_t bytes_of(const Job& job, bool is_output, size_t port) {
  size_t bytes = (is_output ? MODEL(outputs) : MODEL(inputs))()[port].bytes;
#if defined(TAMP_LENGTHS)
  const tamp_lengths& info = *MODEL(lengths_info)();
  const tamp_axis* const axes = is_output ? info.output_axes : info.input_axes;
  for (int a = 0; a < (is_output ? info.output_axis_count : info.input_axis_count) && !job.lengths.empty(); ++a) {
    if (axes[a].port != static_cast<int32_t>(port)) continue;
    const auto extent_at = [&](int64_t value) { return static_cast<size_t>((axes[a].times * value + axes[a].plus) / axes[a].over); };
    const size_t largest = extent_at(info.lengths[axes[a].length].largest);
    bytes = largest == 0 ? 0 : bytes / largest * extent_at(job.lengths[static_cast<size_t>(axes[a].length)]);
  }
#endif
  (void)job;
  return bytes;
}

Instance make_instance(const Job& job) {
  Instance instance;
  tamp_options options{};
  if (!job.weights.empty()) options.weights_path = job.weights.c_str();
  options.wait_budget_seconds = job.wait_budget_seconds;
  const tamp_status created = MODEL(create)(&options, &instance.context);
  if (created != TAMP_OK) stop(10 + created, MODEL(message)(nullptr));
  CHECK_CUDA(cudaStreamCreate(&instance.stream));
  CHECK_CUDA(cudaEventCreate(&instance.before));
  CHECK_CUDA(cudaEventCreate(&instance.after));
  for (size_t i = 0; i < job.inputs.size(); ++i) {
    const size_t bytes = bytes_of(job, /*is_output=*/false, i);
    instance.inputs.push_back(device_memory(bytes));
    const std::vector<char> data = read_file(job.inputs[i], bytes);
    CHECK_CUDA(cudaMemcpy(instance.inputs[i], data.data(), bytes, cudaMemcpyHostToDevice));
  }
  for (size_t i = 0; i < job.outputs.size(); ++i) {
    instance.output_bytes.push_back(bytes_of(job, /*is_output=*/true, i));
    instance.outputs.push_back(device_memory(instance.output_bytes[i]));
  }
  instance.lengths = job.lengths;
  return instance;
}

void free_instance(Instance& instance) {
#if !defined(TAMP_CUDA_ON_CPU)
  if (instance.graph != nullptr) CHECK_CUDA(cudaGraphExecDestroy(instance.graph));
#endif
  for (void* memory : instance.inputs) CHECK_CUDA(cudaFree(memory));
  for (void* memory : instance.outputs) CHECK_CUDA(cudaFree(memory));
  CHECK_CUDA(cudaEventDestroy(instance.before));
  CHECK_CUDA(cudaEventDestroy(instance.after));
  CHECK_CUDA(cudaStreamDestroy(instance.stream));
  MODEL(destroy)(instance.context);
}

void call_model(Instance& instance) {
#if defined(TAMP_LENGTHS)
  if (!instance.lengths.empty()) {
    MODEL(lengths) lengths;  // a struct of as many numbers
    if (sizeof lengths != instance.lengths.size() * sizeof(int64_t)) stop(1, "the model has another number of lengths than the job");
    std::memcpy(&lengths, instance.lengths.data(), sizeof lengths);
    const tamp_status started = MODEL(run_at)(instance.context, &lengths, instance.inputs.data(), instance.outputs.data(), instance.stream);
    return check_model(started, instance.context);
  }
#endif
  check_model(MODEL(run)(instance.context, instance.inputs.data(), instance.outputs.data(), instance.stream), instance.context);
}

#if !defined(TAMP_CUDA_ON_CPU)
void capture(Instance& instance) {
  cudaGraph_t graph = nullptr;
  CHECK_CUDA(cudaStreamBeginCapture(instance.stream, cudaStreamCaptureModeThreadLocal));
  call_model(instance);
  CHECK_CUDA(cudaStreamEndCapture(instance.stream, &graph));
  CHECK_CUDA(cudaGraphInstantiate(&instance.graph, graph, 0));
  CHECK_CUDA(cudaGraphDestroy(graph));
}
#endif

void launch(Instance& instance) {
#if !defined(TAMP_CUDA_ON_CPU)
  if (instance.graph != nullptr) {
    CHECK_CUDA(cudaGraphLaunch(instance.graph, instance.stream));
    return;
  }
#endif
  call_model(instance);
}

// Outputs start as NaN patterns, so that an element that is never written shows.
void start(Instance& instance) {
  for (size_t i = 0; i < instance.outputs.size(); ++i) {
    CHECK_CUDA(cudaMemsetAsync(instance.outputs[i], 0xff, instance.output_bytes[i], instance.stream));
  }
  CHECK_CUDA(cudaEventRecord(instance.before, instance.stream));
  launch(instance);
  CHECK_CUDA(cudaEventRecord(instance.after, instance.stream));
}

std::vector<std::vector<char>> finish(Instance& instance) {
  CHECK_CUDA(cudaStreamSynchronize(instance.stream));
  check_model(MODEL(status)(instance.context), instance.context);
  std::vector<std::vector<char>> outputs;
  for (size_t i = 0; i < instance.outputs.size(); ++i) {
    outputs.emplace_back(instance.output_bytes[i]);
    CHECK_CUDA(cudaMemcpy(outputs[i].data(), instance.outputs[i], outputs[i].size(), cudaMemcpyDeviceToHost));
  }
  return outputs;
}

void require_same(const std::vector<std::vector<char>>& first, const std::vector<std::vector<char>>& now, int run) {
  for (size_t i = 0; i < first.size(); ++i) {
    if (first[i] != now[i])
      stop(4, "output '" + std::string(MODEL(outputs)()[i].name) + "' of run " + std::to_string(run) +
                  " is not bitwise that of the first run");
  }
}

void write_outputs(const Job& job, const std::vector<std::vector<char>>& outputs) {
  for (size_t i = 0; i < outputs.size(); ++i) write_file(job.outputs[i], outputs[i].data(), outputs[i].size());
}

#if defined(TAMP_TRACE)
// Appends to the file.
void write_trace(const Job& job, const Instance& instance) {
  int columns = 0, instructions = 0;
  const uint64_t* const stamps = MODEL(trace)(instance.context, &columns, &instructions);
  std::vector<uint64_t> host(static_cast<size_t>(columns) * static_cast<size_t>(instructions));
  CHECK_CUDA(cudaMemcpy(host.data(), stamps, host.size() * sizeof(uint64_t), cudaMemcpyDeviceToHost));
  write_file(job.trace, host.data(), host.size() * sizeof(uint64_t), "ab");
}
#endif

#if defined(TAMP_ARENA)
void write_arena(const Job& job, const Instance& instance) {
#if defined(TAMP_LENGTHS)
  const auto& program = *instance.context->last->instance;
#else
  const auto& program = *instance.context;
#endif
  std::vector<char> host(program.model->arena_bytes);
  CHECK_CUDA(cudaMemcpy(host.data(), program.arena, host.size(), cudaMemcpyDeviceToHost));
  write_file(job.arena, host.data(), host.size());
}
#endif

#if defined(TAMP_STAGES)
#include "runtime_stub/host/stages.h"

// After the stages were timed, the program must give the same results as before.
void time_stages(const Job& job, Instance& instance) {
  start(instance);
  const std::vector<std::vector<char>> before = finish(instance);
  stages::Timer(instance).print(stages::read_stages(job.stages));
  check_model(MODEL(status)(instance.context), instance.context);
  start(instance);
  require_same(before, finish(instance), job.repeat);
}
#endif

#if defined(TAMP_RACES)
cuda_on_cpu::AccessLog& access_log() {
  static cuda_on_cpu::AccessLog log;
  return log;
}

void watch(const Job& job) {
  for (const std::string& range : job.kept) {
    char* end = nullptr;
    const uint64_t begin = std::strtoull(range.c_str(), &end, 10);
    access_log().keep(begin, std::strtoull(end + 1, nullptr, 10));
  }
  cuda_on_cpu::watcher = &access_log();
}
#endif

void run_all(const Job& job, std::vector<Instance>& instances) {
  std::vector<std::vector<char>> first;
  for (int run = -kWarmUps; run < job.repeat; ++run) {
    for (Instance& instance : instances) CHECK_CUDA(cudaStreamSynchronize(instance.stream));
#if defined(TAMP_RACES)
    access_log().begin_run();
#endif
    const double clock_before_us = clock_us();
    for (Instance& instance : instances) start(instance);
    for (Instance& instance : instances) CHECK_CUDA(cudaStreamSynchronize(instance.stream));
    const double run_us = clock_us() - clock_before_us;
    float milliseconds = 0;
    CHECK_CUDA(cudaEventElapsedTime(&milliseconds, instances[0].before, instances[0].after));
    for (Instance& instance : instances) {
      const std::vector<std::vector<char>> outputs = finish(instance);
      if (first.empty()) first = outputs;
      require_same(first, outputs, run);
    }
    if (run >= 0) std::printf("run %.3f %.3f\n", static_cast<double>(milliseconds) * 1e3, run_us);
#if defined(TAMP_TRACE)
    if (!job.trace.empty() && run >= 0 && (job.trace_all || run + 1 == job.repeat)) write_trace(job, instances[0]);
#endif
  }
  write_outputs(job, first);
}

#if defined(TAMP_TOKENS)
#if defined(TAMP_TOKEN_STEPS)
#include "runtime_stub/host/token_steps.h"
#endif

int print_token(void*, int64_t token) {
  std::printf("token %lld\n", static_cast<long long>(token));
  std::fflush(stdout);
  return 0;
}

// The caller's inputs are those that each call gives; the program has memory of its own for the others.
void run_tokens(const Job& job, Instance& instance) {
  tamp_tokens wanted{};
  wanted.prompt = job.prompt.data();
  wanted.prompt_count = static_cast<int32_t>(job.prompt.size());
  wanted.max_tokens = job.max_tokens;
  wanted.temperature = static_cast<float>(job.temperature);
  wanted.top_k = job.top_k;
  wanted.top_p = static_cast<float>(job.top_p);
  wanted.repetition_penalty = static_cast<float>(job.repetition_penalty);
  wanted.seed = job.seed;
  wanted.inputs = instance.inputs.data();
#if defined(TAMP_LENGTHS)
  wanted.lengths = instance.lengths.empty() ? nullptr : instance.lengths.data();
#endif
  std::vector<int64_t> tokens(static_cast<size_t>(job.max_tokens));
  for (int run = -kWarmUps; run < job.repeat; ++run) {
    wanted.on_token = run + 1 == job.repeat ? print_token : nullptr;
    int32_t count = 0;
    const double before_us = clock_us();
    check_model(MODEL(generate)(instance.context, &wanted, tokens.data(), &count, instance.stream), instance.context);
    tokens.resize(static_cast<size_t>(count));
    const double run_us = clock_us() - before_us;
    if (run >= 0) std::printf("run %.3f %.3f\n", run_us, run_us);
    tokens.resize(static_cast<size_t>(run + 1 == job.repeat ? count : job.max_tokens));
  }
#if defined(TAMP_TOKEN_STEPS)
  const std::vector<int64_t> steps = steps::tokens_of(job, instance);
  for (size_t t = 0; t < std::max(steps.size(), tokens.size()); ++t) {
    if (t < steps.size() && t < tokens.size() && steps[t] == tokens[t]) continue;
    stop(4, "token " + std::to_string(t) + " is not the one that single runs make");
  }
#endif
}
#endif

void run_train(const Job& job, Instance& instance) {
  constexpr int kRounds = 7;
  for (int round = 0; round < kRounds; ++round) {
    CHECK_CUDA(cudaEventRecord(instance.before, instance.stream));
    for (int i = 0; i < job.train; ++i) launch(instance);
    CHECK_CUDA(cudaEventRecord(instance.after, instance.stream));
    finish(instance);
    float milliseconds = 0;
    CHECK_CUDA(cudaEventElapsedTime(&milliseconds, instance.before, instance.after));
    std::printf("train %.3f\n", static_cast<double>(milliseconds) * 1e3 / job.train);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const Job job = read_job(argc, argv);
  if (!job.trace.empty()) std::remove(job.trace.c_str());
#if defined(TAMP_CUDA_ON_CPU)
  if (job.graph || job.instances > 1) stop(1, "--graph and --instances need a GPU");
  if (job.multiprocessors > 0) cuda_on_cpu::set_multiprocessors(job.multiprocessors);
#endif
#if !defined(TAMP_TRACE)
  if (!job.trace.empty()) stop(1, "--trace needs a build with -DTAMP_TRACE");
#endif
  std::printf("device %s\n", device_name().c_str());
  std::vector<Instance> instances;
  for (int i = 0; i < job.instances; ++i) instances.push_back(make_instance(job));
#if !defined(TAMP_CUDA_ON_CPU)
  for (Instance& instance : instances) {
    if (job.graph) capture(instance);
  }
#endif
#if defined(TAMP_RACES)
  watch(job);
#else
  if (!job.races.empty()) stop(1, "--races needs a build with -DTAMP_RACES");
#endif
#if defined(TAMP_TOKENS)
  if (!job.prompt.empty()) {
    run_tokens(job, instances[0]);
    for (Instance& instance : instances) free_instance(instance);
    return 0;
  }
#else
  if (!job.prompt.empty()) stop(1, "--prompt needs a build with -DTAMP_TOKENS");
#endif
  run_all(job, instances);
#if defined(TAMP_RACES)
  if (!access_log().write(job.races.c_str())) stop(1, job.races + ": cannot be written");
#endif
#if defined(TAMP_ARENA)
  if (!job.arena.empty()) write_arena(job, instances[0]);
#else
  if (!job.arena.empty()) stop(1, "--arena needs a build with -DTAMP_ARENA");
#endif
#if defined(TAMP_STAGES)
  if (!job.stages.empty()) time_stages(job, instances[0]);
#else
  if (!job.stages.empty()) stop(1, "--stages needs a build with -DTAMP_STAGES");
#endif
  if (job.train > 0) run_train(job, instances[0]);
  for (Instance& instance : instances) free_instance(instance);
  return 0;
}
