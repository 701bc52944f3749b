// `tamp tune`: chooses rKernels by measurement (tune.h), keeps what is faster, writes what was measured as records.
//
// Builds run in parallel. Measurements run one at a time, in this process and beside others of the user's: they hold a lock. Nothing in the
// choice comes from an answer that differs from the reference.
#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <future>
#include <mutex>
#include <thread>

#include "codegen/codegen.h"
#include "compiler/cli/command.h"
#include "compiler/cli/compare.h"
#include "compiler/cli/compiled_folder.h"
#include "compiler/cli/measure_lock.h"
#include "compiler/cli/ports.h"
#include "compiler/cli/process.h"
#include "compiler/cli/table.h"
#include "compiler/cli/toolchain.h"
#include "compiler/cli/trace.h"
#include "compiler/cli/tune.h"
#include "compiler/support/files.h"
#include "compiler/support/text.h"

namespace tamp::cli {
namespace {

namespace fs = std::filesystem;

// On what --check accepts: what a precision costs a deep network is not the question here, and what is broken is far off.
constexpr double kSlack = 2;

struct TuneArguments {
  std::string model, output, device, records;
  ModelArguments options;
  TuneOptions tune;
  int jobs = 0;  // 0: as many as there are processors
  int repeat = 15;
  uint64_t seed = 1;
};

// Calls job(0..count-1), so many at a time. The first exception is thrown on when all have ended.
void in_parallel(size_t count, size_t jobs, const std::function<void(size_t)>& job) {
  std::atomic<size_t> next = 0;
  std::mutex mutex;
  std::exception_ptr failure;
  const auto work = [&] {
    for (size_t i = next++; i < count; i = next++) {
      try {
        job(i);
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (!failure) failure = std::current_exception();
      }
    }
  };
  {
    std::vector<std::jthread> threads;
    for (size_t i = 0; i < std::min(count, jobs); ++i) threads.emplace_back(work);
  }
  if (failure) std::rethrow_exception(failure);
}

// One rProgram on its way through the compiler and on the device.
struct Built {
  CompiledFolder model;
  fs::path work, runner;
};

class Workshop {
 public:
  Workshop(const TuneArguments& arguments, Device device, const Prepared& prepared, const fs::path& folder)
      : arguments_(arguments), device_(device), prepared_(prepared), folder_(folder) {
    for (const TensorId id : prepared.source.inputs) {
      const Tensor& tensor = prepared.source.tensor(id);
      inputs_.push_back(random_value({tensor.name, tensor.dtype, tensor.shape}, arguments.seed, inputs_.size()));
    }
    // Takes as long as a build does, and beside it.
    expected_ = std::async(std::launch::async, [this] { return ops::run(prepared_.source, inputs_); }).share();
  }

  std::vector<Built> build(const std::vector<RProgram>& programs, const RunOptions& options) {
    const std::string name = model_name(arguments_.model);
    std::vector<Built> built(programs.size());
    const fs::path folder = folder_ / fmt::format("build{}", builds_++);
    const size_t jobs = arguments_.jobs > 0 ? static_cast<size_t>(arguments_.jobs) : std::max(1u, std::thread::hardware_concurrency());
    in_parallel(programs.size(), jobs, [&](size_t i) {
      built[i].work = folder / std::to_string(i);
      const std::string compiled = (built[i].work / "compiled").string();
      codegen::emit(programs[i], {.name = name, .source_name = file_name(arguments_.model)}, compiled);
      built[i].model = read_compiled_folder(compiled);
      built[i].runner = build_runner(built[i].model, device_, built[i].work, options);
    });
    return built;
  }

  // None, with a warning, if it failed or its answer is wrong.
  std::optional<RunResult> run(const Built& built, const RunOptions& options) {
    const std::vector<ops::Value>& expected = expected_.get();
    try {
      const MeasureLock lock;
      RunResult result = run_model(built.model, device_, built.runner, built.work, inputs_, options);
      device_name_ = result.device;
      for (size_t i = 0; i < result.outputs.size(); ++i) {
        const double distance = difference(result.outputs[i], expected[i]).relative_l2;
        if (distance <= kSlack * tolerance(prepared_.precision, expected[i].dtype)) continue;
        spdlog::warn("{}: output {} is wrong (relative L2 {:.2e}); not counted", built.work.filename().string(), i, distance);
        return std::nullopt;
      }
      return result;
    } catch (const std::exception& failed) {
      spdlog::warn("{}: {}; not counted", built.work.filename().string(), failed.what());
      return std::nullopt;
    }
  }

  std::vector<std::optional<RopTimes>> rop_times_of(const std::vector<RProgram>& programs) {
    const bool gpu = device_ == Device::cuda;
    const RunOptions options{.repeat = gpu ? arguments_.repeat : 1, .trace = gpu, .trace_all = gpu};
    const std::vector<Built> built = build(programs, options);
    std::vector<std::optional<RopTimes>> times;
    for (size_t i = 0; i < programs.size(); ++i) {
      const std::optional<RunResult> result = run(built[i], options);
      if (!result)
        times.emplace_back();
      else if (gpu)
        times.push_back(RopTimes{rop_times(read_text(built[i].model.folder / (built[i].model.name + ".rprogram.json")), result->stamps),
                                 arguments_.repeat});
      else
        times.push_back(shared_out(programs[i], median(result->microseconds)));
      fs::remove_all(built[i].work);
    }
    return times;
  }

  // Microseconds of whole runs of each, none where it does not count. Taken in turns, as clocks and neighbours change.
  std::vector<std::optional<double>> whole_times(const std::vector<RProgram>& programs) {
    const bool gpu = device_ == Device::cuda;
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

  const std::string& device_name() const { return device_name_; }

 private:
  // The stand-in has no clock for rTasks: of the whole run each rOperator gets what the simulator thinks is its share.
  static RopTimes shared_out(const RProgram& program, double whole_us) {
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

  const TuneArguments& arguments_;
  const Device device_;
  const Prepared& prepared_;
  const fs::path folder_;
  std::vector<ops::Value> inputs_;
  std::shared_future<std::vector<ops::Value>> expected_;
  std::string device_name_;
  int builds_ = 0;
};

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
               {"US", Table::Align::right},
               {"BY RECORDS", Table::Align::left, 48},
               {"US", Table::Align::right}});
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

// Returns how many the file holds.
size_t write_records(const std::string& path, const select::Records& measured) {
  const MeasureLock lock;
  select::Records all = fs::exists(path) ? read_records(path) : select::Records{};
  all.replace(measured);
  replace_file(path, all.text());
  return all.size();
}

std::string time_text(const std::optional<double>& us) { return us ? fmt::format("{:.1f} us", *us) : "failed"; }

ExitCode tune_in(const TuneArguments& arguments, const fs::path& folder) {
  const std::string name = model_name(arguments.model);
  require_own_folder(arguments.output, name);
  if (fs::exists(arguments.records)) {
    const MeasureLock lock;           // nobody is writing it now
    read_records(arguments.records);  // says what is wrong with it before the work begins
  }
  if (const std::string why = why_not_writable(fs::absolute(arguments.records).parent_path()); !why.empty())
    throw bad_input(fmt::format("{}: cannot be written: {}", printable(arguments.records), why));
  const Device device = choose_device(arguments.device);
  const std::string vdevice = !arguments.options.vdevice.empty() ? "" : device == Device::cpu ? "cpu" : vdevice_of_this_gpu();
  const CompileOptions options = compile_options(arguments.options, vdevice);
  if (options.execution != schedule::Execution::persistent) throw bad_input("tune needs the persistent kernel, not --execution graph");
  const Prepared prepared = prepare(arguments.model, options);
  if (device == Device::cuda && prepared.vdevice.arch == "cpu")
    throw bad_input("vDevice 'cpu' is the stand-in's; --device cuda needs the vDevice of a GPU");

  Workshop workshop(arguments, device, prepared, folder);
  const select::Records records =
      tune(prepared, options, arguments.tune, [&](const auto& programs) { return workshop.rop_times_of(programs); });
  const Settled settled = settle(prepared, options, records, [&](const auto& programs) { return workshop.whole_times(programs); });
  const size_t changed = changed_rkernels(settled.untuned, settled.tuned);
  if (changed > 0) print_changes(settled, records);
  fmt::print("model    {}: vDevice {}, {}, on {}{}\n", name, printable(prepared.vdevice.name), name_of(prepared.precision),
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
  TemporaryFolder folder;
  try {
    return tune_in(arguments, folder.path());
  } catch (const InternalError&) {
    folder.keep();  // its logs say what happened
    throw;
  }
}

}  // namespace

void add_tune(CLI::App& app, Invocation& invocation) {
  CLI::App* command = add_command(app, invocation, "tune", "Compile a model with rKernels that were chosen by measurement",
                                  "  tamp tune resnet50.onnx -o resnet50/\n"
                                  "  tamp tune resnet50.onnx -o resnet50/ --precision fp16 --rounds 3 --variants 8\n"
                                  "  tamp tune a.onnx -o a/ --records my.jsonl && tamp compile b.onnx -o b/ --records my.jsonl\n"
                                  "Needs what 'tamp run' needs. Several at the same time take turns in measuring.");
  auto arguments = std::make_shared<TuneArguments>();
  command->add_option("model", arguments->model, "The ONNX file")->required()->option_text("MODEL.onnx");
  command->add_option("-o,--output", arguments->output, "Folder to write, as 'tamp compile' does")->required()->option_text("DIR");
  command->add_option("--device", arguments->device, "cuda, or cpu (the stand-in); default: cuda if there is a GPU and nvcc")
      ->option_text("D");
  add_model_options(*command, arguments->options);
  command
      ->add_option("--records", arguments->records, "File of records that what was measured is added to; default: DIR/NAME.records.jsonl")
      ->option_text("FILE");
  command->add_option("--rounds", arguments->tune.rounds, "Rounds of measurements (default 2)")
      ->option_text("N")
      ->check(CLI::Range(1, 100));
  command->add_option("--variants", arguments->tune.variants, "Variants of the network that a round measures (default 6)")
      ->option_text("N")
      ->check(CLI::Range(1, 100));
  command->add_option("--repeat", arguments->repeat, "Traced runs of a variant (default 15; the stand-in makes one)")
      ->option_text("N")
      ->check(CLI::Range(1, 10000));
  command->add_option("--jobs", arguments->jobs, "Builds at the same time; default: the number of processors")
      ->option_text("N")
      ->check(CLI::Range(1, 1024));
  command->add_option("--seed", arguments->seed, "Seed of the random inputs (default 1)")->option_text("S");
  command->callback([&invocation, arguments] { invocation.run = [arguments] { return tune_command(*arguments); }; });
}

}  // namespace tamp::cli
