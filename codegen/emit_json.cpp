// NAME.rprogram.json: the rProgram for tools; `tamp inspect DIR` prints it.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "codegen/emit.h"
#include "compiler/ir/flops.h"
#include "compiler/ir/fused.h"
#include "compiler/support/error.h"
#include "compiler/support/text.h"
#include "compiler/support/version.h"

namespace tamp::codegen {
namespace {

using nlohmann::ordered_json;

ordered_json ports_json(const Graph& graph, const std::vector<TensorId>& ports, const std::vector<LengthAxes>& axes) {
  ordered_json out = ordered_json::array();
  for (const TensorId id : ports) {
    const Tensor& tensor = graph.tensor(id);
    out.push_back({{"name", tensor.name}, {"dtype", name_of(tensor.dtype)}, {"shape", tensor.shape}});
    if (axes.empty()) continue;
    ordered_json& varying = out.back()["axes"] = ordered_json::array();
    for (const LengthAxis& axis : factors_of(graph, axes[out.size() - 1])) {
      const Extent& e = axis.extent;
      varying.push_back({{"dim", axis.dim}, {"length", e.length}, {"times", e.times}, {"plus", e.plus}, {"over", e.over}});
    }
  }
  return out;
}

// The outputs. A padded output has the name and axis of the output that counts its valid entries; one that may stay in place, its input.
ordered_json outputs_json(const Plan& plan) {
  const Graph& graph = plan.program.graph;
  ordered_json out = ports_json(graph, graph.outputs, graph.output_axes);
  for (const PaddedOutput& padded : graph.padded) {
    ordered_json& port = out[static_cast<size_t>(padded.output)];
    port["count"] = padded.count;
    port["count_axis"] = padded.axis;
  }
  const std::vector<int64_t>& kept = plan.in_place;
  for (size_t i = 0; i < kept.size(); ++i) {
    if (kept[i] >= 0) out[i]["in_place"] = kept[i];
  }
  return out;
}

struct Use {
  std::set<size_t> veus;
  int64_t waits = 0;
  double begin_us = -1, end_us = -1;  // expected; -1: not known
};

std::vector<Use> uses_of_lanes(const Plan& plan) {
  const RProgram& program = plan.program;
  const auto& planned = plan.facts.planned;
  std::vector<Use> uses(program.graph.rops.size());
  for (size_t veu = 0; veu < program.lanes.size(); ++veu) {
    for (size_t i = 0; i < program.lanes[veu].size(); ++i) {
      const Instruction& instruction = program.lanes[veu][i];
      if (!instruction.rtask.rop.valid()) continue;
      Use& use = uses[instruction.rtask.rop.index()];
      use.veus.insert(veu);
      use.waits += static_cast<int64_t>(instruction.waits.size());
      if (planned.empty()) continue;
      const PlannedSpan& span = planned[veu][i];
      use.begin_us = use.begin_us < 0 ? span.begin_us : std::min(use.begin_us, span.begin_us);
      use.end_us = std::max(use.end_us, span.end_us);
    }
  }
  return uses;
}

// For tools that fit costs to traces (test/bench/calibrate.py): the body's shape, its arguments that are plain numbers, and what one rTask
// moves according to the cost model.
ordered_json phases_json(const RKernel& rkernel) {
  ordered_json out = ordered_json::array();
  for (const Phase& phase : rkernel.phases) {
    ordered_json shape = ordered_json::object(), numbers = ordered_json::object();
    for (const auto& [name, text] : phase.template_args) shape[name] = text;
    for (const Arg& arg : phase.args) {
      if (const auto* number = std::get_if<int64_t>(&arg.value.value)) numbers[arg.name] = *number;
    }
    const int64_t input_bytes = phase.boxes ? phase.boxes->boxes_per_split * phase.boxes->copied_bytes() : 0;
    out.push_back({{"body", phase.body},
                   {"template", shape},
                   {"rtasks", phase.rtasks},
                   {"input_bytes", input_bytes},
                   {"estimated_cycles", phase.cost.calibrated_cycles},
                   {"rtask_bytes", phase.cost.activation_bytes},
                   {"rtask_weight_bytes", phase.cost.weight_bytes},
                   {"numbers", numbers}});
  }
  return out;
}

// The bytes that all rTasks of a rOperator move together.
struct Moved {
  double activations = 0, weights = 0;
};

// The costs of a gang are only the time of its steps. So its activations are counted from its cells, and each of its weights once, since a
// gang keeps them on chip.
Moved moved_by_gang(const RProgram& program, size_t i) {
  const ROperator& rop = program.graph.rops[i];
  const Recurrent& recurrent = std::get<Recurrent>(rop.attrs);
  Moved moved;
  for (const RecurrentCell& cell : recurrent.cells) {
    const int64_t input = cell.x < 0 ? recurrent.cells.at(static_cast<size_t>(cell.x_cell)).hidden
                                     : program.graph.tensor(rop.inputs.at(static_cast<size_t>(cell.x))).shape.back();
    moved.activations += 4 * static_cast<double>(cell.steps * recurrent.batch * (input + cell.hidden));
  }
  for (const WeightBlob& blob : program.weights) {
    if (blob.rop == ROperatorId(static_cast<int64_t>(i))) moved.weights += static_cast<double>(blob.bytes);
  }
  return moved;
}

Moved moved_by(const RProgram& program, size_t i) {
  if (program.rkernels[i].gang) return moved_by_gang(program, i);
  Moved moved;
  for (const Phase& phase : program.rkernels[i].phases) {
    const auto n = static_cast<double>(phase.rtasks);
    moved.activations += phase.cost.activation_bytes * n;
    moved.weights += phase.cost.weight_bytes * n;
  }
  return moved;
}

ordered_json numbers_json(const std::vector<ROperatorId>& rops) {
  ordered_json out = ordered_json::array();
  for (const ROperatorId rop : rops) out.push_back(rop.value);
  return out;
}

ordered_json rops_json(const Plan& plan, const SourceLines& lines) {
  const RProgram& program = plan.program;
  const std::vector<Use> uses = uses_of_lanes(plan);
  const auto& producers = plan.facts.producers;
  ordered_json out = ordered_json::array();
  for (size_t i = 0; i < program.graph.rops.size(); ++i) {
    const ROperator& rop = program.graph.rops[i];
    const RKernel& rkernel = program.rkernels[i];
    const Moved moved = moved_by(program, i);
    ordered_json bodies = ordered_json::array();
    for (const Phase& phase : rkernel.phases) bodies.push_back(phase.body);
    out.push_back({{"name", rop.name},
                   {"op", title_of(rop)},
                   {"origin", rop.origin},
                   {"after", producers.empty() ? ordered_json::array() : numbers_json(producers[i])},
                   {"rkernel", rkernel.name},
                   {"chosen_by", rkernel.measured ? "record" : "model"},
                   {"bodies", bodies},
                   {"phases", phases_json(rkernel)},
                   {"dtype", name_of(program.graph.tensor(rop.outputs[0]).dtype)},
                   {"shape", program.graph.tensor(rop.outputs[0]).shape},
                   {"gang", rkernel.gang},
                   {"line", rkernel.phases.empty() ? 0 : lines.arguments[plan.first_record[i]]},
                   {"estimated_us", std::max(0.0, uses[i].end_us - uses[i].begin_us)},
                   {"rtasks", rkernel.rtasks()},
                   {"veus", uses[i].veus.size()},
                   {"waits", uses[i].waits},
                   {"flops", rkernel.phases.empty() ? 0 : flops_of(program.graph, rop)},
                   {"bytes", moved.activations},
                   {"weight_bytes", moved.weights}});
    if (!plan.facts.signatures.empty()) out.back()["signature"] = plan.facts.signatures[i];
  }
  return out;
}

ordered_json lanes_json(const RProgram& program) {
  ordered_json lanes = ordered_json::array();
  for (const auto& lane : program.lanes) {
    ordered_json out = ordered_json::array();
    for (const Instruction& instruction : lane) {
      ordered_json waits = ordered_json::array();
      for (const EventId event : instruction.waits) waits.push_back(event.value);
      out.push_back({{"rop", instruction.rtask.rop.value},
                     {"phase", instruction.rtask.phase},
                     {"index", instruction.rtask.index},
                     {"waits", waits},
                     {"signal", instruction.signal.value}});
      if (instruction.turn == Turn::none) continue;
      out.back()["turn"] = instruction.turn == Turn::enter ? "enter" : "repeat";
      out.back()["loop"] = program.graph.loops[static_cast<size_t>(instruction.loop)].name;
    }
    lanes.push_back(std::move(out));
  }
  return lanes;
}

// The parts of the arena under the names that NAME.cu gives them, for tools that draw them.
ordered_json arena_json(const RProgram& program) {
  ordered_json out = ordered_json::array();
  for (const ArenaPart& part : arena_parts(program)) {
    out.push_back({{"offset", part.offset},
                   {"bytes", part.bytes},
                   {"what", part.what.empty() ? "tensors" : part.what},
                   {"tensors", part.tensors},
                   {"made_by", numbers_json(part.made_by)},
                   {"needed_by", numbers_json(part.needed_by)}});
  }
  return out;
}

// Per lane: begin and end of each of its instructions, in nanoseconds.
ordered_json planned_json(const Plan& plan) {
  ordered_json out = ordered_json::array();
  for (const auto& lane : plan.facts.planned) {
    ordered_json times = ordered_json::array();
    for (const PlannedSpan& span : lane) {
      times.push_back(std::llround(span.begin_us * 1e3));
      times.push_back(std::llround(span.end_us * 1e3));
    }
    out.push_back(std::move(times));
  }
  return out;
}

ordered_json launches_json(const RProgram& program) {
  ordered_json out = ordered_json::array();
  if (!program.launches) return out;
  for (const PhaseLaunch& launch : *program.launches)
    out.push_back({{"rop", launch.rop.value},
                   {"phase", launch.phase},
                   {"after", launch.after},
                   {"stream", launch.stream},
                   {"dependent", launch.dependent}});
  return out;
}

ordered_json origin_json(const std::optional<ModelOrigin>& origin) {
  if (!origin) return nullptr;
  ordered_json out = {{"content", fmt::format("{:016x}", origin->content)}, {"dims", origin->dims}};
  const auto range_json = [](const DimRange& range) {
    ordered_json json = {{"smallest", range.smallest}, {"buckets", range.buckets}};
    if (range.chosen) json["chosen"] = true;
    if (range.step != 1) json["step"] = range.step;
    return json;
  };
  for (const auto& [name, range] : origin->ranges) out["ranges"][name] = range_json(range);
  if (origin->batches) out["batches"] = range_json(*origin->batches);
  if (!origin->frozen.empty()) out["frozen"] = origin->frozen;
  if (origin->batch != 0) out["batch"] = origin->batch;
  if (!origin->narrow_activations) out["activations"] = "fp32";
  if (!origin->generation.empty()) out["generation"] = ordered_json::parse(origin->generation);
  return out;
}

// By their numbers in the lists of inputs and outputs.
ordered_json generation_json(const RProgram& program) {
  constexpr const char* kAdvances[] = {"token", "position", "mark_position", "mark_token"};
  const Generation& g = *program.generation;
  ordered_json out = {{"boundary", program.boundary.value},
                      {"words", g.words},
                      {"places", g.places},
                      {"rows", g.rows},
                      {"stops", g.stops},
                      {"scores", g.scores},
                      {"token", g.token},
                      {"amounts", g.amounts},
                      {"draw", g.draw},
                      {"inputs", ordered_json::array()},
                      {"feeds", ordered_json::array()}};
  for (const Advanced& a : g.inputs) {
    out["inputs"].push_back({{"input", a.input}, {"is", kAdvances[static_cast<int>(a.advance)]}, {"element", a.element}, {"plus", a.plus}});
    if (a.is_each) out["inputs"].back()["each"] = true;
    if (a.is_last) out["inputs"].back()["last"] = true;
  }
  out["held"] = held_inputs(program);
  for (const Feed& feed : g.feeds) out["feeds"].push_back({{"output", feed.output}, {"input", feed.input}});
  return out;
}

// Names come from the model and need not be UTF-8; what is not UTF-8 is replaced.
std::string text_of(const ordered_json& object) {
  return object.dump(1, ' ', /*ensure_ascii=*/true, ordered_json::error_handler_t::replace) + "\n";
}

ordered_json program_json(const Plan& plan, uint64_t weights_hash, const SourceLines& lines, const std::vector<OutputFile>& files) {
  const RProgram& program = plan.program;
  TAMP_CHECK(plan.facts.producers.empty() || plan.facts.producers.size() == program.rkernels.size(), "producers of another rProgram");
  TAMP_CHECK(plan.facts.planned.empty() || plan.facts.planned.size() == program.lanes.size(), "planned times of another rProgram");
  const ShapedVDevice& d = program.vdevice;
  ordered_json events = ordered_json::array();
  int64_t waits = 0;
  for (const Event& event : program.events) events.push_back({{"name", event.name}, {"count", event.count}});
  for (const auto& lane : program.lanes) {
    for (const Instruction& instruction : lane) waits += static_cast<int64_t>(instruction.waits.size());
  }
  ordered_json prints = ordered_json::object();
  for (const OutputFile& file : files) prints[file.name] = file.print;
  ordered_json out = {
      {"name", plan.options.name},
      {"source", plan.options.source_name},
      {"tamp", version()},
      {"options", plan.options.invocation},
      {"model", origin_json(plan.options.origin)},
      {"files", prints},
      {"vdevice", {{"name", d.name}, {"arch", d.arch}, {"veus", d.veus()}, {"threads", plan.threads()}, {"smem_bytes", d.smem_bytes}}},
      {"precision", name_of(program.precision)},
      {"policy", program.policy},
      {"execution", program.launches ? "graph" : "persistent"},
      {"estimated_us", program.estimated_us},
      {"depth", program.depth},
      {"arena_bytes", program.memory.arena_bytes},
      {"weight_bytes", program.weight_bytes},
      {"structure", fmt::format("{:016x}", plan.structure)},
      {"weights_hash", fmt::format("{:016x}", weights_hash)},
      {"embedded_weights", plan.options.embed_weights},
      {"inputs", ports_json(program.graph, program.graph.inputs, program.graph.input_axes)},
      {"outputs", outputs_json(plan)},
      {"waits", waits},
      {"rops", rops_json(plan, lines)},
      {"events", events},
      {"lanes", lanes_json(program)},
      {"lane_lines", lines.lane},
      {"planned_ns", planned_json(plan)},
      {"arena", arena_json(program)},
      {"launches", launches_json(program)},
  };
  if (!plan.facts.schedule.empty()) out["schedule"] = ordered_json::parse(plan.facts.schedule);
  if (program.generation) out["generation"] = generation_json(program);
  if (plan.has_lengths()) {
    ordered_json& lengths = out["lengths"] = ordered_json::array();
    for (const Length& length : program.graph.lengths) {
      lengths.push_back({{"name", length.name}, {"smallest", length.smallest}, {"largest", length.largest}});
      if (length.step != 1) lengths.back()["step"] = length.step;
    }
  }
  return out;
}

}  // namespace

std::string rprogram_json(const Plan& plan, uint64_t weights_hash, const SourceLines& lines, const std::vector<OutputFile>& files) {
  ordered_json out = program_json(plan, weights_hash, lines, files);
  for (size_t b = 0; b < plan.smaller.size(); ++b) out["smaller"].push_back(program_json(plan.smaller[b], 0, lines.smaller[b], {}));
  return text_of(out);
}

std::string json_with_weights(const std::string& path, uint64_t weights_hash, const EmitOptions& options, const OutputFile& file) {
  std::ifstream in(path, std::ios::binary);
  ordered_json out = ordered_json::parse(in, nullptr, /*allow_exceptions=*/false);
  if (!out.is_object() || !out.contains("files") || !out["files"].is_object())
    throw bad_input(fmt::format("{}: is not what tamp writes", printable(path)));
  out["source"] = options.source_name;
  out["model"] = origin_json(options.origin);
  out["files"][file.name] = file.print;
  out["weights_hash"] = fmt::format("{:016x}", weights_hash);
  return text_of(out);
}

}  // namespace tamp::codegen
