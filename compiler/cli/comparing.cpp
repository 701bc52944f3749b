#include "compiler/cli/comparing.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "compiler/cli/this_gpu.h"
#include "compiler/cli/toolchain.h"
#include "compiler/cli/workshop.h"

namespace tamp::cli {

bool measures(const std::string& device) {
  if (device == "none") return false;
  if (device == "cpu") throw bad_input("--device cpu: the stand-in's times say nothing; supported: cuda, none (times are simulated)");
  if (!device.empty()) return choose_device(device) == Device::cuda;
  if (!can_use_gpu()) spdlog::info("no GPU, or no nvcc: times are simulated");
  return can_use_gpu();
}

std::string vdevice_to_compare(const std::string& given, bool measuring) {
  return measuring ? vdevice_to_run(given, /*on_gpu=*/true) : planned_vdevice(given);
}

const Prepared& PreparedModel::of(schedule::Execution execution) {
  const auto found = prepared_.find(execution);
  if (found != prepared_.end()) return found->second;
  options_.execution = execution;
  return prepared_.emplace(execution, prepare(model_, options_)).first->second;
}

Trial trial_of(PreparedModel& model, CompileOptions options, const select::Records& records) {
  const Prepared& prepared = model.of(options.execution);
  const auto begin = std::chrono::steady_clock::now();
  Trial trial;
  try {
    trial.program = plan(prepared, options, &records);
    trial.row = row_of(*trial.program, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  } catch (const Error& refused) {  // for example a gang in graph execution: the other rows are still shown
    if (refused.code() != ExitCode::unsupported) throw;
    trial.row = {.policy = options.like ? options.like->policy : schedule::name_of(options.policy),
                 .execution = options.execution == schedule::Execution::graph ? "graph" : "persistent",
                 .precision = name_of(prepared.setting.precision),
                 .failure = refused.what()};
  }
  trial.row.batch = options.batch;
  return trial;
}

std::string measure(const CompareArguments& arguments, const std::string& model, const Graph& source, const std::filesystem::path& folder,
                    const std::vector<Trial*>& trials) {
  std::vector<RProgram> programs;
  std::vector<ComparisonRow*> rows;
  for (Trial* trial : trials) {
    if (!trial->program) continue;
    if (trial->program->vdevice.arch == "cpu") throw bad_input("vDevice 'cpu' is the stand-in's; measuring needs the vDevice of a GPU");
    programs.push_back(*std::move(trial->program));
    trial->program.reset();
    rows.push_back(&trial->row);
  }
  Workshop workshop({model, Device::cuda, arguments.jobs, arguments.seed}, source, folder);
  const std::vector<std::optional<double>> times = workshop.whole_times(programs);
  for (size_t i = 0; i < times.size(); ++i) {
    rows[i]->measured_us = times[i];
    rows[i]->is_wrong = !times[i];
  }
  return workshop.device_name();
}

void require_right_answers(const std::vector<ComparisonRow>& rows) {
  const bool wrong = std::any_of(rows.begin(), rows.end(), [](const ComparisonRow& row) { return row.is_wrong; });
  if (wrong) throw Error(ExitCode::check_failed, "a program failed, or its answer differs from the reference; the warnings say which");
}

}  // namespace tamp::cli
