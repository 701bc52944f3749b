// Where rPrograms of one model are built, in parallel, and measured, one at a time, in this process and beside others of the user's: they
// hold a lock. Nothing counts whose answer differs from the reference.
#pragma once

#include <filesystem>
#include <future>
#include <optional>
#include <string>
#include <vector>

#include "compiler/cli/compiled_folder.h"
#include "compiler/cli/toolchain.h"
#include "compiler/ir/rprogram.h"
#include "compiler/ops/ops.h"

namespace tamp::cli {

class Workshop {
 public:
  struct Options {
    std::string model;  // the ONNX file
    Device device = Device::cpu;
    int jobs = 0;  // builds at a time; 0: as many as there are processors
    uint64_t seed = 1;
  };
  // `source`: the model as read, for inputs and reference; it outlives the workshop, which works in `folder`.
  Workshop(Options options, const Graph& source, std::filesystem::path folder);

  // Microseconds of whole runs of each, none (with a warning that says why) where it failed or its answer is wrong. Taken in turns, as
  // clocks and neighbours change.
  std::vector<std::optional<double>> whole_times(const std::vector<RProgram>& programs);

  // One rProgram on its way through the compiler and on the device.
  struct Built {
    CompiledFolder model;
    Precision precision = Precision::fp32;
    std::filesystem::path work, runner;
  };
  std::vector<Built> build(const std::vector<RProgram>& programs, const RunOptions& options);
  std::optional<RunResult> run(const Built& built, const RunOptions& options);

  const std::string& device_name() const { return device_name_; }  // once something ran

 private:
  const Options options_;
  const std::filesystem::path folder_;
  std::vector<ops::Value> inputs_;
  std::shared_future<std::vector<ops::Value>> expected_;
  std::string device_name_;
  int builds_ = 0;
};

}  // namespace tamp::cli
