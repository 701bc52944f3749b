#include "compiler/cli/workshop.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <utility>

#include "codegen/codegen.h"
#include "compiler/cli/command.h"
#include "compiler/cli/compare.h"
#include "compiler/cli/index_limits.h"
#include "compiler/cli/measure_lock.h"
#include "compiler/cli/ports.h"
#include "compiler/cli/table.h"
#include "compiler/support/parallel.h"

namespace tamp::cli {
namespace {

namespace fs = std::filesystem;

// Factor on the tolerance of --check. The rounding of a precision in a deep network does not matter here, and a broken program is far off.
constexpr double kSlack = 2;

}  // namespace

Workshop::Workshop(Options options, const Graph& source, fs::path folder) : options_(std::move(options)), folder_(std::move(folder)) {
  const std::vector<int64_t> limits = index_limits(source);
  for (const TensorId id : source.inputs) {
    const Tensor& tensor = source.tensor(id);
    const size_t i = inputs_.size();
    const Port port{.name = tensor.name, .dtype = tensor.dtype, .shape = tensor.shape, .index_limit = limits[i]};
    inputs_.push_back(random_value(port, options_.seed, i));
  }
  // Computed beside the build, since it takes about as long.
  expected_ = std::async(std::launch::async, [this, &source] { return ops::run(source, inputs_); }).share();
}

std::vector<Workshop::Built> Workshop::build(const std::vector<RProgram>& programs, const RunOptions& options) {
  const std::string name = model_name(options_.model);
  std::vector<Built> built(programs.size());
  const fs::path folder = folder_ / fmt::format("build{}", builds_++);
  const size_t jobs = options_.jobs > 0 ? static_cast<size_t>(options_.jobs) : processor_count();
  in_parallel(programs.size(), jobs, [&](size_t i) {
    built[i].work = folder / std::to_string(i);
    built[i].precision = programs[i].precision;
    const std::string compiled = (built[i].work / "compiled").string();
    codegen::emit(programs[i], {.name = name, .source_name = file_name(options_.model)}, compiled);
    built[i].model = read_compiled_folder(compiled);
    built[i].runner = build_runner(built[i].model, options_.device, built[i].work, options);
  });
  return built;
}

std::optional<RunResult> Workshop::run(const Built& built, const RunOptions& options) {
  const std::vector<ops::Value>& expected = expected_.get();
  try {
    const MeasureLock lock;
    RunResult result = run_model(built.model, options_.device, built.runner, built.work, inputs_, options);
    device_name_ = result.device;
    for (size_t i = 0; i < result.outputs.size(); ++i) {
      const double distance = difference(result.outputs[i], expected[i]).relative_l2;
      if (distance <= kSlack * tolerance(built.precision, expected[i].dtype)) continue;
      spdlog::warn("{}: output {} is wrong (relative L2 {:.2e}); not counted", built.work.filename().string(), i, distance);
      return std::nullopt;
    }
    return result;
  } catch (const std::exception& failed) {
    spdlog::warn("{}: {}; not counted", built.work.filename().string(), failed.what());
    return std::nullopt;
  }
}

std::vector<std::optional<double>> Workshop::whole_times(const std::vector<RProgram>& programs) {
  const bool gpu = options_.device == Device::cuda;
  const int turns = gpu ? (programs.size() > 3 ? 2 : 3) : 1;
  const RunOptions options = gpu ? RunOptions{.repeat = 10, .graph = true, .train = 50} : RunOptions{};
  const std::vector<Built> built = build(programs, options);
  std::vector<std::vector<double>> times(programs.size());
  std::vector<bool> good(programs.size(), true);
  for (int turn = 0; turn < turns; ++turn) {
    for (size_t i = 0; i < programs.size(); ++i) {
      if (!good[i]) continue;
      const std::optional<RunResult> result = run(built[i], options);
      good[i] = result.has_value();
      if (!result) continue;
      const std::vector<double>& of_turn = gpu ? result->train_microseconds : result->microseconds;
      times[i].insert(times[i].end(), of_turn.begin(), of_turn.end());
    }
  }
  std::vector<std::optional<double>> medians;
  for (const Built& one : built) fs::remove_all(one.work);
  for (size_t i = 0; i < programs.size(); ++i) medians.push_back(good[i] ? std::optional(median(times[i])) : std::nullopt);
  return medians;
}

}  // namespace tamp::cli
