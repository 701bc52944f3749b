#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "codegen/emit.h"
#include "codegen/weights.h"
#include "compiler/ir/in_place.h"
#include "compiler/ir/over_inputs.h"
#include "compiler/support/error.h"
#include "compiler/support/text.h"
#include "kernels/vdevice/numbers.cuh"

namespace tamp::codegen {
namespace {

void refuse_too_large(const RProgram& program, size_t records) {
  constexpr size_t kLimit = 65000;  // the limit of the 16-bit fields of rk::Instruction
  if (records > kLimit || program.events.size() > kLimit) {
    throw unsupported(fmt::format("{}: {} rOperators and {} events; one rProgram holds at most {} of each", printable(program.graph.name),
                                  records, program.events.size(), kLimit));
  }
  constexpr size_t kMostLoops = 128;  // their words are in the control block
  if (program.graph.loops.size() > kMostLoops)
    throw unsupported(fmt::format("{}: {} loops and branches of run time; supported: up to {}", printable(program.graph.name),
                                  program.graph.loops.size(), kMostLoops));
  const size_t ports = program.graph.inputs.size() + program.graph.outputs.size();
  const size_t extents = program.extents.size();
  if (ports + extents > static_cast<size_t>(rk::kMaxPorts) && extents > 0)
    throw unsupported(fmt::format("{}: {} inputs and outputs, and {} extents of run time; supported: up to {} together",
                                  printable(program.graph.name), ports, extents, rk::kMaxPorts));
  if (ports > static_cast<size_t>(rk::kMaxPorts))
    throw unsupported(fmt::format("{}: {} inputs and outputs; supported: up to {}", printable(program.graph.name), ports, rk::kMaxPorts));
}

}  // namespace

const Phase& Plan::phase(size_t record) const {
  return program.rkernels[records[record].rop.index()].phases[static_cast<size_t>(records[record].phase)];
}

int64_t Plan::threads() const {
  const bool has_words = program.memory.words_bytes > 0;
  return program.vdevice.threads() + (many_registers || has_words ? kIdleThreads : 0);
}

bool is_over_inputs(const Plan& plan, size_t record) {
  return !plan.program.launches && tamp::is_over_inputs(plan.phase(record).work_bytes, plan.program.vdevice);
}

namespace {

const ProgramFacts& facts_of(const EmitOptions& options, size_t which) {
  static const ProgramFacts none;
  return options.facts.empty() ? none : options.facts.at(which);
}

// All but weights and structure.
Plan plan_of(const RProgram& program, const EmitOptions& options, size_t which) {
  Plan plan{.program = program, .options = options, .facts = facts_of(options, which), .records = name_records(program)};
  refuse_too_large(program, plan.records.size());

  size_t rows = 0;
  for (const RKernel& rkernel : program.rkernels) {
    plan.first_record.push_back(rows);
    rows += rkernel.phases.size();
  }

  const ShapedVDevice& d = program.vdevice;
  Names names;
  for (const Event& event : program.events) plan.event_symbols.push_back(names.unique("e_" + event.name));

  std::map<std::pair<std::string, std::vector<std::pair<std::string, std::string>>>, uint16_t> number;
  for (size_t r = 0; r < plan.records.size(); ++r) {
    const Phase& phase = plan.phase(r);
    const auto [at, added] = number.emplace(std::pair{phase.body, phase.template_args}, static_cast<uint16_t>(plan.bodies.size()));
    if (added)
      plan.bodies.push_back({&phase, fmt::format("{}_{}", phase.body.substr(std::string_view("rk::").size()), plan.bodies.size())});
    plan.body_of_record.push_back(at->second);
    plan.map_of_record.push_back(plan.phase(r).boxes ? static_cast<int64_t>(plan.maps.size()) : -1);
    if (plan.phase(r).boxes) plan.maps.push_back(r);
    const int64_t bytes = plan.phase(r).work_bytes;
    plan.has_over_inputs |= is_over_inputs(plan, r);
    plan.products_over_inputs |= is_over_inputs(plan, r) && plan.phase(r).boxes;
    plan.many_registers |= plan.phase(r).many_registers && !program.launches;
    plan.work_bytes = std::max(plan.work_bytes, is_over_inputs(plan, r) ? bytes - d.input_stages * d.input_stage_bytes : bytes);
  }
  plan.work_bytes = (plan.work_bytes + 127) / 128 * 128;
  const ShapedVDevice most = program.launches ? over_inputs(d) : d;  // a single kernel may also use the input stages' room
  TAMP_CHECK(plan.work_bytes <= most.work_beside_inputs(), "a body wants more shared memory than the vDevice has");

  plan.blob_of_record.resize(plan.records.size());
  plan.blob_of_constant.assign(program.graph.tensors.size(), -1);
  for (size_t b = 0; b < program.weights.size(); ++b) {
    const WeightBlob& blob = program.weights[b];
    if (blob.constant.valid())
      plan.blob_of_constant[blob.constant.index()] = static_cast<int64_t>(b);
    else
      plan.blob_of_record[plan.first_record[blob.rop.index()] + static_cast<size_t>(blob.phase)].push_back(static_cast<int64_t>(b));
  }
  return plan;
}

}  // namespace

std::vector<std::string> bucket_texts(const RProgram& program) {
  std::vector<std::string> texts;
  if (program.smaller.empty()) return texts;
  const auto add = [&](const RProgram& bucket) {
    const std::string& name = program.graph.lengths.at(bucket_length(program)).name;
    texts.push_back(fmt::format("{} up to {}, estimated {:.1f} us", comment(name), bucket_largest(bucket, name), bucket.estimated_us));
  };
  for (const RProgram& smaller : program.smaller) add(smaller);
  add(program);
  return texts;
}

Plan make_plan(const RProgram& program, const EmitOptions& options) {
  Plan plan = plan_of(program, options, 0);
  const auto space_of = [&](const RProgram& bucket) {
    return fmt::format("up_to_{}", bucket_largest(bucket, program.graph.lengths.at(bucket_length(program)).name));
  };
  plan.in_place = inputs_for_outputs(program.graph);
  for (const RProgram& smaller : program.smaller) {
    plan.smaller.push_back(plan_of(smaller, options, plan.smaller.size() + 1));
    const std::vector<int64_t> kept = inputs_for_outputs(smaller.graph);
    for (size_t o = 0; o < kept.size(); ++o) plan.in_place[o] = kept[o] == plan.in_place[o] ? kept[o] : -1;
    plan.smaller.back().space = space_of(smaller);
  }
  for (Plan& smaller : plan.smaller) smaller.in_place = plan.in_place;
  if (!plan.smaller.empty()) plan.space = space_of(program);
  plan.structure = structure_of(plan);
  plan.embeds_weights = options.embed_weights;
  if (plan.embeds_weights) plan.weights = gather_weights(program);
  return plan;
}

std::string describe(const Tensor& tensor) { return name_of(tensor.dtype) + shape_text(tensor.shape); }

}  // namespace tamp::codegen
