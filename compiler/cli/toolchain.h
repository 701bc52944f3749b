// Builds a compiled model with its runner (runtime_stub/host/runner.cpp) and runs it as a child process: with nvcc on the
// GPU, or with g++ and the stand-in for CUDA on the CPU.
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

// `name` is "cuda", "cpu" or empty; empty = cuda if this machine has a GPU and nvcc, else cpu, and says so. Error (bad
// input) where cuda is asked for and cannot be.
Device choose_device(const std::string& name);

// Path of the program that builds for it; empty where it is not found.
std::string find_compiler(Device device);

// Whether Device::cuda is possible: a GPU and nvcc.
bool can_use_gpu();

struct RunOptions {
  int repeat = 1;
  int instances = 1;
  bool graph = false;
  bool trace = false;                                  // stamp every rTask, which makes runs slower; GPU only
  bool trace_all = false;                              // with `trace`: the stamps of every run, one after another
  int train = 0;                                       // also this many launches back to back, several times
  bool races = false;                                  // log what every rTask touches; stand-in only
  bool arena = false;                                  // also read all activations back after the run
  bool stages = false;                                 // a build that can time stages
  std::filesystem::path stage_file = {};               // with `stages`: those that are timed (runtime_stub/host/stages.h)
  std::vector<std::pair<int64_t, int64_t>> kept = {};  // with `races`: bytes of the arena that are not made NaN before each run
};

// A row of that log (runtime_stub/cuda_on_cpu/cpu_races.h): bytes [begin, end) of a base. `record` is a phase, counted through all
// rOperators, or in graph execution a launch.
struct AccessRow {
  uint64_t record, index, base, is_write, begin, end;
};

struct RunResult {
  std::string device;
  std::vector<double> microseconds;  // per timed run, by CUDA events
  std::vector<ops::Value> outputs;
  std::vector<double> train_microseconds;  // per launch, where `train` is asked for
  std::vector<uint64_t> stamps;            // of the last run or of all, where traced; see trace.h
  std::vector<AccessRow> accesses;         // where `races` is asked for; those of a rTask together
  Bytes arena;                             // where it is asked for
  std::vector<double> stage_microseconds;  // of each in the file of stages
};

// Path of the program, made in `work`. A failed build throws InternalError naming the log in `work`.
std::filesystem::path build_runner(const CompiledFolder& model, Device device, const std::filesystem::path& work,
                                   const RunOptions& options);

// Error: check_failed if repeats differ, bad input where the GPU does not suit the model, InternalError otherwise.
RunResult run_model(const CompiledFolder& model, Device device, const std::filesystem::path& runner, const std::filesystem::path& work,
                    const std::vector<ops::Value>& inputs, const RunOptions& options);

}  // namespace tamp::cli
