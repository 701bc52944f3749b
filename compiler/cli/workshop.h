// Builds rPrograms of one model in parallel and measures them one at a time. A lock keeps apart the measurements of this process and of the
// user's other processes. A program whose answer differs from the reference does not count.
#pragma once

#include <filesystem>
#include <future>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "compiler/cli/compiled_folder.h"
#include "compiler/cli/roundings.h"
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
  // `source` is the model as read, for inputs and reference. It must outlive the workshop, which works in `folder`.
  Workshop(Options options, const Graph& source, std::filesystem::path folder);

  // Microseconds of whole runs of each program; none (with a warning that says why) if the program failed or its answer is wrong. The
  // programs take turns, since clocks and other load change.
  std::vector<std::optional<double>> whole_times(const std::vector<RProgram>& programs);

  // One rProgram from compilation to measurement.
  struct Built {
    CompiledFolder model;
    Precision precision = Precision::fp32;
    std::filesystem::path work, runner;
  };
  std::vector<Built> build(const std::vector<RProgram>& programs, const RunOptions& options);
  std::optional<RunResult> run(const Built& built, const RunOptions& options);

  const std::string& device_name() const { return device_name_; }  // known once something ran

 private:
  // Empty if the output is near the reference, or is as far from it as roundings of a quantised model may make it.
  std::string what_is_wrong(const Built& built, size_t output, const ops::Value& found);

  const Options options_;
  const Graph& source_;
  const std::filesystem::path folder_;
  std::vector<ops::Value> inputs_;
  std::shared_future<std::vector<ops::Value>> expected_;
  std::map<Precision, Rounded> rounded_;  // of the precisions in which an output was not near the reference
  std::string device_name_;
  int builds_ = 0;
};

}  // namespace tamp::cli
