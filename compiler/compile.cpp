// The stages of the compiler in order. Every stage is a function from values to a value; between them the graph is
// verified, and printed if the user asked for dumps: 00_read.txt, 01_<pass>.txt, ..., NN_rprogram.txt.
#include "compiler/compile.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <system_error>
#include <utility>

#include "compiler/frontend/onnx_reader.h"
#include "compiler/ir/fused.h"
#include "compiler/ir/loops.h"
#include "compiler/ops/ops.h"
#include "compiler/passes/passes.h"
#include "compiler/passes/place/assign_layout.h"
#include "compiler/passes/place/merge_convolutions.h"
#include "compiler/passes/place/value_bounds.h"
#include "compiler/passes/recognise/recurrences/lift_recurrences.h"
#include "compiler/passes/tidy/fold_constants.h"
#include "compiler/passes/tidy/move_scales.h"
#include "compiler/passes/tidy/remove_identities.h"
#include "compiler/passes/tidy/slice_gathers.h"
#include "compiler/passes/tidy/widen_halves.h"
#include "compiler/passes/tidy/without_quantisation.h"
#include "compiler/schedule/buckets.h"
#include "compiler/schedule/schedule_file.h"
#include "compiler/schedule/token_boundary.h"
#include "compiler/select/explain.h"
#include "compiler/shape/estimators.h"
#include "compiler/shape/program_shape.h"
#include "compiler/support/error.h"
#include "compiler/support/log.h"
#include "compiler/support/text.h"

namespace tamp {
namespace {

std::string read_text(const std::string& name) {
  std::error_code ignored;
  std::ifstream file(name, std::ios::binary);
  if (!file || std::filesystem::is_directory(name, ignored)) throw bad_input(fmt::format("{}: cannot be read", printable(name)));
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

// Writes one numbered file a stage; does nothing without a folder.
class Dump {
 public:
  explicit Dump(std::string folder) : folder_(std::move(folder)) {
    if (folder_.empty()) return;
    std::error_code failure;
    std::filesystem::create_directories(folder_, failure);
    if (failure) throw bad_input(fmt::format("dump folder {}: cannot be created: {}", printable(folder_), failure.message()));
  }
  template <class Printed>
  void operator()(const std::string& stage, const Printed& printed) {
    const int number = next_++;
    if (folder_.empty()) return;
    const std::filesystem::path path = std::filesystem::path(folder_) / fmt::format("{:02}_{}.txt", number, stage);
    std::ofstream file(path, std::ios::binary);
    file << tamp::print(printed);
    file.close();
    if (!file) throw bad_input(fmt::format("{}: cannot be written", printable(path.string())));
  }

 private:
  std::string folder_;
  int next_ = 0;
};

// Milliseconds since the last call, for the one log line of each stage.
class Stopwatch {
 public:
  double lap_ms() {
    const auto now = std::chrono::steady_clock::now();
    return std::chrono::duration<double, std::milli>(now - std::exchange(last_, now)).count();
  }

 private:
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

// `unplaced` receives the graph before the last pass, which gives tensors their places.
Graph run_passes(Graph graph, const std::vector<passes::Pass>& pipeline, Dump& dump, std::optional<Graph>& unplaced) {
  bool placed = false;
  for (const passes::Pass& pass : pipeline) {
    if (&pass == &pipeline.back()) unplaced = graph;
    graph = pass.run(std::move(graph));
    forget_data(graph);
    tamp::verify(graph);
    // Placement may drop rOperators that became views, so the shapes of what is left are no longer the operators' own.
    placed = placed || !graph.buffers.empty();
    if (!placed) ops::verify_shapes(graph);
    spdlog::debug("pass {}: {} rOperators", pass.name, graph.rops.size());
    dump(pass.name, graph);
  }
  return graph;
}

// Whether there can be gangs: their rTasks must all run at the same time. In graph execution, one kernel a phase, they do not.
bool may_have_gangs(const CompileOptions& options) { return options.execution == schedule::Execution::persistent; }

// A gang's words know the run that they were made in, and not the iteration of a loop.
bool has_gangs_in_loops(const Graph& placed) {
  return std::any_of(placed.rops.begin(), placed.rops.end(),
                     [](const ROperator& rop) { return rop.loop >= 0 && std::holds_alternative<Recurrent>(rop.attrs); });
}

// A loop needs lanes to repeat, and a schedule is carried over without them.
void refuse_loops(const CompileOptions& options, const Graph& source, const std::string& model_path) {
  const auto loop = std::find_if(source.rops.begin(), source.rops.end(), [](const ROperator& rop) { return is_of_loop(rop.attrs); });
  const bool is_graph = options.execution == schedule::Execution::graph;
  if (loop == source.rops.end() || (!is_graph && !options.like)) return;
  throw unsupported(fmt::format("{}: node '{}' is a loop of run time, {}", printable(model_path),
                                printable(loop->origin.empty() ? loop->name : loop->origin[0]),
                                is_graph ? "supported: in one persistent kernel (--execution persistent)"
                                         : "supported: with a schedule of its own, not one carried over from another batch or vDevice"));
}

void require_proof(const RProgram& program) {
  std::vector<std::string> violations = schedule::verify(program);
  if (violations.empty() && program.launches) violations = schedule::verify_launches(program);
  if (violations.empty()) return;
  throw InternalError(fmt::format("the verifier refuses the rProgram; this is a bug in tamp:\n  {}", join(violations, "\n  ")));
}

// For -v: asks for all candidates once more.
void log_choices(const RProgram& program, const select::Records* records) {
  if (!spdlog::should_log(spdlog::level::debug)) return;
  const select::Machine machine = select::machine_for(program.graph, program.vdevice, program.precision);
  for (size_t i = 0; i < program.graph.rops.size(); ++i) {
    const ROperator& rop = program.graph.rops[i];
    if (program.rkernels[i].phases.empty()) continue;  // a view
    spdlog::debug("{}: {}", printable(rop.name),
                  select::explain(kernels::families(),
                                  {program.graph, rop, program.vdevice, select::precision_of(program.graph, rop, program.precision)},
                                  machine, records, program.rkernels[i]));
  }
}

std::vector<passes::Pass> pipeline_of(const shape::Setting& setting) {
  std::vector<passes::Pass> pipeline =
      passes::pipeline(shape::estimator(setting), shape::cell_of(setting), shape::graph_estimator(setting),
                       shape::placed_estimator(setting), setting.precision == Precision::tf32, kernels::fusions());
  // In fp32 a model of 16 bits rounds where it says so.
  if (setting.precision != Precision::fp32) pipeline.insert(pipeline.begin(), {"widen_halves", passes::widen_halves});
  // In fp32 and tf32 products of whole numbers are exact, and stay so.
  if (setting.precision == Precision::fp16 || setting.precision == Precision::bf16) {
    const auto scales =
        std::find_if(pipeline.begin(), pipeline.end(), [](const passes::Pass& pass) { return pass.name == "scale_products"; });
    TAMP_CHECK(scales != pipeline.end(), "no pass scale_products");
    pipeline.insert(scales + 1, {"move_scales", passes::move_scales});  // behind the scales that are constant
  }
  return pipeline;
}

// The dimension with several buckets, and how the user called it; null if there is none.
std::pair<std::string, const DimRange*> split_range(const CompileOptions& options) {
  std::vector<std::pair<std::string, const DimRange*>> found;
  for (const auto& [name, range] : options.ranges) {
    if (range.buckets.size() > 1) found.emplace_back("--dim " + printable(name), &range);
  }
  if (options.batches && options.batches->buckets.size() > 1) found.emplace_back("--batch", &*options.batches);
  if (found.empty()) return {};
  if (found.size() > 1)
    throw bad_input("{} and {} have several buckets each; supported: one dimension with several, others as SMALLEST:LARGEST",
                    found[0].first, found[1].first);
  return found[0];
}

// What a kernel that repeats its run needs.
void refuse_generation(const CompileOptions& options, const Graph& source) {
  const auto refuse = [](const char* with) { throw unsupported("--generate: not supported with {}", with); };
  if (options.execution == schedule::Execution::graph) refuse("--execution graph; one persistent kernel repeats the run");
  if (options.batches) refuse("--batch A:B; a run is of one text");
  if (std::any_of(source.rops.begin(), source.rops.end(), [](const ROperator& rop) { return is_of_loop(rop.attrs); }))
    refuse("loops of run time in the model");
}

// Of several programs that make tokens the first is the one that repeats its run.
void require_step(const std::string& model_path, const Graph& source, const Generation& generation, bool is_first) {
  if (!is_first && generation.is_step())
    throw unsupported("{}: --generate: buckets of another dimension than that of the tokens; supported: one program of it (--dim NAME=A:B)",
                      printable(model_path));
  if (!is_first || generation.is_step()) return;
  const Tensor& token = source.tensor(source.inputs[static_cast<size_t>(generation.inputs[0].input)]);
  const std::string length = generation.length < 0 ? "NAME" : source.lengths[static_cast<size_t>(generation.length)].name;
  throw unsupported(
      "{}: --generate: input '{}' {}{}: is the token, supported: the number of one, or buckets of which the first is one token "
      "(--dim {}=1,64)",
      printable(model_path), printable(token.name), name_of(token.dtype), shape_text(token.shape), printable(length));
}

// What the passes will make of recurrent networks, before lengths are followed.
Graph lifted_early(Graph graph) {
  return passes::lift_recurrences(passes::slice_gathers(passes::fold_constants(passes::remove_identities(std::move(graph)))));
}

Graph read_model(const std::string& model_path, const CompileOptions& options, std::optional<Generation>& generation) {
  const auto add_generation = [&](Graph& source) {
    refuse_generation(options, source);
    try {
      Generation found = frontend::add_generation(source, *options.generation);
      if (!generation) generation = std::move(found);  // that of the largest lengths comes first
    } catch (const Error& error) {
      throw Error(error.code(), fmt::format("{}: {}", printable(model_path), error.what()), error.refusals());
    }
  };
  return frontend::read_onnx(model_path, {.dims = options.dims,
                                          .load_weights = true,
                                          .frozen = options.frozen,
                                          .batch = options.batch,
                                          .ranges = options.ranges,
                                          .batches = options.batches,
                                          .lift = lifted_early,
                                          .extend = options.generation ? add_generation : std::function<void(Graph&)>()});
}

Prepared prepare(const std::string& model_path, const CompileOptions& options, Dump& dump) {
  Prepared prepared;
  shape::Setting& setting = prepared.setting;
  setting.vdevice = read_vdevice(options.vdevice);
  setting.narrow_activations = options.narrow_activations;
  setting.gangs = may_have_gangs(options);
  const std::optional<Precision> asked = shape::asked_precision(options.precision, setting.vdevice);
  Stopwatch stopwatch;
  if ((!options.ranges.empty() || options.batches) && options.execution == schedule::Execution::graph)
    throw unsupported("--execution graph: lengths of run time (--dim NAME=A:B, --batch A:B) need the persistent kernel");
  std::optional<Progress> progress(std::in_place, "reads " + printable(model_path));
  prepared.source = read_model(model_path, options, prepared.generation);
  tamp::verify(prepared.source);
  ops::verify_shapes(prepared.source);
  refuse_loops(options, prepared.source, model_path);
  forget_data(prepared.source);
  dump("read", prepared.source);
  spdlog::info("read {}: {} operators, {} tensors ({:.0f} ms)", printable(model_path), prepared.source.rops.size(),
               prepared.source.tensors.size(), stopwatch.lap_ms());
  if (prepared.generation && prepared.generation->is_step()) {
    for (const std::string& line : frontend::describe(prepared.source, *prepared.generation)) spdlog::info("from token to token: {}", line);
  }

  setting.precision = asked ? *asked : shape::own_precision(prepared.source, setting.vdevice);
  setting.of_bytes = shape::is_of_bytes(prepared.source);
  progress.emplace("runs the passes");
  prepared.graph = run_passes(prepared.source, pipeline_of(setting), dump, prepared.unplaced);
  if (setting.gangs && has_gangs_in_loops(prepared.graph)) {
    setting.gangs = false;
    prepared.graph = run_passes(prepared.source, pipeline_of(setting), dump, prepared.unplaced);
  }
  prepared.vdevice = shape::with_final_stages(prepared.graph, setting, shape::program_shape(prepared.graph, setting));
  prepared.graph = shape::narrowed(std::move(prepared.graph), setting, prepared.vdevice);
  forget_data(prepared.source);
  forget_data(prepared.graph);
  shape::log_activations(prepared.graph, setting);
  dump("narrow_activations", prepared.graph);
  spdlog::info("passes: {} rOperators ({:.0f} ms)", prepared.graph.rops.size(), stopwatch.lap_ms());
  return prepared;
}

// Which products of a quantised model are computed in what.
std::string products_text(const RProgram& program) {
  size_t products = 0, bytes = 0, plain = 0;
  std::vector<std::string> floats;
  for (const ROperator& rop : program.graph.rops) {
    bool multiplies = false;
    for_each_step(program.graph, rop, [&](const Graph&, const ROperator& step) {
      multiplies = multiplies || std::holds_alternative<MatMul>(step.attrs) || std::holds_alternative<Conv>(step.attrs);
    });
    if (!multiplies || rop.inputs.empty()) continue;
    ++products;
    if (is_integer(program.graph.tensor(rop.outputs[0]).dtype))
      ++plain;
    else if (is_whole_byte(program.graph.tensor(rop.inputs[0]).dtype))
      ++bytes;
    else
      floats.push_back("'" + printable(rop.name) + "'");
  }
  constexpr size_t kShown = 4;
  const size_t more = floats.size() > kShown ? floats.size() - kShown : 0;
  floats.resize(floats.size() - more);
  return fmt::format("{} of {} products on integer tensor cores, {}in floats: {}{}", bytes, products,
                     plain > 0 ? fmt::format("{} in integers by plain bodies, ", plain) : "", floats.empty() ? "none" : join(floats, ", "),
                     more > 0 ? fmt::format(" and {} more", more) : "");
}

// Says of a quantised model what its network would take in floats (docs/adr/0056): both are estimates of schedules.
void report_quantisation(const Prepared& prepared, const CompileOptions& options, const RProgram& program) {
  std::optional<passes::WithoutQuantisation> floats = passes::without_quantisation(prepared.source);
  if (!floats) return;
  shape::Setting setting = prepared.setting;
  setting.of_bytes = false;
  Dump none("");
  std::optional<Graph> unplaced;
  Graph graph = run_passes(std::move(floats->graph), pipeline_of(setting), none, unplaced);
  const ShapedVDevice vdevice = shape::with_final_stages(graph, setting, shape::program_shape(graph, setting));
  graph = shape::narrowed(std::move(graph), setting, vdevice);
  const schedule::ScheduleOptions scheduling{.policy = schedule::Policy::wavefront_fastest,
                                             .precision = setting.precision,
                                             .gangs = setting.gangs,
                                             .execution = options.execution};
  const double us = schedule::schedule(std::move(graph), vdevice, scheduling).estimated_us;
  constexpr double kAsFast = 1.02;
  const auto level = program.estimated_us > kAsFast * us ? spdlog::level::warn : spdlog::level::info;
  spdlog::log(level, "quantised model: estimated {:.1f} us; the same network in floats would take about {:.1f} us; {}",
              program.estimated_us, us, products_text(program));
}

std::string schedule_of(const CompileOptions& options) {
  return options.schedule_text.empty() ? read_text(options.schedule) : options.schedule_text;
}

// From here on every tensor is placed; schedule() gives every rOperator its rKernel.
RProgram plan(Graph graph, const Prepared& prepared, const CompileOptions& options, const select::Records* records,
              const std::vector<std::string>* forced, Dump& dump) {
  Stopwatch stopwatch;
  const bool persistent = options.execution == schedule::Execution::persistent;  // records were measured in this execution
  const shape::Setting& setting = prepared.setting;
  const auto place = [&, alone = shape::placed_estimator(setting)](Graph unplaced) {
    return shape::narrowed(passes::assign_layout(std::move(unplaced), shape::cell_of(setting), alone), setting, prepared.vdevice);
  };
  const std::optional<Merger> merger = prepared.unplaced ? std::optional(merger_of(*prepared.unplaced, place)) : std::nullopt;
  schedule::StageMeter meter;
  if (options.measure && !has_loops(graph))
    meter = [&](const std::vector<schedule::StageJob>& jobs) { return options.measure(prepared.source, jobs); };
  const schedule::ScheduleOptions scheduling{.policy = options.policy,
                                             .precision = setting.precision,
                                             .records = persistent ? records : nullptr,
                                             .forced = forced,
                                             .share_memory = !options.keep_all && !(options.keep_bounded && passes::has_bounds(graph)),
                                             .gangs = setting.gangs,
                                             .execution = options.execution,
                                             .ios = options.ios,
                                             .like = options.like,
                                             .search_plans = options.search_plans,
                                             .meter = meter ? &meter : nullptr,
                                             .merger = merger ? &*merger : nullptr};
  std::optional<Progress> progress(std::in_place, "schedules for vDevice " + printable(prepared.vdevice.name));
  RProgram program = options.schedule.empty() ? schedule::schedule(std::move(graph), prepared.vdevice, scheduling)
                                              : schedule::read_schedule(schedule_of(options), options.schedule, std::move(graph),
                                                                        prepared.vdevice, scheduling, options.batch);
  if (prepared.generation) schedule::add_token_boundary(program, *prepared.generation);
  if (!program.merges.empty()) dump("merge_convolutions", program.graph);
  dump("rprogram", program);
  spdlog::info("schedule: {} policy on vDevice {} in {}: {} vEUs, {} events, arena {}, estimated {:.1f} us ({:.0f} ms)", program.policy,
               program.vdevice.name, name_of(program.precision), program.lanes.size(), program.events.size(),
               bytes_text(program.memory.arena_bytes), program.estimated_us, stopwatch.lap_ms());
  if (const size_t loops = program.graph.loops.size(); loops > 0)
    spdlog::info("{} loop{} of run time: the estimate counts one iteration of each", loops, loops == 1 ? "" : "s");

  progress.emplace("verifies the rProgram");
  require_proof(program);
  spdlog::info("verified ({:.0f} ms)", stopwatch.lap_ms());
  return program;
}

}  // namespace

Graph read_source(const std::string& model_path, const CompileOptions& options) {
  std::optional<Generation> generation;
  return read_model(model_path, options, generation);
}

CompileOptions at_values(CompileOptions options, const std::vector<int64_t>& values) {
  size_t next = 0;
  for (const auto& [name, range] : options.ranges) options.dims[name] = values.at(next++);
  if (options.batches) options.batch = values.at(next++);
  TAMP_CHECK(next == values.size(), "values of other lengths");
  options.ranges.clear();
  options.batches.reset();
  return options;
}

select::Records read_records(const std::string& name) {
  if (name == "none") return {};
  if (name.empty()) return select::builtin_records();
  return select::parse_records(read_text(name), name);
}

Prepared prepare(const std::string& model_path, const CompileOptions& options) {
  if (const auto [name, range] = split_range(options); range != nullptr)
    throw bad_input("{}: several buckets are several programs, and this command takes one; give it SMALLEST:LARGEST", name);
  Dump dump(options.dump_dir);
  return prepare(model_path, options, dump);
}

RProgram plan(const Prepared& prepared, const CompileOptions& options, const select::Records* records,
              const std::vector<std::string>* forced) {
  Dump dump("");
  return plan(prepared.graph, prepared, options, records, forced, dump);
}

void settle_graph(Prepared& prepared, const CompileOptions& options, const select::Records* records) {
  if (schedule::merges(options.policy)) prepared.graph = plan(prepared, options, records).graph;
  prepared.unplaced.reset();
}

Merger merger_of(const Graph& unplaced, std::function<Graph(Graph unplaced)> place) {
  return {passes::mergeable(unplaced), [&unplaced, place = std::move(place)](const std::vector<Merge>& merges) {
            Graph graph = passes::merge_convolutions(unplaced, merges);
            tamp::verify(graph);
            ops::verify_shapes(graph);
            return place ? place(std::move(graph)) : passes::assign_layout(std::move(graph));
          }};
}

namespace {

Compiled compile_one(const std::string& model_path, const CompileOptions& options, const select::Records& records, bool is_first = true) {
  Dump dump(options.dump_dir);
  Prepared prepared = prepare(model_path, options, dump);
  if (prepared.generation) require_step(model_path, prepared.source, *prepared.generation, is_first);
  Compiled compiled;
  Graph graph = std::move(prepared.graph);
  compiled.program = plan(std::move(graph), prepared, options, &records, nullptr, dump);
  log_choices(compiled.program, options.execution == schedule::Execution::persistent ? &records : nullptr);
  report_quantisation(prepared, options, compiled.program);
  compiled.source = std::move(prepared.source);
  return compiled;
}

// A dimension that has one value in this bucket is no length of its program yet, and becomes one, behind the others.
void add_lengths(RProgram& program, const RProgram& largest, int64_t bucket) {
  for (const Length& length : largest.graph.lengths) {
    if (length_named(program.graph, length.name) < 0) program.graph.lengths.push_back({length.name, bucket, bucket, length.step});
  }
  if (!program.guards.empty()) return;
  for (const RKernel& rkernel : program.rkernels) program.guards.emplace_back(rkernel.phases.size());
}

// Error (not supported) if the ports of a bucket are not those of the largest, cut at the bucket's values.
void require_ports(const char* kind, const RProgram& program, const RProgram& largest, const std::vector<TensorId>& ports,
                   const std::vector<TensorId>& all, const std::vector<LengthAxes>& axes) {
  TAMP_CHECK(ports.size() == all.size() && axes.size() == all.size(), "ports of a bucket");
  for (size_t i = 0; i < all.size(); ++i) {
    const Tensor &own = program.graph.tensor(ports[i]), &of_all = largest.graph.tensor(all[i]);
    Shape wanted = of_all.shape;
    for (const LengthAxis& axis : axes[i]) {
      std::vector<int64_t> values;
      for (const Length& length : largest.graph.lengths) values.push_back(bucket_largest(program, length.name));
      wanted[static_cast<size_t>(axis.dim)] = value_of(largest.graph.products, axis.extent, values);
    }
    if (own.dtype == of_all.dtype && own.shape == wanted) continue;
    throw unsupported("{} '{}': is {}{} in one bucket, where {}{} was expected", kind, printable(of_all.name), name_of(own.dtype),
                      shape_text(own.shape), name_of(of_all.dtype), shape_text(wanted));
  }
}

}  // namespace

Buckets buckets_of(const CompileOptions& options) {
  const auto [name, range] = split_range(options);
  if (range == nullptr) return {{options}, {}};
  if (!options.schedule.empty() && options.schedule_text.empty())
    throw bad_input("{}: several buckets are several programs, and a schedule is of one", name);
  Buckets buckets{{}, range->buckets};
  int64_t smallest = range->smallest;
  for (const int64_t largest : range->buckets) {
    CompileOptions one = options;
    if (!options.dump_dir.empty()) one.dump_dir = (std::filesystem::path(options.dump_dir) / fmt::format("up_to_{}", largest)).string();
    // A bucket of one value is a program of fixed size, but for the largest: its ports say what varies in all.
    const bool is_fixed = smallest == largest && largest != range->buckets.back();
    if (range == (options.batches ? &*options.batches : nullptr)) {
      one.batches = is_fixed ? std::nullopt : std::optional<DimRange>({smallest, {largest}, false, range->step});
      one.batch = is_fixed ? largest : 0;
    } else {
      const std::string symbol = std::find_if(options.ranges.begin(), options.ranges.end(), [&, of = range](const auto& entry) {
                                   return &entry.second == of;
                                 })->first;
      one.ranges.erase(symbol);
      if (is_fixed)
        one.dims[symbol] = largest;
      else
        one.ranges[symbol] = {smallest, {largest}, false, range->step};
    }
    buckets.options.push_back(std::move(one));
    if (!range->chosen) smallest = largest + range->step;
  }
  return buckets;
}

RProgram join_buckets(std::vector<RProgram> programs, const std::vector<int64_t>& largest) {
  RProgram whole = std::move(programs.back());
  programs.pop_back();
  if (programs.empty()) return whole;
  Graph& graph = whole.graph;
  for (size_t b = 0; b < programs.size(); ++b) {
    RProgram& smaller = programs[b];
    add_lengths(smaller, whole, largest[b]);
    require_ports("input", smaller, whole, smaller.graph.inputs, graph.inputs, graph.input_axes);
    require_ports("output", smaller, whole, smaller.graph.outputs, graph.outputs, graph.output_axes);
  }
  for (Length& length : graph.lengths)
    length.smallest = programs[0].graph.lengths[static_cast<size_t>(length_named(programs[0].graph, length.name))].smallest;
  whole.smaller = std::move(programs);
  schedule::share_memory(whole);
  require_proof(whole);
  for (const RProgram& smaller : whole.smaller) require_proof(smaller);
  if (const std::vector<std::string> violations = schedule::verify_apart(whole); !violations.empty())
    throw InternalError(fmt::format("the verifier refuses the programs together; this is a bug in tamp:\n  {}", join(violations, "\n  ")));
  return whole;
}

namespace {

constexpr size_t kMostChosen = 4;
constexpr double kWorthChoosing = 0.87;  // of the time of the next larger program

// The range that buckets may be chosen for, or null.
DimRange* range_to_choose(CompileOptions& options) {
  const bool is_of_one_program = options.generation || !options.schedule.empty() || !options.schedule_text.empty() ||
                                 options.like != nullptr || options.measure != nullptr || !options.dump_dir.empty() || options.keep_all;
  if (!options.chooses_buckets || is_of_one_program || options.ranges.size() + (options.batches ? 1 : 0) != 1) return nullptr;
  DimRange& range = options.batches ? *options.batches : options.ranges.begin()->second;
  return range.buckets.size() == 1 ? &range : nullptr;
}

// Halves the largest value as long as a program for what is left gains enough. Each step is a whole compilation, so it ends with the first
// that does not.
Compiled compile_chosen(const std::string& model_path, CompileOptions options, DimRange& range, const select::Records& records) {
  const auto compiled_up_to = [&](int64_t largest) {
    CompileOptions one = options;
    DimRange& own = one.batches ? *one.batches : one.ranges.begin()->second;
    own.buckets = {largest};
    return compile_one(model_path, one, records);
  };
  Compiled compiled = compile_one(model_path, options, records);
  std::vector<RProgram> programs;
  programs.push_back(std::move(compiled.program));
  while (programs[0].vdevice.arch != "cpu" && programs.size() < kMostChosen) {
    const int64_t half = range.buckets[0] / 2 / range.step * range.step;
    if (half < std::max<int64_t>(range.smallest, 2)) break;
    RProgram smaller = compiled_up_to(half).program;
    if (smaller.estimated_us > kWorthChoosing * programs[0].estimated_us) break;
    range.buckets.insert(range.buckets.begin(), half);
    range.chosen = true;
    programs.insert(programs.begin(), std::move(smaller));
  }
  compiled.program = join_buckets(std::move(programs), range.buckets);
  compiled.options = std::move(options);
  return compiled;
}

}  // namespace

Compiled compile(const std::string& model_path, const CompileOptions& given) {
  const select::Records records = read_records(given.records);
  CompileOptions options = given;
  if (DimRange* const range = range_to_choose(options)) return compile_chosen(model_path, options, *range, records);
  const Buckets buckets = buckets_of(options);
  std::vector<RProgram> programs;
  Compiled compiled;
  for (const CompileOptions& one : buckets.options) {
    compiled = compile_one(model_path, one, records, programs.empty());
    programs.push_back(std::move(compiled.program));
  }
  compiled.program = join_buckets(std::move(programs), buckets.largest);
  compiled.options = std::move(options);
  return compiled;
}

}  // namespace tamp
