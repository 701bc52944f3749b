// `tamp tune`: chooses rKernels by measurement (tune.h), keeps what is faster, and writes the measurements as records.
//
// A program whose answer differs from the reference has no influence on the choice (workshop.h).
#include <fmt/format.h>

#include <algorithm>

#include "codegen/codegen.h"
#include "compiler/cli/command.h"
#include "compiler/cli/compiled_folder.h"
#include "compiler/cli/measure_lock.h"
#include "compiler/cli/process.h"
#include "compiler/cli/table.h"
#include "compiler/cli/this_gpu.h"
#include "compiler/cli/toolchain.h"
#include "compiler/cli/trace.h"
#include "compiler/cli/tune.h"
#include "compiler/cli/workshop.h"
#include "compiler/support/files.h"
#include "compiler/support/text.h"

namespace tamp::cli {
namespace {

namespace fs = std::filesystem;

struct TuneArguments {
  std::string model, output, device, records;
  ModelArguments options;
  TuneOptions tune;
  int jobs = 0;  // 0: as many as there are processors
  int repeat = 15;
  uint64_t seed = 1;
};

// The stand-in has no clock for rTasks, so the time of the whole run is divided among the rOperators as the simulator estimates their
// shares.
RopTimes shared_out(const RProgram& program, double whole_us) {
  const schedule::Timeline timeline = schedule::timeline(program);
  std::vector<double> begin(program.rkernels.size(), -1), end(begin);
  for (size_t veu = 0; veu < program.lanes.size(); ++veu) {
    for (size_t i = 0; i < program.lanes[veu].size(); ++i) {
      const ROperatorId rop = program.lanes[veu][i].rtask.rop;
      if (!rop.valid()) continue;
      const schedule::Span& span = timeline.lanes[veu][i];
      if (end[rop.index()] < 0 || span.begin_us < begin[rop.index()]) begin[rop.index()] = span.begin_us;
      end[rop.index()] = std::max(end[rop.index()], span.end_us);
    }
  }
  RopTimes times;
  for (size_t i = 0; i < end.size(); ++i) times.us.push_back(end[i] < 0 ? -1 : (end[i] - begin[i]) * whole_us / timeline.us);
  return times;
}

std::vector<std::optional<RopTimes>> rop_times_of(Workshop& workshop, const TuneArguments& arguments, Device device,
                                                  const std::vector<RProgram>& programs) {
  const bool gpu = device == Device::cuda;
  const RunOptions options{.repeat = gpu ? arguments.repeat : 1, .trace = gpu, .trace_all = gpu};
  const std::vector<Workshop::Built> built = workshop.build(programs, options);
  std::vector<std::optional<RopTimes>> times;
  for (size_t i = 0; i < programs.size(); ++i) {
    const std::optional<RunResult> result = workshop.run(built[i], options);
    if (!result)
      times.emplace_back();
    else if (gpu)
      times.push_back(RopTimes{rop_times(read_text(built[i].model.folder / (built[i].model.name + ".rprogram.json")), result->stamps),
                               arguments.repeat});
    else
      times.push_back(shared_out(programs[i], median(result->microseconds)));
    fs::remove_all(built[i].work);
  }
  return times;
}

// --- what came of it -------------------------------------------------------------------------------------------------

size_t changed_rkernels(const RProgram& untuned, const RProgram& tuned) {
  size_t changed = 0;
  for (size_t i = 0; i < tuned.rkernels.size(); ++i)
    changed += select::identity(untuned.rkernels[i]) != select::identity(tuned.rkernels[i]) ? 1 : 0;
  return changed;
}

void print_changes(const Settled& settled, const select::Records& records) {
  Table table({{"ROPERATOR", Table::Align::left, 40},
               {"BY THE MODEL", Table::Align::left, 48},
               right("US"),
               {"BY RECORDS", Table::Align::left, 48},
               right("US")});
  for (size_t i = 0; i < settled.tuned.rkernels.size(); ++i) {
    const ROperator& rop = settled.tuned.graph.rops[i];
    const RKernel &before = settled.untuned.rkernels[i], &after = settled.tuned.rkernels[i];
    if (select::identity(before) == select::identity(after)) continue;
    const auto us = [&](const RKernel& rkernel) {
      const std::optional<double> mean = records.mean_us(select::signature(settled.tuned.graph, rop), select::identity(rkernel));
      return mean ? fmt::format("{:.2f}", *mean) : "-";
    };
    table.row({printable(rop.name), before.name, us(before), after.name, us(after)});
  }
  fmt::print("\n{}\n", table.text());
}

// Returns the number of records in the file.
size_t write_records(const std::string& path, const select::Records& measured) {
  const MeasureLock lock;
  select::Records all = fs::exists(path) ? read_records(path) : select::Records{};
  all.replace(measured);
  replace_file(path, all.text());
  return all.size();
}

std::string time_text(const std::optional<double>& us) { return us ? fmt::format("{:.1f} us", *us) : "failed"; }

ExitCode tune_in(TuneArguments arguments, const fs::path& folder) {
  const std::string name = model_name(arguments.model);
  require_own_folder(arguments.output, name);
  if (fs::exists(arguments.records)) {
    const MeasureLock lock;           // no other tamp writes the file now
    read_records(arguments.records);  // reports what is wrong with the file before the work begins
  }
  require_writable(printable(arguments.records), folder_of(arguments.records));
  const Device device = choose_device(arguments.device);
  arguments.options.vdevice = vdevice_to_run(arguments.options.vdevice, device == Device::cuda);
  const CompileOptions options = compile_options(arguments.options);
  if (options.execution != schedule::Execution::persistent) throw bad_input("tune needs the persistent kernel, not --execution graph");
  Prepared prepared = prepare(arguments.model, options);
  settle_graph(prepared, options, nullptr);  // rKernels are varied by the rOperators' numbers
  if (device == Device::cuda && prepared.vdevice.arch == "cpu")
    throw bad_input("vDevice 'cpu' is the stand-in's; --device cuda needs the vDevice of a GPU");

  Workshop workshop({arguments.model, device, arguments.jobs, arguments.seed}, prepared.source, folder);
  const select::Records records =
      tune(prepared, options, arguments.tune, [&](const auto& programs) { return rop_times_of(workshop, arguments, device, programs); });
  const Settled settled = settle(prepared, options, records, [&](const auto& programs) { return workshop.whole_times(programs); });
  const size_t changed = changed_rkernels(settled.untuned, settled.tuned);
  if (changed > 0) print_changes(settled, records);
  fmt::print("model    {}: vDevice {}, {}, on {}{}\n", name, printable(prepared.vdevice.name), name_of(prepared.setting.precision),
             workshop.device_name(), device == Device::cpu ? "  (stand-in: says nothing about a GPU)" : "");
  fmt::print("untuned  {}\ntuned    {}, {} of {} rKernels are others; {} is kept\n", time_text(settled.untuned_us),
             time_text(settled.tuned_us), changed, settled.tuned.rkernels.size(), settled.tuned_is_faster ? "this" : "untuned");
  const RProgram& best = settled.tuned_is_faster ? settled.tuned : settled.untuned;
  codegen::EmitOptions emitting{.name = name,
                                .source_name = file_name(arguments.model),
                                .origin = origin_of(arguments.model, prepared.source, options),
                                .invocation = options_text(arguments.options)};
  add_schedule(best, emitting);
  codegen::emit(best, emitting, arguments.output);
  if (!settled.tuned_is_faster) {
    fmt::print("records  none written\n");
    return ExitCode::ok;
  }
  fmt::print("records  {} of {} that were measured, {} in {}\n", settled.records.size(), records.size(),
             write_records(arguments.records, settled.records), printable(arguments.records));
  return ExitCode::ok;
}

ExitCode tune_command(TuneArguments arguments) {
  if (arguments.records.empty())
    arguments.records = (fs::path(arguments.output) / (model_name(arguments.model) + ".records.jsonl")).string();
  return in_temporary_folder([&](const fs::path& folder) { return tune_in(arguments, folder); });
}

}  // namespace

void add_tune(CLI::App& app, Invocation& invocation) {
  CLI::App* command = add_command(app, invocation, "tune", "Compile a model with rKernels that were chosen by measurement",
                                  "  tamp tune resnet50.onnx -o resnet50/\n"
                                  "  tamp tune resnet50.onnx -o resnet50/ --precision fp16 --rounds 3 --variants 8\n"
                                  "  tamp tune a.onnx -o a/ --records my.jsonl && tamp compile b.onnx -o b/ --records my.jsonl\n"
                                  "Needs what 'tamp run' needs. Several at the same time take turns in measuring.");
  auto arguments = std::make_shared<TuneArguments>();
  add_value(*command, "model", "MODEL.onnx", arguments->model, "The ONNX file")->required();
  add_value(*command, "-o,--output", "DIR", arguments->output, "Folder to write, as 'tamp compile' does")->required();
  add_value(*command, "--device", "D", arguments->device, "cuda, or cpu (the stand-in); default: cuda if there is a GPU and nvcc");
  add_model_options(*command, arguments->options);
  add_ios_option(*command, arguments->options);
  add_value(*command, "--records", "FILE", arguments->records,
            "File of records that what was measured is added to; default: DIR/NAME.records.jsonl");
  add_value(*command, "--rounds", "N", arguments->tune.rounds, "Rounds of measurements (default 2)")->check(CLI::Range(1, 100));
  add_value(*command, "--variants", "N", arguments->tune.variants, "Variants of the network that a round measures (default 6)")
      ->check(CLI::Range(1, 100));
  add_value(*command, "--repeat", "N", arguments->repeat, "Traced runs of a variant (default 15; the stand-in makes one)")
      ->check(CLI::Range(1, 10000));
  add_value(*command, "--jobs", "N", arguments->jobs, "Builds at the same time; default: the number of processors")
      ->check(CLI::Range(1, 1024));
  add_value(*command, "--seed", "S", arguments->seed, "Seed of the random inputs (default 1)");
  command->callback([&invocation, arguments] { invocation.run = [arguments] { return tune_command(*arguments); }; });
}

}  // namespace tamp::cli
