// `tamp compare`: one model under several policies, executions, precisions and batches, in one table.
#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "compiler/cli/command.h"
#include "compiler/cli/comparison.h"
#include "compiler/cli/process.h"
#include "compiler/cli/toolchain.h"
#include "compiler/cli/workshop.h"
#include "compiler/support/files.h"
#include "compiler/support/text.h"

namespace tamp::cli {
namespace {

struct CompareArguments {
  std::string model, device, plot;
  ModelArguments options;
  std::vector<std::string> policies, executions, precisions;  // empty: all; all; the one of the options
  std::vector<int64_t> batches;                               // empty: the one of the options
  bool as_json = false;
  int jobs = 0;
  uint64_t seed = 1;
};

// Of one precision and batch: the rows in their order, and the rPrograms of those that have one.
struct Group {
  std::vector<ComparisonRow> rows;
  std::vector<RProgram> programs;
  std::vector<size_t> row_of_program;
};

Group plan_all(const CompareArguments& arguments, const Prepared& prepared, CompileOptions options, const select::Records& records) {
  Group group;
  for (const std::string& execution : arguments.executions) {
    for (const std::string& policy : arguments.policies) {
      options.policy = schedule::parse_policy(policy);
      options.execution = schedule::parse_execution(execution);
      const auto begin = std::chrono::steady_clock::now();
      ComparisonRow row;
      try {
        RProgram program = plan(prepared, options, &records);
        row = row_of(program, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
        group.row_of_program.push_back(group.rows.size());
        group.programs.push_back(std::move(program));
      } catch (const Error& refused) {  // a gang in graph execution, say: the other rows are worth seeing
        if (refused.code() != ExitCode::unsupported) throw;
        row = {.policy = policy, .execution = execution, .precision = name_of(prepared.precision), .failure = refused.what()};
      }
      row.batch = options.batch;
      group.rows.push_back(std::move(row));
    }
  }
  return group;
}

// Fills in the times. Returns the device's name.
std::string measure(const CompareArguments& arguments, const Graph& source, const std::filesystem::path& folder, Group& group) {
  Workshop workshop({arguments.model, Device::cuda, arguments.jobs, arguments.seed}, source, folder);
  const std::vector<std::optional<double>> times = workshop.whole_times(group.programs);
  for (size_t i = 0; i < times.size(); ++i) {
    ComparisonRow& row = group.rows[group.row_of_program[i]];
    row.measured_us = times[i];
    row.is_wrong = !times[i];
  }
  return workshop.device_name();
}

// Whether there is something to measure with.
bool measures(const std::string& device) {
  if (device == "none") return false;
  if (device == "cpu") throw bad_input("--device cpu: the stand-in's times say nothing; supported: cuda, none (times are simulated)");
  if (!device.empty()) return choose_device(device) == Device::cuda;
  if (!can_use_gpu()) spdlog::info("no GPU, or no nvcc: times are simulated");
  return can_use_gpu();
}

ExitCode compare_in(const CompareArguments& arguments, const std::filesystem::path& folder) {
  if (!arguments.plot.empty()) {
    const std::filesystem::path where = ("." / std::filesystem::path(arguments.plot)).parent_path();
    if (const std::string why = why_not_writable(where); !why.empty())
      throw bad_input(fmt::format("--plot {}: cannot be written: {}", printable(arguments.plot), why));
  }
  const bool gpu = measures(arguments.device);
  CompileOptions options = compile_options(arguments.options, !arguments.options.vdevice.empty() ? ""
                                                              : gpu                              ? vdevice_of_this_gpu()
                                                                                                 : "h200");
  const select::Records records = read_records(options.records);
  std::vector<ComparisonRow> rows;
  std::string device_name, vdevice_name;
  int part = 0;
  for (const int64_t batch : arguments.batches) {
    for (const std::string& precision : arguments.precisions) {
      options.batch = batch;
      options.precision = precision;
      const Prepared prepared = prepare(arguments.model, options);
      vdevice_name = prepared.vdevice.name;
      if (gpu && prepared.vdevice.arch == "cpu") throw bad_input("vDevice 'cpu' is the stand-in's; measuring needs the vDevice of a GPU");
      Group group = plan_all(arguments, prepared, options, records);
      if (gpu) device_name = measure(arguments, prepared.source, folder / std::to_string(part++), group);
      rows.insert(rows.end(), group.rows.begin(), group.rows.end());
    }
  }
  const std::string title = fmt::format("{} on vDevice {}, {}", model_name(arguments.model), printable(vdevice_name),
                                        gpu ? "measured on " + device_name : "simulated");
  if (!arguments.plot.empty()) write_text(arguments.plot, comparison_svg(title, rows));
  if (arguments.as_json)
    fmt::print("{}", comparison_json(rows));
  else
    fmt::print("{}\n\n{}", title, comparison_text(rows));
  const bool wrong = std::any_of(rows.begin(), rows.end(), [](const ComparisonRow& row) { return row.is_wrong; });
  if (wrong) throw Error(ExitCode::check_failed, "a program failed, or its answer differs from the reference; the warnings say which");
  return ExitCode::ok;
}

ExitCode compare_command(CompareArguments arguments) {
  if (arguments.policies.empty()) arguments.policies = schedule::policy_names();
  if (arguments.executions.empty()) arguments.executions = {"persistent", "graph"};
  if (arguments.precisions.empty()) arguments.precisions = {arguments.options.precision};
  if (arguments.batches.empty()) arguments.batches = {arguments.options.batch};
  for (const std::string& name : arguments.policies) schedule::parse_policy(name);  // before any work
  for (const std::string& name : arguments.executions) schedule::parse_execution(name);
  TemporaryFolder folder;
  try {
    return compare_in(arguments, folder.path());
  } catch (const InternalError&) {
    folder.keep();  // its logs say what happened
    throw;
  }
}

}  // namespace

void add_compare(CLI::App& app, Invocation& invocation) {
  CLI::App* command =
      add_command(app, invocation, "compare", "Compare schedules of a model: policies, executions, precisions, batches",
                  "  tamp compare squeezenet1_0.onnx\n"
                  "  tamp compare resnet50.onnx --policies wavefront,sequential --executions persistent --precisions tf32,fp16\n"
                  "  tamp compare resnet50.onnx --batches 1,8 --json > resnet50.json\n"
                  "  tamp compare nasnet_a_cifar.onnx --plot nasnet.svg\n"
                  "Where there is a GPU and nvcc, every program is built, its answer checked, and timed: the median of replays of a CUDA\n"
                  "graph. Else times are simulated, and said to be.");
  auto arguments = std::make_shared<CompareArguments>();
  command->add_option("model", arguments->model, "The ONNX file")->required()->option_text("MODEL.onnx");
  add_model_options(*command, arguments->options);
  for (const char* single : {"--policy", "--execution", "--precision", "--batch"}) command->remove_option(command->get_option(single));
  add_records_option(*command, arguments->options);
  const auto list = [&](const char* flag, auto& values, const std::string& help, const char* text) {
    command->add_option(flag, values, help)->delimiter(',')->option_text(text);
  };
  list("--policies", arguments->policies, "Which of them; default: all", "P,..");
  list("--executions", arguments->executions, "persistent, graph, or both (default)", "E,..");
  list("--precisions", arguments->precisions, "fp32, tf32, fp16, bf16; default: the vDevice's own", "P,..");
  list("--batches", arguments->batches, "First extents of all inputs, as of 'tamp compile --batch'; default: as the model says", "N,..");
  command->add_option("--device", arguments->device, "cuda, or none: simulate only; default: cuda if there is a GPU and nvcc")
      ->option_text("D");
  command->add_flag("--json", arguments->as_json, "Print JSON");
  command->add_option("--plot", arguments->plot, "Draw the times as bars")->option_text("FILE.svg");
  command->add_option("--jobs", arguments->jobs, "Builds at the same time; default: the number of processors")
      ->option_text("N")
      ->check(CLI::Range(1, 1024));
  command->add_option("--seed", arguments->seed, "Seed of the random inputs (default 1)")->option_text("S");
  command->callback([&invocation, arguments] { invocation.run = [arguments] { return compare_command(*arguments); }; });
}

}  // namespace tamp::cli
