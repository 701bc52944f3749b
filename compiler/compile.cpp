// The stages of the compiler in order. Every stage is a function from values to a value; between them the graph is
// verified, and printed if the user asked for dumps: 00_read.txt, 01_<pass>.txt, ..., NN_rprogram.txt.
#include "compiler/compile.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <limits>
#include <memory>
#include <optional>
#include <sstream>
#include <system_error>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "compiler/frontend/onnx_reader.h"
#include "compiler/ir/estimator.h"
#include "compiler/ops/ops.h"
#include "compiler/passes/passes.h"
#include "compiler/passes/place/assign_layout.h"
#include "compiler/passes/place/merge_convolutions.h"
#include "compiler/passes/place/narrow_activations.h"
#include "compiler/passes/place/value_bounds.h"
#include "compiler/passes/tidy/widen_halves.h"
#include "compiler/schedule/choose.h"
#include "compiler/schedule/schedule_file.h"
#include "compiler/select/explain.h"
#include "compiler/select/fit_vdevice.h"
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

// The precision of a model in f16 or bf16, on a vDevice that has it; else the vDevice's own. The frontend computes operators that exist in
// f32 only between casts, so that a third to a half of such a model's results have 16 bits.
Precision own_precision(const Graph& model, const VDevice& vdevice) {
  if (vdevice.default_precision == Precision::fp32) return Precision::fp32;
  constexpr size_t kShare = 4;
  size_t all = 0, f16 = 0, bf16 = 0;
  for (const Tensor& tensor : model.tensors) {
    if (tensor.role != Role::activation || !is_float(tensor.dtype)) continue;
    ++all;
    f16 += tensor.dtype == DType::f16 ? 1 : 0;
    bf16 += tensor.dtype == DType::bf16 ? 1 : 0;
  }
  if (f16 > 0 && kShare * f16 >= all && f16 >= bf16 && vdevice.fp16) return Precision::fp16;
  return bf16 > 0 && kShare * bf16 >= all && vdevice.bf16 ? Precision::bf16 : vdevice.default_precision;
}

// None where no precision is asked for.
std::optional<Precision> asked_precision(const std::string& name, const VDevice& vdevice) {
  if (name.empty()) return std::nullopt;
  if (name == "fp32") return Precision::fp32;
  if (name == "tf32") {
    if (!vdevice.tf32)
      throw unsupported(fmt::format("precision tf32: vDevice '{}' has no tf32 units; supported there: fp32", printable(vdevice.name)));
    return Precision::tf32;
  }
  if (name == "fp16" || name == "bf16") {
    if (!(name == "fp16" ? vdevice.fp16 : vdevice.bf16))
      throw unsupported(fmt::format("precision {}: vDevice '{}' has no {} units", name, printable(vdevice.name), name));
    return name == "fp16" ? Precision::fp16 : Precision::bf16;
  }
  throw bad_input(fmt::format("precision '{}' is not known; known: fp32, tf32, fp16, bf16", printable(name)));
}

// `unplaced` receives the graph before the last pass, which gives tensors their places.
Graph run_passes(Graph graph, const std::vector<passes::Pass>& pipeline, Dump& dump, std::optional<Graph>& unplaced) {
  bool placed = false;
  for (const passes::Pass& pass : pipeline) {
    if (&pass == &pipeline.back()) unplaced = graph;
    graph = pass.run(std::move(graph));
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

// The Estimator for passes. A gang always has the room of the input stages. Where there can be no gangs, recurrences have no estimate, so
// passes do not make any for gangs.
Estimator estimator_for(const VDevice& vdevice, Precision precision, bool gangs) {
  return [with = vdevice.with_inputs(), without = vdevice.without_inputs(), precision, gangs](
             const Graph& graph, const ROperator& rop) -> std::optional<Estimate> {
    const bool is_recurrent = std::holds_alternative<Recurrent>(rop.attrs);
    if (is_recurrent && !gangs) return std::nullopt;
    const bool boxes = !is_recurrent && select::has_boxes(graph, precision);
    return select::estimate(graph, rop, boxes ? with : without, precision);
  };
}

// The same for a placed graph. Where shared memory can be used with boxes and without, the estimates decide.
VDevice fitted_best(const Graph& graph, const VDevice& vdevice, Precision precision, bool gangs) {
  const VDevice fit = select::fitted(graph, vdevice, precision), without = vdevice.without_inputs();
  if (fit.input_stages == 0 || !select::has<Recurrent>(graph)) return fit;
  const auto us = [&](const VDevice& d) { return schedule::one_after_another_us(graph, d, precision, gangs); };
  const double boxes_us = us(fit), without_us = us(without);
  spdlog::debug("shared memory: {:.1f} us with boxes, {:.1f} us without", boxes_us, without_us);
  return boxes_us <= without_us ? fit : without;
}

// Whether all activations may lie in 16 bits.
bool may_narrow(const Prepared& prepared) {
  return prepared.narrow_activations && (prepared.precision == Precision::fp16 || prepared.precision == Precision::bf16);
}
int64_t cell_of(const Prepared& prepared) { return may_narrow(prepared) ? 8 : 4; }  // `cell` of passes/assign_layout.h

// For a placed graph: stores activations in 16 bits wherever there are bodies for that, but for masks (passes/wide_masks.h); in tf32 only
// those of which fp16 keeps all that tf32 keeps (passes/value_bounds.h).
Graph narrowed(Graph graph, const Prepared& prepared) {
  const auto& [precision, vdevice] = std::tie(prepared.precision, prepared.vdevice);
  const bool in_tf32 = prepared.narrow_activations && precision == Precision::tf32 && vdevice.fp16 && vdevice.input_stages > 0;
  const bool has_half_ports = !graph.input_types.empty();
  if (!may_narrow(prepared) && !in_tf32 && !has_half_ports) return graph;
  passes::HalfUse half;
  const DType narrow = precision == Precision::bf16 ? DType::bf16 : DType::f16;
  if (in_tf32) half = passes::half_use(graph, *prepared.norms);
  if (may_narrow(prepared)) half.buffers = passes::holds_no_mask(graph, narrow, *prepared.magnitudes);
  const bool none = in_tf32 && std::find(half.buffers.begin(), half.buffers.end(), true) == half.buffers.end();
  if (none && !has_half_ports) return graph;
  const auto takes = [&](const Graph& placed, const ROperator& rop) {
    if (!may_narrow(prepared) && !in_tf32) return false;
    const Precision own = select::precision_of(placed, rop, precision);
    if (own != precision) {
      const auto is_wide = [&](TensorId id) { return placed.tensor(id).dtype != DType::f16; };
      const std::vector<TensorId> operands = passes::rounded_operands(placed, rop);
      if (!half.rops[static_cast<size_t>(&rop - placed.rops.data())]) return false;
      if (std::any_of(operands.begin(), operands.end(), is_wide)) return false;  // fp16 would not be faster than tf32
    }
    return !select::candidates_in_program(kernels::families(), {placed, rop, vdevice, own}).empty();
  };
  for (size_t b = 0; b < half.largest.size(); ++b) graph.buffers[b].largest = half.largest[b];
  graph = passes::narrow_activations(std::move(graph), narrow, takes, half.buffers);
  for (size_t b = 0; b < half.largest.size(); ++b) {
    if (!graph.buffers[b].narrowed) graph.buffers[b].largest = 0;
  }
  tamp::verify(graph);
  return graph;
}
bool has_narrow(const Graph& placed) {
  return std::any_of(placed.buffers.begin(), placed.buffers.end(), [](const Buffer& buffer) { return buffer.narrowed; });
}

// For a program of small one-tap products: `fit`, or a launch in clusters, whose members can share the k of a product (docs/adr/0038) and
// which has fewer vEUs. Where members do share something, clusters gain more than is estimated: on an H200 swin_t takes 289.0 us in
// clusters and 303.8 without in tf32 (estimated 307 and 312), convnext_tiny 236.3 and 249.8 (268 and 274). So they need only be near by
// estimate.
VDevice best_of_clusters(const Graph& placed, const VDevice& vdevice, const VDevice& fit, const Prepared& trial) {
  if (vdevice.sms_in_clusters == 0 || vdevice.sms < 4) return fit;
  VDevice clusters = vdevice.with_clusters();
  clusters.wide_products = clusters.even_stages = true;
  clusters.voting_waits = fit.voting_waits;
  const auto us = [&](const VDevice& d) {
    Prepared prepared = trial;
    prepared.vdevice = d;
    return schedule::one_after_another_us(narrowed(placed, prepared), d, trial.precision, /*gangs=*/true);
  };
  const double fit_us = us(fit), clusters_us = us(clusters);
  spdlog::debug("clusters: {:.1f} us in clusters, {:.1f} us without", clusters_us, fit_us);
  if (clusters_us < fit_us) return clusters;
  constexpr double kNear = 1.02;
  if (!(clusters_us < kNear * fit_us)) return fit;
  VDevice apart = clusters;  // the same vEUs, which share nothing
  apart.cluster_veus = 1;
  const double apart_us = us(apart);
  spdlog::debug("clusters: {:.1f} us with as many vEUs that share nothing", apart_us);
  return clusters_us < apart_us ? clusters : fit;
}

// For a program in clusters: whether its products lie over the input stages, so that there are more of these.
VDevice best_stages(const Graph& placed, const Prepared& prepared) {
  const VDevice& usual = prepared.vdevice;
  if (usual.cluster_veus == 1 || usual.input_stages_in_clusters == 0) return usual;
  const auto late = [&](const VDevice& d) {
    Prepared trial = prepared;
    trial.vdevice = d;
    return schedule::late_bytes(narrowed(placed, trial), d, trial.precision, /*gangs=*/true);
  };
  const VDevice over = usual.with_products_over_inputs();
  const double usual_late = late(usual), over_late = late(over);
  spdlog::debug("clusters: {:.0f} KB of inputs are late, {:.0f} with products over the input stages", usual_late / 1024, over_late / 1024);
  return over_late < usual_late ? over : usual;
}

// The rings of a placed graph's program. With the longer stages of VDevice::with_long_batches there is one stage less under way, which
// costs 4 to 10 % (on an H200 bert_base_s128 at batch 32 in fp16 2.08 instead of 2.00 ms, vit_b_16 at batch 8 1.17 instead of 1.06). But
// tiles of up to 208 rows can be worth more: bert_base_s128 at batch 8 has its 1024 rows in five tiles, and takes 0.78 instead of 0.83 ms.
VDevice best_rings(const Graph& placed, const VDevice& vdevice, const Prepared& trial, bool gangs) {
  constexpr double kStageIsWorth = 1.07;
  const VDevice fit = fitted_best(placed, vdevice, trial.precision, gangs);
  if (fit.even_stages && !fit.more_tiles && gangs) return best_of_clusters(placed, vdevice, fit, trial);
  if (!fit.more_tiles) return fit;
  if (!may_narrow(trial)) {
    Prepared prepared = trial;
    prepared.vdevice = fit;
    if (!has_narrow(narrowed(placed, prepared))) return fit;
  }
  VDevice longer = vdevice.with_long_batches();
  longer.wide_products = longer.more_tiles = longer.even_stages = true;
  longer.voting_waits = false;
  const auto us = [&](const VDevice& d) {
    Prepared prepared = trial;
    prepared.vdevice = d;
    return schedule::one_after_another_us(narrowed(placed, prepared), d, trial.precision, gangs);
  };
  const double fit_us = us(fit), longer_us = us(longer);
  spdlog::debug("rings: {:.1f} us with {} stages of input, {:.1f} us with {} longer ones", fit_us, fit.input_stages, longer_us,
                longer.input_stages);
  return longer_us * kStageIsWorth < fit_us ? longer : fit;
}

// The PlacedEstimator for assign_layout; none in fp32, whose products have no boxes and read strided operands nearly as fast as others,
// which the estimates do not know: on an H100 deepspeech2 took 352 us with a copy that was to save 21, and 345 without.
PlacedEstimator placed_estimator_for(const VDevice& vdevice, Precision precision, bool gangs) {
  if (precision == Precision::fp32) return {};
  return [with = vdevice.with_inputs(), without = vdevice.without_inputs(), precision, gangs](const Graph& placed, const ROperator& rop) {
    const VDevice& fit = select::has_boxes(placed, precision) ? with : without;
    return schedule::alone_us(placed, rop, select::machine_for(placed, fit, precision), gangs) + fit.edge_us;
  };
}

// Asks once about each graph: passes begin and end with graphs that another one has asked about. Constants count by name, and so does
// what an estimate asks of their values, whether fp16 holds them: in one pipeline a name always stands for the same values.
GraphEstimator remembered(GraphEstimator estimator) {
  const auto known = std::make_shared<std::unordered_map<std::string, double>>();
  return [known, estimator = std::move(estimator)](const Graph& graph) {
    std::string text = print(graph);
    if (const auto at = known->find(text); at != known->end()) return at->second;
    const double us = estimator(graph);
    known->emplace(std::move(text), us);
    return us;
  };
}

// Whether fp16 keeps what the FeedForwards of a program in tf32 keep to themselves.
bool feeds_keep_all(const Graph& placed, const Prepared& prepared) {
  if (prepared.precision != Precision::tf32 || !select::has<FeedForward>(placed)) return true;
  const std::vector<bool> keeps = passes::half_use(placed, *prepared.norms).rops;
  for (size_t i = 0; i < placed.rops.size(); ++i) {
    if (std::holds_alternative<FeedForward>(placed.rops[i].attrs) && !keeps[i]) return false;
  }
  return true;
}

// The GraphEstimator for passes. `trial` is all that is known of the compilation before its graph.
GraphEstimator graph_estimator_for(const VDevice& vdevice, const Prepared& trial, bool gangs) {
  return remembered([vdevice, trial, gangs, alone = placed_estimator_for(vdevice, trial.precision, gangs)](const Graph& unplaced) {
    Prepared prepared = trial;
    Graph placed = passes::assign_layout(unplaced, cell_of(trial), alone);
    prepared.vdevice = best_rings(placed, vdevice, trial, gangs);
    if (!feeds_keep_all(placed, trial)) return std::numeric_limits<double>::infinity();
    // With tiles that fill a round in 16 bits, a product that normalises was slower, though its estimate is lower: partial sums of fp32 are
    // twice the bytes. On an H200 at batch 8 in fp16 bert_base_s128 took 952 us with and 745 without, vit_b_16 1125 and 1070.
    placed = narrowed(std::move(placed), prepared);
    const bool is_narrow = may_narrow(trial) || has_narrow(placed);
    if (prepared.vdevice.more_tiles && is_narrow && select::has<NormalizedMatMul>(unplaced)) return std::numeric_limits<double>::infinity();
    // There are no bodies by moments with such tiles.
    if (prepared.vdevice.more_tiles && select::has<MomentMatMul>(unplaced)) return std::numeric_limits<double>::infinity();
    // Their rows are operands of 16 bits, whatever lies in memory.
    if (trial.precision == Precision::tf32 && !trial.narrow_activations &&
        (select::has<FeedForward>(unplaced) || select::has<SelfAttention>(unplaced)))
      return std::numeric_limits<double>::infinity();
    return schedule::one_after_another_us(placed, prepared.vdevice, trial.precision, gangs);
  });
}

// Whether the second result are numbers about the first, moments or sums, which are fp32 in every precision.
bool keeps_numbers(const ROperator& rop) {
  return std::holds_alternative<MomentMatMul>(rop.attrs) || std::holds_alternative<FeedForward>(rop.attrs) ||
         std::holds_alternative<MomentConv>(rop.attrs) || std::holds_alternative<SummedConv>(rop.attrs);
}

// The rOperators whose results stay in fp32 although activations may lie in 16 bits.
void log_wide_activations(const Prepared& prepared) {
  const Graph& graph = prepared.graph;
  if (prepared.precision == Precision::fp32 || (prepared.precision == Precision::tf32 && !has_narrow(graph))) return;
  std::vector<std::string> wide;
  size_t narrow = 0;
  for (const ROperator& rop : graph.rops) {
    for (const TensorId id : rop.outputs) {
      const Tensor& tensor = graph.tensor(id);
      if (!tensor.place.buffer.valid() || (keeps_numbers(rop) && id != rop.outputs[0])) continue;
      const Buffer& buffer = graph.buffers[tensor.place.buffer.index()];
      if (buffer.kind != BufferKind::arena) continue;
      narrow += buffer.narrowed ? 1 : 0;
      if (buffer.dtype == DType::f32) wide.push_back("'" + printable(rop.name) + "'");
    }
  }
  constexpr size_t kShown = 4;
  const size_t more = wide.size() > kShown ? wide.size() - kShown : 0;
  const std::string in_fp32 = wide.empty() ? "none" : join(std::vector(wide.begin(), wide.end() - static_cast<std::ptrdiff_t>(more)), ", ");
  const Precision precision = prepared.precision == Precision::tf32 ? Precision::fp16 : prepared.precision;
  spdlog::info("activations: {} rOperators' results in {}, in fp32: {}{}", narrow, name_of(precision), in_fp32,
               more > 0 ? fmt::format(" and {} more", more) : "");
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

Prepared prepare(const std::string& model_path, const CompileOptions& options, Dump& dump) {
  const VDevice vdevice = read_vdevice(options.vdevice);
  const std::optional<Precision> asked = asked_precision(options.precision, vdevice);
  Prepared prepared;
  Stopwatch stopwatch;
  std::optional<Progress> progress(std::in_place, "reads " + printable(model_path));
  prepared.source =
      frontend::read_onnx(model_path, {.dims = options.dims, .load_weights = true, .frozen = options.frozen, .batch = options.batch});
  tamp::verify(prepared.source);
  ops::verify_shapes(prepared.source);
  dump("read", prepared.source);
  spdlog::info("read {}: {} operators, {} tensors ({:.0f} ms)", printable(model_path), prepared.source.rops.size(),
               prepared.source.tensors.size(), stopwatch.lap_ms());

  prepared.precision = asked ? *asked : own_precision(prepared.source, vdevice);
  prepared.narrow_activations = options.narrow_activations;
  const bool gangs = may_have_gangs(options);
  std::vector<passes::Pass> pipeline =
      passes::pipeline(estimator_for(vdevice, prepared.precision, gangs), cell_of(prepared), graph_estimator_for(vdevice, prepared, gangs),
                       placed_estimator_for(vdevice, prepared.precision, gangs), prepared.precision == Precision::tf32, kernels::fusions());
  // In fp32 a model of 16 bits rounds where it says so.
  if (prepared.precision != Precision::fp32) pipeline.insert(pipeline.begin(), {"widen_halves", passes::widen_halves});
  progress.emplace("runs the passes");
  prepared.graph = run_passes(prepared.source, pipeline, dump, prepared.unplaced);
  prepared.vdevice = best_rings(prepared.graph, vdevice, prepared, gangs);
  prepared.vdevice = best_stages(prepared.graph, prepared);
  prepared.graph = narrowed(std::move(prepared.graph), prepared);
  log_wide_activations(prepared);
  dump("narrow_activations", prepared.graph);
  spdlog::info("passes: {} rOperators ({:.0f} ms)", prepared.graph.rops.size(), stopwatch.lap_ms());
  return prepared;
}

std::string schedule_of(const CompileOptions& options) {
  return options.schedule_text.empty() ? read_text(options.schedule) : options.schedule_text;
}

// From here on every tensor is placed; schedule() gives every rOperator its rKernel.
RProgram plan(Graph graph, const Prepared& prepared, const CompileOptions& options, const select::Records* records,
              const std::vector<std::string>* forced, Dump& dump) {
  Stopwatch stopwatch;
  const bool persistent = options.execution == schedule::Execution::persistent;  // records were measured in this execution
  const PlacedEstimator alone = placed_estimator_for(read_vdevice(options.vdevice), prepared.precision, may_have_gangs(options));
  const auto place = [&](Graph unplaced) {
    return narrowed(passes::assign_layout(std::move(unplaced), cell_of(prepared), alone), prepared);
  };
  const std::optional<Merger> merger = prepared.unplaced ? std::optional(merger_of(*prepared.unplaced, place)) : std::nullopt;
  schedule::StageMeter meter;
  if (options.measure) meter = [&](const std::vector<schedule::StageJob>& jobs) { return options.measure(prepared.source, jobs); };
  const schedule::ScheduleOptions scheduling{.policy = options.policy,
                                             .precision = prepared.precision,
                                             .records = persistent ? records : nullptr,
                                             .forced = forced,
                                             .share_memory = !options.keep_all && !(options.keep_bounded && passes::has_bounds(graph)),
                                             .gangs = may_have_gangs(options),
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
  if (!program.merges.empty()) dump("merge_convolutions", program.graph);
  dump("rprogram", program);
  spdlog::info("schedule: {} policy on vDevice {} in {}: {} vEUs, {} events, arena {}, estimated {:.1f} us ({:.0f} ms)", program.policy,
               program.vdevice.name, name_of(program.precision), program.lanes.size(), program.events.size(),
               bytes_text(program.memory.arena_bytes), program.estimated_us, stopwatch.lap_ms());

  progress.emplace("verifies the rProgram");
  require_proof(program);
  spdlog::info("verified ({:.0f} ms)", stopwatch.lap_ms());
  return program;
}

}  // namespace

select::Records read_records(const std::string& name) {
  if (name == "none") return {};
  if (name.empty()) return select::builtin_records();
  return select::parse_records(read_text(name), name);
}

Prepared prepare(const std::string& model_path, const CompileOptions& options) {
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

Compiled compile(const std::string& model_path, const CompileOptions& options) {
  Dump dump(options.dump_dir);
  const select::Records records = read_records(options.records);
  Prepared prepared = prepare(model_path, options, dump);
  Compiled compiled;
  Graph graph = std::move(prepared.graph);
  compiled.program = plan(std::move(graph), prepared, options, &records, nullptr, dump);
  log_choices(compiled.program, options.execution == schedule::Execution::persistent ? &records : nullptr);
  compiled.source = std::move(prepared.source);
  return compiled;
}

}  // namespace tamp
