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

Workshop::Workshop(Options options, const Graph& source, fs::path folder)
    : options_(std::move(options)), source_(source), folder_(std::move(folder)) {
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

std::string Workshop::what_is_wrong(const Built& built, size_t output, const ops::Value& found) {
  const std::vector<ops::Value>& expected = expected_.get();
  const double relative_l2 = difference(found, expected[output]).relative_l2;
  if (relative_l2 <= kSlack * tolerance(built.precision, found.dtype)) return "";
  auto rounded = rounded_.find(built.precision);
  if (rounded == rounded_.end()) rounded = rounded_.emplace(built.precision, rounded_of(source_, inputs_, expected, built.precision)).first;
  if (rounded->second.allowed.empty()) return fmt::format("relative L2 {:.2e}", relative_l2);
  return rounded->second.why_not(output, found, expected[output]);
}

std::optional<RunResult> Workshop::run(const Built& built, const RunOptions& options) {
  expected_.wait();
  try {
    const MeasureLock lock;
    RunResult result = run_model(built.model, options_.device, built.runner, built.work, inputs_, options);
    device_name_ = result.device;
    for (size_t i = 0; i < result.outputs.size(); ++i) {
      const std::string wrong = what_is_wrong(built, i, result.outputs[i]);
      if (wrong.empty()) continue;
      spdlog::warn("{}: output {} is wrong ({}); not counted", built.work.filename().string(), i, wrong);
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
