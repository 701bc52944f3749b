// `tamp run`: compile a model (or take a compiled folder), build it, run it, show its outputs, compare with the reference.
#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "codegen/codegen.h"
#include "compiler/cli/bounds.h"
#include "compiler/cli/command.h"
#include "compiler/cli/compare.h"
#include "compiler/cli/compiled_folder.h"
#include "compiler/cli/each.h"
#include "compiler/cli/index_limits.h"
#include "compiler/cli/measure_stages.h"
#include "compiler/cli/ports.h"
#include "compiler/cli/print_json.h"
#include "compiler/cli/process.h"
#include "compiler/cli/prompt_options.h"
#include "compiler/cli/roundings.h"
#include "compiler/cli/table.h"
#include "compiler/cli/test_data.h"
#include "compiler/cli/this_gpu.h"
#include "compiler/cli/toolchain.h"
#include "compiler/cli/trace.h"
#include "compiler/frontend/onnx_reader.h"
#include "compiler/ops/number.h"
#include "compiler/passes/place/value_bounds.h"
#include "compiler/passes/tidy/widen_halves.h"
#include "compiler/schedule/races.h"
#include "compiler/support/text.h"

namespace tamp::cli {
namespace {

struct RunArguments {
  std::string model, device, keep, output_folder, trace;
  std::string source;  // --model
  std::vector<std::string> inputs, at;
  PromptArguments prompt;
  ModelArguments options;
  RunOptions run;
  uint64_t seed = 1;
  bool check = false, each = false, as_json = false;
  std::string against;  // a folder of test data
  Tolerance tolerance;
  bool has_tolerance = false;  // --rtol or --atol was given
};

// What is printed about a run: as text at once, or with --json as one object at the end.
struct Report {
  bool as_json = false;
  nlohmann::ordered_json json = nlohmann::ordered_json::object();

  template <class... Values>
  void say(fmt::format_string<Values...> text, Values&&... values) const {
    if (!as_json) fmt::print(text, std::forward<Values>(values)...);
  }
};

// What is run, and, if there is a check, the graph to check against.
struct Subject {
  CompiledFolder model;
  std::optional<Graph> source;
  std::optional<RProgram> program;  // if the model was compiled here
  Precision precision = Precision::fp32;
  Device device = Device::cpu;
  bool has_random_inputs = false;
};

// Error before anything is compiled.
void require_gpu(const RunArguments& arguments, Device device) {
  if (device == Device::cpu && (arguments.run.graph || arguments.run.instances > 1)) throw bad_input("--graph and --instances need a GPU");
}

// Error before anything is compiled, built or written.
void require_watchable(const RunArguments& arguments, Device device) {
  if (!arguments.run.races) return;
  if (device == Device::cuda) throw bad_input("--races needs the stand-in, which sees every access: --device cpu");
  if (std::filesystem::is_directory(arguments.model)) throw bad_input("--races needs the model, not a folder of 'tamp compile'");
}

// The same.
void require_tokens(const RunArguments& arguments) {
  const bool is_folder = std::filesystem::is_directory(arguments.model), makes_tokens = arguments.prompt.is_given;
  if (arguments.prompt.has_others && !makes_tokens)
    throw bad_input("--max-tokens, --temperature, --top-k, --top-p and --repetition-penalty are of --prompt: give it, too");
  if (!makes_tokens) return;
  if (!is_folder && !arguments.options.generates) throw bad_input("--prompt: give --generate, too");
  const RunOptions& run = arguments.run;
  const bool has_others =
      run.races || run.trace || run.graph || run.instances > 1 || !arguments.against.empty() || !arguments.output_folder.empty();
  if (has_others)
    throw bad_input("--prompt makes tokens; --against, --output-dir, --races, --trace, --graph and --instances are of single runs");
}

// The same.
void require_checkable(const RunArguments& arguments) {
  const bool is_folder = std::filesystem::is_directory(arguments.model);
  if (arguments.each && !arguments.check) throw bad_input("--each is of --check: give both");
  if (arguments.each && is_folder) throw bad_input("--each needs the model, not a folder of 'tamp compile'");
  if (arguments.each && arguments.run.races) throw bad_input("--each and --races: give one of them");
  if (arguments.has_tolerance && !arguments.check && arguments.against.empty())
    throw bad_input("--rtol and --atol are of --check and --against: give one of these, too");
  if (arguments.against.empty()) return;
  if (!arguments.inputs.empty()) throw bad_input("--against has its own inputs; --input cannot be given with it");
  if (!arguments.output_folder.empty()) throw bad_input("--against compares outputs; --output-dir cannot be given with it");
}

void require_traceable(const RunArguments& arguments, Device device, const std::string& execution) {
  if (arguments.trace.empty()) return;
  if (execution == "graph") throw bad_input("--trace needs the persistent kernel; with --execution graph, use a profiler");
  if (device == Device::cpu) throw bad_input("--trace needs a GPU; the stand-in has no clock");
  if (std::filesystem::is_directory(arguments.trace))
    throw bad_input(fmt::format("--trace {}: is a folder, not a file", printable(arguments.trace)));
}

Precision parse_precision(const std::string& name) {
  for (const Precision precision : {Precision::fp32, Precision::tf32, Precision::fp16, Precision::bf16}) {
    if (name == name_of(precision)) return precision;
  }
  throw bad_input(fmt::format("precision '{}' of the compiled folder is not known", printable(name)));
}

// The ports get the shapes of the run's lengths. Test data has its own.
void set_values(const RunArguments& arguments, CompiledFolder& model) {
  if (!arguments.against.empty()) {
    if (!arguments.at.empty()) throw bad_input("--against has its own inputs; --at cannot be given with it");
    return;
  }
  const std::vector<int64_t> values = values_of(model, arguments.at, arguments.inputs);
  if (!values.empty()) model = at_values(std::move(model), values);
  if (arguments.each && !is_largest(model)) throw bad_input("--each looks at whole results: it needs the largest lengths");
}

Subject compile_subject(RunArguments arguments, const std::filesystem::path& work) {
  if (!arguments.source.empty()) throw bad_input("--model is for a folder of 'tamp compile' and --check");
  Subject subject;
  if (!arguments.inputs.empty()) {
    std::vector<std::string> names;
    for (const auto& input : frontend::summarize_onnx(arguments.model).inputs) names.push_back(input.name);
    if (arguments.options.generates) names.insert(names.end(), std::begin(frontend::kAddedInputs), std::end(frontend::kAddedInputs));
    require_inputs(names, arguments.inputs);
  }
  const std::string name = model_name(arguments.model);
  if (!arguments.keep.empty()) require_own_folder(arguments.keep, name);
  subject.device = choose_device(arguments.device);
  require_gpu(arguments, subject.device);
  require_traceable(arguments, subject.device, arguments.options.execution);
  require_watchable(arguments, subject.device);
  arguments.options.vdevice = vdevice_to_run(arguments.options.vdevice, subject.device == Device::cuda);
  CompileOptions options = compile_options(arguments.options);
  options.keep_all = arguments.each;
  options.keep_bounded = arguments.check && subject.device == Device::cpu && !arguments.run.tokens.check;
  set_measure(arguments.options, {.model = arguments.model, .device = subject.device, .seed = arguments.seed}, options);
  Compiled compiled = compile(arguments.model, options);
  const std::string folder = arguments.keep.empty() ? (work / "compiled").string() : arguments.keep;
  codegen::EmitOptions emitting{.name = name,
                                .source_name = file_name(arguments.model),
                                .origin = origin_of(arguments.model, compiled.source, compiled.options),
                                .invocation = options_text(arguments.options)};
  add_schedule(compiled.program, emitting);
  codegen::emit(compiled.program, emitting, folder);
  subject.model = read_compiled_folder(folder);
  set_values(arguments, subject.model);
  subject.precision = compiled.program.precision;
  subject.source =
      subject.model.values.empty() ? std::move(compiled.source) : read_source(arguments.model, at_values(options, subject.model.values));
  const size_t bucket = bucket_of(subject.model);
  subject.program = bucket < compiled.program.smaller.size() ? std::move(compiled.program.smaller[bucket]) : std::move(compiled.program);
  return subject;
}

Subject compiled_subject(const RunArguments& arguments) {
  const ModelArguments& o = arguments.options;
  if (!o.vdevice.empty() || !o.precision.empty() || o.activations != "auto" || !o.dims.empty() || !o.batch.empty() ||
      !o.execution.empty() || !o.records.empty() || !arguments.keep.empty() || o.measure) {
    throw bad_input(
        fmt::format("{} is compiled already; --vdevice, --precision, --activations, --execution, --dim, --batch, --records, --measure and "
                    "--keep need the model",
                    printable(arguments.model)));
  }
  Subject subject;
  subject.model = read_compiled_folder(arguments.model);
  set_values(arguments, subject.model);
  subject.device = choose_device(subject.model.arch == "cpu" && arguments.device.empty() ? "cpu" : arguments.device);
  require_gpu(arguments, subject.device);
  require_traceable(arguments, subject.device, subject.model.execution);
  require_watchable(arguments, subject.device);
  if (arguments.check && arguments.against.empty() && !arguments.run.tokens.check) {
    subject.source = read_model_of(subject.model, arguments.source, frozen_values(arguments.options.frozen));
    subject.precision = parse_precision(subject.model.precision);
  }
  return subject;
}

void report_times(const Subject& subject, const RunResult& result, const RunOptions& options, Report& report) {
  std::vector<double> times = result.microseconds;
  TAMP_CHECK(!times.empty(), "the model's program printed no time");
  std::sort(times.begin(), times.end());
  report.json = {{"model", subject.model.name},
                 {"vdevice", subject.model.vdevice},
                 {"precision", subject.model.precision},
                 {"policy", subject.model.policy},
                 {"execution", subject.model.execution},
                 {"device", subject.device == Device::cuda ? "cuda" : "cpu"},
                 {"device_name", result.device},
                 {"traced", options.trace},
                 {"time_us", {{"min", times.front()}, {"median", median(times)}, {"max", times.back()}, {"runs", result.microseconds}}}};
  for (size_t i = 0; i < subject.model.values.size(); ++i) report.json["lengths"][subject.model.lengths[i].name] = subject.model.values[i];
  report.say("model   {}: vDevice {}, {}, {} policy, {} execution, on {}\n", subject.model.name, printable(subject.model.vdevice),
             printable(subject.model.precision), printable(subject.model.policy), printable(subject.model.execution), result.device);
  std::vector<std::string> lengths;
  for (size_t i = 0; i < subject.model.values.size(); ++i)
    lengths.push_back(fmt::format("{} {}", printable(subject.model.lengths[i].name), subject.model.values[i]));
  if (!lengths.empty() && options.tokens.prompt.empty()) report.say("lengths {}\n", join(lengths, ", "));
  const char* note = subject.device == Device::cpu ? "  (stand-in: says nothing about a GPU)"
                     : options.trace               ? "  (traced, which is slower)"
                                                   : "";
  if (times.size() == 1) {
    report.say("time    {:.1f} us{}\n", times[0], note);
  } else {
    report.say("time    min {:.1f} us  median {:.1f} us  max {:.1f} us  of {} runs, all bitwise equal{}\n", times.front(), median(times),
               times.back(), times.size(), note);
  }
}

void report_outputs(const std::vector<Port>& ports, const std::vector<ops::Value>& outputs, Report& report) {
  report.json["outputs"] = nlohmann::ordered_json::array();
  for (size_t i = 0; i < outputs.size(); ++i) {
    report.say("output  '{}' {}\n", printable(ports[i].name), summary(outputs[i]));
    const Statistics s = statistics_of(outputs[i]);
    nlohmann::ordered_json output = {{"name", ports[i].name}, {"dtype", name_of(outputs[i].dtype)}, {"shape", outputs[i].shape}};
    if (s.numbers > 0) output.update({{"min", s.least}, {"max", s.most}, {"mean", s.mean}});  // JSON writes an infinity as null
    output["nans"] = s.nans;
    report.json["outputs"].push_back(output);
  }
}

void write_trace(const RunArguments& arguments, const CompiledFolder& model, const RunResult& result, Report& report_to) {
  std::string rprogram = rprogram_json_of(model);
  if (const size_t bucket = bucket_of(model); bucket + 1 < model.buckets.size())
    rprogram = nlohmann::json::parse(rprogram).at("smaller").at(bucket).dump();
  const TraceReport report = trace_report(rprogram, result.stamps);
  write_text(arguments.trace, report.events);
  report_to.json["trace"] = arguments.trace;
  report_to.say("\n{}\n{} opens in ui.perfetto.dev and chrome://tracing\n", report.text, printable(arguments.trace));
}

// Elements of f32 as elements of `dtype`.
std::shared_ptr<const Bytes> rounded(const Bytes& wide, DType dtype) {
  const size_t count = wide.size() / sizeof(float);
  auto made = std::make_shared<Bytes>(count * static_cast<size_t>(bytes_of(dtype)));
  ops::with_storage(dtype, [&](auto zero) {
    using Stored = decltype(zero);
    const auto* from = reinterpret_cast<const float*>(wide.data());
    auto* to = reinterpret_cast<Stored*>(made->data());
    for (size_t i = 0; i < count; ++i) to[i] = ops::encode<Stored>(from[i], dtype);
  });
  return made;
}

// What the reference makes of a model of 16 bits if it rounds nothing between inputs and outputs, as programs in other precisions than fp32
// do (passes/widen_halves.h).
std::vector<ops::Value> run_unrounded(const Graph& source, std::vector<ops::Value> inputs) {
  for (ops::Value& input : inputs) {
    if (input.dtype != DType::f16 && input.dtype != DType::bf16) continue;
    input.data = std::make_shared<const Bytes>(ops::f32_bytes(input.dtype, *input.data));
    input.dtype = DType::f32;
  }
  std::vector<ops::Value> results = ops::run(passes::widen_halves(source), inputs);
  for (size_t i = 0; i < results.size(); ++i) {
    const DType dtype = source.tensor(source.outputs[i]).dtype;
    if (results[i].dtype != dtype) results[i] = {dtype, results[i].shape, rounded(*results[i].data, dtype)};
  }
  return results;
}

// With a count for each output that is padded in the program alone: a Loop of as many iterations as a length says is written out where that
// is one.
std::vector<ops::Value> with_counts(const Subject& subject, std::vector<ops::Value> results) {
  const std::vector<Port>& ports = subject.model.outputs;
  while (results.size() < ports.size()) {
    const auto counts = [&](const Port& port) { return port.count == static_cast<int64_t>(results.size()); };
    const auto padded = std::find_if(ports.begin(), ports.end(), counts);
    TAMP_CHECK(padded != ports.end(), "the reference has fewer outputs");
    const Shape& whole = results[static_cast<size_t>(padded - ports.begin())].shape;
    results.push_back(ops::raw_value(DType::i64, {1}, std::vector{whole[static_cast<size_t>(padded->count_axis)]}));
  }
  return results;
}

// What is expected. Random integers may be no legal indices, which the reference refuses.
std::vector<ops::Value> reference_of(const Subject& subject, const std::vector<ops::Value>& inputs) {
  spdlog::info("checks against the reference on the CPU");
  try {
    return with_counts(subject, ops::run(*subject.source, inputs));
  } catch (const Error& error) {
    if (!subject.has_random_inputs) throw;
    throw Error(error.code(), fmt::format("{}; this input was random: --input NAME=FILE gives one", error.what()));
  }
}

// With --rtol or --atol: each element by itself.
ExitCode check_elements(const Subject& subject, const std::vector<ops::Value>& inputs, const std::vector<ops::Value>& outputs,
                        Tolerance tolerance, Report& report) {
  tolerance.of_small_integers = true;
  const std::vector<ops::Value> expected = reference_of(subject, inputs);
  std::vector<std::string> wrong;
  for (size_t i = 0; i < outputs.size(); ++i) {
    const std::string& name = subject.model.outputs[i].name;
    const std::string sentence = departure(name, outputs[i], expected[i], tolerance);
    const int64_t wrong_elements = outside(outputs[i], expected[i], tolerance), elements = element_count(outputs[i].shape);
    report.json["checks"].push_back({{"output", name},
                                     {"good", sentence.empty()},
                                     {"outside", wrong_elements},
                                     {"rtol", tolerance.relative},
                                     {"atol", tolerance.absolute},
                                     {"departure", sentence}});
    report.say("check   '{}': {}, each element, rtol {:g}, atol {:g}; {} of {} outside ({:.2g} %)\n", printable(name),
               sentence.empty() ? "good" : "FAILED", tolerance.relative, tolerance.absolute, wrong_elements, elements,
               elements == 0 ? 0.0 : 100.0 * static_cast<double>(wrong_elements) / static_cast<double>(elements));
    if (!sentence.empty()) wrong.push_back(sentence);
  }
  if (wrong.empty()) return ExitCode::ok;
  throw Error(ExitCode::check_failed, fmt::format("{}: {}", subject.model.name, join(wrong, "\n  ")));
}

// An output as a whole; whether it is near what is expected.
bool report_output(const Subject& subject, size_t i, const ops::Value& output, const ops::Value& expected, Report& report) {
  const Difference d = difference(output, expected);
  const double limit = tolerance(subject.precision, output.dtype);
  const bool within = d.relative_l2 <= limit;
  report.json["checks"].push_back(
      {{"output", subject.model.outputs[i].name}, {"good", within}, {"relative_l2", d.relative_l2}, {"limit", limit}});
  report.say("check   '{}': {}, relative L2 {:.2e}, limit {:.0e} for {}", printable(subject.model.outputs[i].name),
             within ? "good" : "FAILED", d.relative_l2, limit, name_of(subject.precision));
  if (d.worst >= 0) {
    report.say("; worst element {}: {}, expected {}", index_text(d.worst, output.shape), element_text(output, d.worst, 7),
               element_text(expected, d.worst, 7));
  }
  report.say("\n");
  return within;
}

void require_good(const Subject& subject, bool good) {
  if (!good) throw Error(ExitCode::check_failed, fmt::format("{}: outputs differ from the reference", subject.model.name));
}

// Of a quantised model the reference's answers are some of several right ones.
ExitCode check_rounded(const Subject& subject, const Roundings& roundings, const std::vector<ops::Value>& inputs,
                       const std::vector<ops::Value>& outputs, const std::vector<ops::Value>& expected, Report& report) {
  spdlog::info("checks how much the roundings of a quantised model may change");
  const std::vector<Distance> allowed = allowed_distances(*subject.source, roundings, inputs, expected, subject.precision);
  bool good = true;
  for (size_t i = 0; i < outputs.size(); ++i) {
    const Difference d = difference(outputs[i], expected[i]);
    if (i >= allowed.size() || d.relative_l2 <= tolerance(subject.precision, outputs[i].dtype)) {
      good = report_output(subject, i, outputs[i], expected[i], report) && good;
      continue;
    }
    const std::optional<double>& step = roundings.steps[i];
    const Distance found = distance(outputs[i], expected[i], step);
    const bool within = is_within(found, allowed[i], step);
    good = good && within;
    report.json["checks"].push_back({{"output", subject.model.outputs[i].name},
                                     {"good", within},
                                     {"relative_l2", d.relative_l2},
                                     {"limit", allowed[i].relative_l2},
                                     {"roundings", roundings.places.size()},
                                     {"scaled", found.scaled},
                                     {"scaled_limit", allowed[i].scaled},
                                     {"shifted", found.shifted},
                                     {"shifted_limit", allowed[i].shifted}});
    if (step) {
      report.json["checks"].back().update({{"step", *step},
                                           {"differ", found.differ},
                                           {"differ_limit", allowed[i].differ},
                                           {"steps", found.steps},
                                           {"steps_limit", allowed[i].steps}});
    }
    report.say("check   '{}': {}, {}; worst element {}: {}, expected {}\n", printable(subject.model.outputs[i].name),
               within ? "good" : "FAILED", distance_text(found, allowed[i], step, element_count(outputs[i].shape)),
               index_text(d.worst, outputs[i].shape), element_text(outputs[i], d.worst, 7), element_text(expected[i], d.worst, 7));
  }
  report.say("        {}\n", reason(roundings, subject.precision));
  require_good(subject, good);
  return ExitCode::ok;
}

// A model of 16 bits that rounds after each operator may differ much from the program, which does not, where rounding takes something away:
// scores of 2 and 3 beside a mask of -65504. So what differs from its reference is compared with that of the model in f32, too.
ExitCode check_outputs(const Subject& subject, const std::vector<ops::Value>& inputs, const std::vector<ops::Value>& outputs,
                       Report& report) {
  std::vector<ops::Value> expected = reference_of(subject, inputs);
  const auto is_near = [&](size_t i) {
    return difference(outputs[i], expected[i]).relative_l2 <= tolerance(subject.precision, outputs[i].dtype);
  };
  const auto is_half = [](const Tensor& tensor) { return tensor.dtype == DType::f16 || tensor.dtype == DType::bf16; };
  const std::vector<Tensor>& tensors = subject.source->tensors;
  bool all_near = true;
  for (size_t i = 0; i < outputs.size(); ++i) all_near = all_near && is_near(i);
  if (!all_near && subject.precision != Precision::fp32 && std::any_of(tensors.begin(), tensors.end(), is_half)) {
    spdlog::info("checks against the reference of the model in f32");
    expected = with_counts(subject, run_unrounded(*subject.source, inputs));
  }
  if (!all_near) {
    const Roundings roundings = roundings_of(*subject.source);
    if (!roundings.places.empty()) return check_rounded(subject, roundings, inputs, outputs, expected, report);
  }
  bool good = true;
  for (size_t i = 0; i < outputs.size(); ++i) good = report_output(subject, i, outputs[i], expected[i], report) && good;
  require_good(subject, good);
  return ExitCode::ok;
}

// Whether a lane has looked at a loop's condition, a word at a time. The verifier says when it may.
bool is_look_at_condition(const RProgram& program, const AccessRow& row) {
  return row.base == 0 && row.is_write == 0 && std::any_of(program.graph.loops.begin(), program.graph.loops.end(), [&](const Loop& loop) {
           const Placement& place = program.graph.tensor(loop.condition).place;
           const auto begin = static_cast<uint64_t>(program.memory.buffer_offset[place.buffer.index()] + place.offset);
           return row.begin >= begin && row.end <= begin + sizeof(uint32_t);
         });
}

// Translates the rows of the log to touches of this program's rTasks.
std::vector<schedule::Touch> touches_of(const RProgram& program, const std::vector<AccessRow>& rows) {
  std::vector<std::pair<ROperatorId, int32_t>> phases;  // per record
  if (program.launches) {
    for (const PhaseLaunch& launch : *program.launches) phases.emplace_back(launch.rop, launch.phase);
  } else {
    for (size_t i = 0; i < program.rkernels.size(); ++i) {
      for (size_t p = 0; p < program.rkernels[i].phases.size(); ++p)
        phases.emplace_back(ROperatorId(static_cast<int64_t>(i)), static_cast<int32_t>(p));
    }
  }
  std::vector<schedule::Touch> touches;
  for (const AccessRow& row : rows) {
    if (row.record >= phases.size() && is_look_at_condition(program, row)) continue;
    if (row.record >= phases.size())
      throw InternalError(fmt::format("bytes {} to {} of base {} were touched for no rTask", row.begin, row.end, row.base));
    const auto& [rop, phase] = phases[row.record];
    touches.push_back({{rop, phase, static_cast<int64_t>(row.index)},
                       static_cast<int32_t>(row.base),
                       row.is_write != 0,
                       static_cast<int64_t>(row.begin),
                       static_cast<int64_t>(row.end)});
  }
  return touches;
}

// `is_whole`: the run was of the largest lengths.
void check_races(const RProgram& program, const RunResult& result, bool is_whole, Report& report) {
  const std::vector<schedule::Touch> touches = touches_of(program, result.accesses);
  const std::vector<std::string> found = schedule::races(program, touches, /*limit=*/8, kernels::families(), is_whole);
  if (!found.empty())
    throw Error(ExitCode::check_failed,
                fmt::format("{}: bodies do what they do not declare:\n  {}", program.graph.name, join(found, "\n  ")));
  int64_t read = 0, written = 0, rtasks = 0;
  for (const schedule::Touch& t : touches) (t.is_write ? written : read) += t.end - t.begin;
  for (const RKernel& rkernel : program.rkernels) rtasks += rkernel.rtasks();
  report.json["races"] = {{"rtasks", rtasks}, {"bytes_read", read}, {"bytes_written", written}};
  report.say("races   none: {} rTasks read {} and wrote {}, as declared and in order{}\n", rtasks, bytes_text(read), bytes_text(written),
             is_whole ? "" : "; some of them less, for their lengths");
}

void report_each(const EachReport& report, Report& to) {
  to.json["each"] = {{"checked", report.checked}, {"skipped", report.skipped}};
  for (const std::string& reason : report.skipped) to.say("each    cannot be looked at alone: {}\n", reason);
  if (!report.departure.empty())
    throw Error(ExitCode::check_failed, fmt::format("{}; {} before it are good", report.departure, report.checked));
  to.say("each    {} rOperators, each as the reference\n", report.checked);
}

// Whether a run's arena is looked at for values that are proven to be bounded: the stand-in's, where there are any.
bool has_bounds_to_check(const RunArguments& arguments, const Subject& subject) {
  return arguments.check && subject.device == Device::cpu && subject.program && !arguments.run.races && !arguments.run.tokens.check &&
         passes::has_bounds(subject.program->graph);
}

// Values beyond a bound that was proven are this compiler's mistake, even where the outputs come out right.
void require_bounds(const RProgram& program, const Bytes& arena, Report& to) {
  const BoundsReport report = check_bounds(program, arena);
  if (!report.violations.empty())
    throw Error(ExitCode::check_failed, fmt::format("{}: a bound does not hold; this is a bug in tamp:\n  {}", program.graph.name,
                                                    join(report.violations, "\n  ")));
  to.json["bounds"] = report.checked;
  to.say("bounds  {} buffers in fp16, their values within what is proven\n", report.checked);
}

// Names of the model's inputs, in the model's order, including inputs that became constants.
std::vector<std::string> input_names(const RunArguments& arguments, const Subject& subject) {
  std::vector<std::string> names;
  if (subject.program) {
    for (const auto& input : frontend::summarize_onnx(arguments.model).inputs) names.push_back(input.name);
  } else {
    for (const Port& port : subject.model.inputs) names.push_back(port.name);
  }
  return names;
}

// Whether the model has roundings, and is that of these inputs' lengths.
bool may_round(const Graph& source, const std::vector<ops::Value>& inputs) {
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (i >= source.inputs.size() || source.tensor(source.inputs[i]).shape != inputs[i].shape) return false;
  }
  return !roundings_of(source).places.empty();
}

// `inputs` has the values of each set, and `models` the folder with its lengths.
ExitCode run_against(const RunArguments& arguments, const Subject& subject, const std::vector<TestSet>& sets,
                     const std::vector<CompiledFolder>& models, const std::vector<std::vector<ops::Value>>& inputs,
                     const std::filesystem::path& runner, const std::filesystem::path& work, const RunOptions& options, Report& report) {
  std::vector<std::string> wrong;
  Tolerance tolerance = arguments.tolerance;
  tolerance.of_small_integers = arguments.has_tolerance;
  if (!arguments.has_tolerance && subject.precision != Precision::fp32) tolerance.of_precision = subject.precision;
  for (size_t s = 0; s < sets.size(); ++s) {
    const TestSet& set = sets[s];
    const RunResult result = run_model(models[s], subject.device, runner, work, inputs[s], options);
    if (s == 0) report_times(subject, result, arguments.run, report);
    std::optional<Rounded> rounded;
    const auto by_roundings = [&](size_t output, const ops::Value& found, const ops::Value& expected) {
      if (!rounded) rounded = rounded_of(*subject.source, inputs[s], ops::run(*subject.source, inputs[s]), subject.precision);
      return rounded->why_not(output, found, expected);
    };
    const bool rounds = subject.source && !arguments.has_tolerance && may_round(*subject.source, inputs[s]);
    const std::vector<std::string> sentences =
        departures(set, models[s].outputs, result.outputs, tolerance, rounds ? Otherwise(by_roundings) : Otherwise());
    const std::string name = printable(set.folder.filename().string());
    report.json["checks"].push_back({{"set", name}, {"good", sentences.empty()}, {"departures", sentences}});
    report.say("check   {}: {}\n", name, sentences.empty() ? "good" : "FAILED");
    for (const std::string& sentence : sentences) wrong.push_back(fmt::format("{}: {}", name, sentence));
    if (has_bounds_to_check(arguments, subject)) require_bounds(*subject.program, result.arena, report);
    if (arguments.each) report_each(check_each(*subject.program, inputs[s], result.outputs, result.arena), report);
  }
  if (wrong.empty()) return ExitCode::ok;
  throw Error(ExitCode::check_failed, fmt::format("{}: {}", subject.model.name, join(wrong, "\n  ")));
}

void require_makes_tokens(const RunArguments& arguments, const CompiledFolder& model) {
  if (!model.makes_tokens) throw bad_input("{}: makes no tokens; compile it with --generate", printable(arguments.model));
  for (const std::string& text : arguments.at) {
    const std::string name = split_assignment("--at", text).first;
    if (model.buckets.front().largest.at(name) != model.buckets.back().largest.at(name))
      throw bad_input("--at '{}': says how many tokens a run has, and --prompt makes runs of its own", printable(text));
  }
}

ExitCode run_in(const RunArguments& arguments, const std::filesystem::path& work, Report& report) {
  require_checkable(arguments);
  require_tokens(arguments);
  const std::vector<TestSet> sets = arguments.against.empty() ? std::vector<TestSet>() : test_sets(arguments.against);
  if (!arguments.output_folder.empty()) require_writable("--output-dir " + printable(arguments.output_folder), arguments.output_folder);
  if (!arguments.trace.empty()) require_writable("--trace " + printable(arguments.trace), folder_of(arguments.trace));
  Subject subject = std::filesystem::is_directory(arguments.model) ? compiled_subject(arguments) : compile_subject(arguments, work);
  if (subject.source) {
    const std::vector<int64_t> limits = index_limits(*subject.source);
    for (size_t i = 0; i < limits.size(); ++i) subject.model.inputs.at(i).index_limit = limits[i];
  }
  if (subject.device == Device::cuda && subject.model.arch == "cpu")
    throw bad_input("vDevice 'cpu' is the stand-in's; --device cuda needs the vDevice of a GPU");
  std::vector<std::vector<ops::Value>> inputs;  // per run
  std::vector<CompiledFolder> models;
  for (const TestSet& set : sets) {
    const std::vector<std::string> files = test_inputs(set, input_names(arguments, subject), subject.model.inputs);
    models.push_back(at_values(subject.model, values_of(subject.model, {}, files)));
    inputs.push_back(read_inputs(models.back().inputs, files, /*seed=*/1));
  }
  subject.has_random_inputs = sets.empty() && arguments.inputs.size() < subject.model.inputs.size();
  if (sets.empty()) inputs.push_back(read_inputs(subject.model.inputs, arguments.inputs, arguments.seed));
  RunOptions options = arguments.run;
  options.arena = arguments.each || has_bounds_to_check(arguments, subject);
  if (options.races) options.kept = schedule::exchange_bytes(*subject.program);
  if (!options.tokens.prompt.empty()) require_makes_tokens(arguments, subject.model);
  const std::filesystem::path runner = build_runner(subject.model, subject.device, work, options);
  if (!sets.empty()) return run_against(arguments, subject, sets, models, inputs, runner, work, options, report);
  const RunResult result = run_model(subject.model, subject.device, runner, work, inputs[0], options);
  report_times(subject, result, arguments.run, report);
  if (!options.tokens.prompt.empty()) {
    report.json["tokens"] = result.tokens;
    report.say("tokens  {}\n", fmt::join(result.tokens, " "));
    if (options.tokens.check) report.say("check   good: single runs make the same tokens\n");
    return ExitCode::ok;
  }
  report_outputs(subject.model.outputs, result.outputs, report);
  if (!arguments.output_folder.empty()) write_outputs(arguments.output_folder, subject.model.outputs, result.outputs);
  if (options.races) check_races(*subject.program, result, is_largest(subject.model), report);
  if (!arguments.trace.empty()) write_trace(arguments, subject.model, result, report);
  if (has_bounds_to_check(arguments, subject)) require_bounds(*subject.program, result.arena, report);
  if (arguments.each) report_each(check_each(*subject.program, inputs[0], result.outputs, result.arena), report);
  if (!arguments.check) return ExitCode::ok;
  return arguments.has_tolerance ? check_elements(subject, inputs[0], result.outputs, arguments.tolerance, report)
                                 : check_outputs(subject, inputs[0], result.outputs, report);
}

ExitCode run_command(RunArguments& arguments) {
  arguments.run.tokens = arguments.prompt.tokens;
  if (arguments.prompt.is_given) arguments.run.tokens.prompt = parse_prompt(arguments.prompt.prompt);
  arguments.run.tokens.seed = arguments.seed;
  arguments.run.tokens.check = arguments.check && arguments.prompt.is_given;
  Report report{.as_json = arguments.as_json};
  try {
    const ExitCode code = in_temporary_folder([&](const std::filesystem::path& work) { return run_in(arguments, work, report); });
    if (report.as_json) print_json(report.json);
    return code;
  } catch (const Error& error) {
    if (report.as_json && error.code() == ExitCode::check_failed && !report.json.empty()) print_json(report.json);
    throw;
  }
}

}  // namespace

void add_run(CLI::App& app, Invocation& invocation) {
  CLI::App* command = add_command(
      app, invocation, "run", "Compile, build and run a model, on the GPU or without one",
      "  tamp run resnet50.onnx --check\n"
      "  tamp run resnet50.onnx --device cpu --check --seed 7\n"
      "  tamp run model.onnx --input image=cat.npy --output-dir out/\n"
      "  tamp run model.onnx --dim seq=1:512 --at seq=40 --check\n"
      "  tamp run model.onnx --repeat 100 --json\n"
      "  tamp run model.onnx --trace trace.json\n"
      "  tamp run model.onnx --check --against cases/     (test_data_set_N/input_I.pb, output_I.pb)\n"
      "  tamp run model.onnx --check --each               (which rOperator is it?)\n"
      "  tamp run decoder.onnx --generate --prompt 1,15,7 --max-tokens 50 --temperature 0.8\n"
      "  tamp run resnet50/ --device cpu --check     (a folder of 'tamp compile')\n"
      "Inputs that are not given are random: floats uniform with mean 0 and variance 1, integers below the rows of the table whose\n"
      "indices they are, other integers and booleans 0 or 1.\n"
      "--check accepts a relative L2 distance of 1e-4 in fp32, of 5e-3 in tf32 and fp16, and of 4e-2 in bf16. A quantised model that is\n"
      "further off is right, too, if no more differs than where values lie near a tie of a rounding: in elements and steps of the "
      "output's\n"
      "own quantisation, or in relative L2, as the check says.");
  auto arguments = std::make_shared<RunArguments>();
  add_value(*command, "model", "MODEL.onnx|DIR", arguments->model, "The ONNX file, or a folder of 'tamp compile'")->required();
  add_value(*command, "--device", "D", arguments->device, "cuda, or cpu (the stand-in); default: cuda if there is a GPU and nvcc");
  add_model_options(*command, arguments->options);
  add_generate_option(*command, arguments->options);
  add_ios_option(*command, arguments->options);
  add_measure_option(*command, arguments->options);
  add_records_option(*command, arguments->options);
  add_schedule_option(*command, arguments->options);
  add_repeated(*command, "--input", "NAME=FILE", arguments->inputs, "Value of an input, a .npy or .pb (TensorProto) file; may be repeated");
  add_repeated(*command, "--at", "NAME=N", arguments->at,
               "Length of this run, where --dim or --batch leaves it open; else inputs' files say it; else the largest; may be repeated");
  add_value(*command, "--output-dir", "DIR", arguments->output_folder, "Write every output as .npy, and outputs.json, into this folder");
  command->add_flag("--check", arguments->check, "Compare with the reference; exit code 4 if too far off");
  command->add_flag("--each", arguments->each, "With --check: compare every rOperator's result, and name the first that is wrong");
  add_value(*command, "--against", "DIR", arguments->against,
            "Run with the inputs and compare with the outputs of a folder of ONNX test data, instead of the reference");
  add_value(
      *command, "--rtol", "RTOL", arguments->tolerance.relative,
      "With --check or --against: each element, |found - expected| <= ATOL + RTOL * |expected| (default 1e-3); of integers, those of 8 and "
      "16 bits")
      ->check(check_of_amount());
  add_value(*command, "--atol", "ATOL", arguments->tolerance.absolute, "(default 1e-5)")->check(check_of_amount());
  add_value(*command, "--model", "FILE.onnx", arguments->source,
            "With --check of a folder: the model it was compiled from, where it is not found");
  command->add_flag("--json", arguments->as_json, "Print JSON instead of text");
  add_value(*command, "--repeat", "N", arguments->run.repeat, "Timed runs; their outputs must be bitwise equal")
      ->check(CLI::Range(1, 1000000));
  add_value(*command, "--seed", "S", arguments->seed, "Seed of random inputs (default 1)");
  add_value(*command, "--keep", "DIR", arguments->keep, "Write the compiled model into this folder instead of a temporary one");
  add_value(*command, "--trace", "FILE.json", arguments->trace,
            "Stamp every rTask, print where the time goes, write a trace for ui.perfetto.dev (GPU)");
  add_prompt_options(*command, arguments->prompt);
  command->add_flag("--races", arguments->run.races,
                    "Compare what every rTask reads and writes with what its rKernel declares, and with the program's order (stand-in)");
  command->add_flag("--graph", arguments->run.graph, "Replay the run as a CUDA graph (GPU)");
  add_value(*command, "--instances", "N", arguments->run.instances, "Run this many instances on streams of their own at once (GPU)")
      ->check(CLI::Range(1, 8));
  command->callback([&invocation, arguments, command] {
    arguments->has_tolerance = command->count("--rtol") + command->count("--atol") > 0;
    arguments->run.trace = !arguments->trace.empty();
    invocation.run = [arguments] { return run_command(*arguments); };
  });
}

}  // namespace tamp::cli
