// Builds a compiled model with the runner (runtime_stub/host/runner.cpp) and runs that as a child process: with nvcc on the GPU, or with
// g++ and the stand-in for CUDA on the CPU.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "compiler/cli/compiled_folder.h"
#include "compiler/ops/ops.h"

namespace tamp::cli {

enum class Device { cuda, cpu };

// `name` is "cuda", "cpu" or empty. Empty means cuda if this machine has a GPU and nvcc, else cpu; the log says which. Error (bad input) if
// cuda is asked for and is not possible.
Device choose_device(const std::string& name);

// Path of the compiler that builds for the device; empty if it is not found.
std::string find_compiler(Device device);

// Whether Device::cuda is possible: a GPU and nvcc.
bool can_use_gpu();

// Of a run that makes tokens.
struct TokenOptions {
  std::vector<int64_t> prompt;  // none: no such run
  int32_t most = 16, top_k = 0;
  double temperature = 0, top_p = 0, repetition_penalty = 0;
  uint64_t seed = 0;
  bool check = false;  // also by single runs
};

struct RunOptions {
  TokenOptions tokens = {};
  int repeat = 1;
  int instances = 1;
  bool graph = false;
  bool trace = false;                                  // stamp every rTask, which makes runs slower; GPU only
  bool trace_all = false;                              // with `trace`: the stamps of every run, one after another
  int train = 0;                                       // also this many launches back to back, several times
  bool races = false;                                  // log the memory that every rTask touches; stand-in only
  bool arena = false;                                  // also read all activations back after the run
  bool stages = false;                                 // a build that can time stages
  std::filesystem::path stage_file = {};               // with `stages`: which stages are timed (runtime_stub/host/stages.h)
  std::vector<std::pair<int64_t, int64_t>> kept = {};  // with `races`: bytes of the arena that are not made NaN before each run
};

// A row of the log of `races` (runtime_stub/cuda_on_cpu/cpu_races.h): bytes [begin, end) of a base. `record` is a phase, counted through
// all rOperators; in graph execution it is a launch.
struct AccessRow {
  uint64_t record, index, base, is_write, begin, end;
};

struct RunResult {
  std::string device;
  std::vector<double> microseconds;  // per timed run, by CUDA events
  std::vector<ops::Value> outputs;
  std::vector<int64_t> tokens;             // of TokenOptions
  std::vector<double> train_microseconds;  // per launch, where `train` is asked for
  std::vector<uint64_t> stamps;            // of the last run or of all, with `trace`; see trace.h
  std::vector<AccessRow> accesses;         // with `races`; rows of one rTask follow each other
  Bytes arena;                             // with `arena`
  std::vector<double> stage_microseconds;  // of each stage in the file of stages
};

// Builds the runner in `work` and returns its path. A failed build throws InternalError naming the log in `work`.
std::filesystem::path build_runner(const CompiledFolder& model, Device device, const std::filesystem::path& work,
                                   const RunOptions& options);

// Error: check_failed if repeats differ, bad input where the GPU does not suit the model, InternalError otherwise.
RunResult run_model(const CompiledFolder& model, Device device, const std::filesystem::path& runner, const std::filesystem::path& work,
                    const std::vector<ops::Value>& inputs, const RunOptions& options);

}  // namespace tamp::cli
