// `tamp compare`: one model under several policies, executions, precisions and batches, in one table; also the options of the command's
// other forms.
#include <fmt/format.h>

#include "compiler/cli/command.h"
#include "compiler/cli/comparing.h"
#include "compiler/cli/comparison.h"
#include "compiler/cli/measure_stages.h"
#include "compiler/cli/papers.h"
#include "compiler/cli/process.h"
#include "compiler/support/text.h"

namespace tamp::cli {
namespace {

ExitCode compare_policies(CompareArguments arguments, const std::filesystem::path& folder) {
  const bool gpu = measures(arguments.device);
  if (arguments.options.measure && !gpu) throw bad_input("--measure needs a GPU and nvcc; without them stages are simulated");
  arguments.options.vdevice = vdevice_to_compare(arguments.options.vdevice, gpu);
  CompileOptions options = compile_options(arguments.options);
  const select::Records records = read_records(options.records);
  const MeasureOptions measuring{.model = arguments.model, .jobs = arguments.jobs, .seed = arguments.seed};
  std::vector<Trial> trials;
  std::string device_name, vdevice_name;
  int part = 0;
  for (const int64_t batch : arguments.batches) {
    for (const std::string& precision : arguments.precisions) {
      options.batch = batch;
      options.precision = precision;
      PreparedModel model(arguments.model, options);
      const size_t first = trials.size();
      for (const std::string& execution : arguments.executions) {
        for (const std::string& policy : arguments.policies) {
          options.policy = schedule::parse_policy(policy);
          options.execution = schedule::parse_execution(execution);
          options.measure = nullptr;
          if (schedule::prices_stages(options.policy)) set_measure(arguments.options, measuring, options);
          vdevice_name = model.of(options.execution).vdevice.name;
          trials.push_back(trial_of(model, options, records));
          if (!gpu) trials.back().program.reset();
        }
      }
      if (!gpu) continue;
      std::vector<Trial*> measured;
      for (size_t i = first; i < trials.size(); ++i) measured.push_back(&trials[i]);
      const Graph& source = model.of(schedule::parse_execution(arguments.executions.front())).source;
      device_name = measure(arguments, arguments.model, source, folder / std::to_string(part++), measured);
    }
  }
  std::vector<ComparisonRow> rows;
  for (const Trial& trial : trials) rows.push_back(trial.row);
  const std::string title = fmt::format("{} on vDevice {}, {}", model_name(arguments.model), printable(vdevice_name),
                                        gpu ? "measured on " + device_name : "simulated");
  if (!arguments.plot.empty()) write_text(arguments.plot, comparison_svg(title, rows));
  if (arguments.as_json)
    fmt::print("{}", comparison_json(rows));
  else
    fmt::print("{}\n\n{}", title, comparison_text(rows));
  require_right_answers(rows);
  return ExitCode::ok;
}

// An option that a form of the command cannot use is an error; it is not ignored.
void refuse(bool is_given, const char* option, const std::string& why) {
  if (is_given) throw bad_input("{}: {}", option, why);
}

void check_form(const CompareArguments& arguments) {
  const bool schedules = !arguments.schedules.empty(), paper = !arguments.paper.empty();
  refuse((paper || schedules) && arguments.options.measure, "--measure", "is for a table of policies, without --paper and --schedules");
  refuse(arguments.model.empty() && !paper, "model is required", "a file, or --paper " + join(paper_names(), "|"));
  refuse(!paper && !arguments.models.empty(), "--models", "goes with --paper");
  refuse(!paper && !arguments.networks.empty(), "--networks", "goes with --paper");
  refuse(!schedules && !arguments.vdevices.empty(), "--vdevices", "goes with --schedules; --vdevice takes one");
  if (paper) {
    const std::string why = "--paper has networks, schedules and batch of its own";
    refuse(!arguments.model.empty(), "model", why);
    refuse(schedules, "--schedules", why);
    refuse(!arguments.policies.empty(), "--policies", why);
    refuse(!arguments.executions.empty(), "--executions", why);
    refuse(!arguments.batches.empty(), "--batches", why);
    refuse(arguments.precisions.size() > 1, "--precisions", "--paper takes one precision");
  }
  if (schedules) {
    const std::string why = "a schedule of --schedules says that itself";
    refuse(!arguments.policies.empty(), "--policies", why);
    refuse(!arguments.executions.empty(), "--executions", why);
    refuse(!arguments.precisions.empty(), "--precisions", why);
    refuse(!arguments.vdevices.empty() && !arguments.options.vdevice.empty(), "--vdevice", "--vdevices takes several");
  }
}

ExitCode compare_command(CompareArguments arguments) {
  check_form(arguments);
  for (const std::string& name : arguments.policies) schedule::parse_policy(name);  // refuses unknown names before any work
  for (const std::string& name : arguments.executions) schedule::parse_execution(name);
  if (!arguments.plot.empty()) require_writable("--plot " + printable(arguments.plot), folder_of(arguments.plot));
  return in_temporary_folder([&](const std::filesystem::path& folder) {
    if (!arguments.paper.empty()) return compare_paper(arguments, folder);
    if (!arguments.schedules.empty()) return compare_schedules(arguments, folder);
    if (arguments.policies.empty()) arguments.policies = schedule::policy_names();
    if (arguments.executions.empty()) arguments.executions = {"persistent", "graph"};
    if (arguments.precisions.empty()) arguments.precisions = {arguments.options.precision};
    if (arguments.batches.empty()) arguments.batches = {0};
    return compare_policies(arguments, folder);
  });
}

}  // namespace

void add_compare(CLI::App& app, Invocation& invocation) {
  CLI::App* command =
      add_command(app, invocation, "compare", "Compare schedules: policies, executions, precisions, batches; saved schedules; a paper's",
                  "  tamp compare squeezenet1_0.onnx\n"
                  "  tamp compare resnet50.onnx --policies wavefront,sequential --executions persistent --precisions tf32,fp16\n"
                  "  tamp compare resnet50.onnx --batches 1,8 --json > resnet50.json\n"
                  "  tamp compare nasnet_a_cifar.onnx --plot nasnet.svg\n"
                  "  tamp compare inception_v3.onnx --schedules of_1.json,of_32.json --batches 1,32\n"
                  "  tamp compare --paper ios --models paper_models\n"
                  "Where there is a GPU and nvcc, every program is built, its answer checked, and timed: the median of replays of a CUDA\n"
                  "graph. Else times are simulated, and said to be.");
  auto arguments = std::make_shared<CompareArguments>();
  add_value(*command, "model", "MODEL.onnx", arguments->model, "The ONNX file");
  add_model_options(*command, arguments->options);
  for (const char* single : {"--policy", "--execution", "--precision", "--batch"}) command->remove_option(command->get_option(single));
  add_records_option(*command, arguments->options);
  add_measure_option(*command, arguments->options);
  const auto list = [&](const char* flag, auto& values, const std::string& help, const char* text) {
    add_value(*command, flag, text, values, help)->delimiter(',');
  };
  list("--policies", arguments->policies, "Which of them; default: all", "P,..");
  list("--executions", arguments->executions, "persistent, graph, or both (default)", "E,..");
  list("--precisions", arguments->precisions, "fp32, tf32, fp16, bf16; default: the vDevice's own", "P,..");
  list("--batches", arguments->batches, "First extents of all inputs, as of 'tamp compile --batch'; default: as the model says", "N,..");
  list("--schedules", arguments->schedules,
       "Files of 'tamp compile --save-schedule': each is run on what it was made for, and what it decided on the others", "FILE,..");
  list("--vdevices", arguments->vdevices, "With --schedules: what to run on; default: what they were made for", "V,..");
  add_value(*command, "--paper", "PAPER", arguments->paper,
            "The networks and schedules of a paper, beside what it published: rammer or ios");
  add_value(*command, "--models", "DIR", arguments->models,
            "With --paper: where examples/paper_models/make.py wrote its networks; default: paper_models");
  list("--networks", arguments->networks, "With --paper: only these of its networks", "N,..");
  add_value(*command, "--device", "D", arguments->device, "cuda, or none: simulate only; default: cuda if there is a GPU and nvcc");
  command->add_flag("--json", arguments->as_json, "Print JSON");
  add_value(*command, "--plot", "FILE.svg", arguments->plot, "Draw the times as bars");
  add_value(*command, "--jobs", "N", arguments->jobs, "Builds at the same time; default: the number of processors")
      ->check(CLI::Range(1, 1024));
  add_value(*command, "--seed", "S", arguments->seed, "Seed of the random inputs (default 1)");
  command->callback([&invocation, arguments] { invocation.run = [arguments] { return compare_command(*arguments); }; });
}

}  // namespace tamp::cli
