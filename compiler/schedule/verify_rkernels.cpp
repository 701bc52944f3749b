// What an rKernel says of itself (arguments, boxes, ring, shared memory, flags) is a family's word. That it has become no other number
// since, the verifier asks the family: it must list the same rKernel once more for the rOperator as it is placed. Costs are left out, since
// they only choose between rKernels, and so are the words that the schedule chose, which verify_exchange.cpp looks at.
#include <fmt/format.h>

#include <algorithm>

#include "compiler/ops/ops.h"
#include "compiler/schedule/verify_memory.h"
#include "compiler/support/error.h"
#include "compiler/support/text.h"

namespace tamp::schedule {
namespace {

// A test's own families need not list what the test puts together, nor are its operators whole.
bool is_of_catalogue(const kernels::Family& family) {
  const auto& all = kernels::families();
  return std::any_of(all.begin(), all.end(), [&](const kernels::Family& row) { return row.candidates == family.candidates; });
}

const kernels::Family* family_of(const select::Families& families, const RKernel& rkernel) {
  const auto found = std::find_if(families.begin(), families.end(), [&](const auto& family) { return rkernel.family == family.name; });
  return found == families.end() ? nullptr : &*found;
}

// Operators have the operands that they need, and results follow from them. A Concat is left with those operands that are copied; what lies
// in 16 bits is f32 for the operator.
void verify_operators(const RProgram& program, const select::Families& families, Violations& violations) {
  Graph wide = program.graph;
  for (Tensor& tensor : wide.tensors) {
    if (tensor.place.buffer.valid() && wide.buffers[tensor.place.buffer.index()].narrowed) tensor.dtype = DType::f32;
  }
  wide.rops.clear();
  for (size_t i = 0; i < program.graph.rops.size(); ++i) {
    const kernels::Family* const family = family_of(families, program.rkernels[i]);
    const bool is_whole = family != nullptr && is_of_catalogue(*family) && !std::holds_alternative<Concat>(program.graph.rops[i].attrs);
    if (is_whole) wide.rops.push_back(program.graph.rops[i]);
  }
  try {
    ops::verify_shapes(wide);
  } catch (const InternalError& error) {
    violations.add(error.what());
  }
}

// Takes over what was decided after the family listed the rKernel.
void take_decisions(RKernel& listed, const RKernel& own) {
  listed.measured = own.measured;
  for (size_t p = 0; p < std::min(listed.phases.size(), own.phases.size()); ++p) {
    Phase& phase = listed.phases[p];
    phase.cost = own.phases[p].cost;
    phase.words = own.phases[p].words;
    for (size_t k = 0; k < std::min(phase.template_args.size(), own.phases[p].template_args.size()); ++k) {
      if (phase.template_args[k].first == "WORDS") phase.template_args[k].second = own.phases[p].template_args[k].second;
    }
  }
}

const char* differing_field(const Phase& a, const Phase& b) {
  if (a.header != b.header || a.body != b.body || a.template_args != b.template_args || a.args_type != b.args_type) return "body";
  if (a.args != b.args) return "arguments";
  if (a.rtasks != b.rtasks) return "number of rTasks";
  if (a.work_bytes != b.work_bytes) return "shared memory";
  if (a.stores_behind_boxes != b.stores_behind_boxes) return "stores_behind_boxes";
  if (a.awaits_inputs != b.awaits_inputs) return "awaits_inputs";
  if (a.may_await != b.may_await || a.may_publish != b.may_publish || a.awaits_all_or_none != b.awaits_all_or_none) return "words";
  if (a.ring != b.ring) return "ring of weights";
  if (a.boxes != b.boxes) return "boxes";
  if (a.cluster != b.cluster) return "cluster";
  return a == b ? nullptr : "registers";
}

std::string difference(const RKernel& listed, const RKernel& own) {
  if (listed.phases.size() != own.phases.size()) return fmt::format("has {} phases, not {}", own.phases.size(), listed.phases.size());
  for (size_t p = 0; p < own.phases.size(); ++p) {
    const char* const field = differing_field(listed.phases[p], own.phases[p]);
    if (field != nullptr) return fmt::format("has in phase {} another {}", p, field);
  }
  return listed.scratch_elements != own.scratch_elements ? "has another scratch" : "has another exchange";
}

void verify_listed(const RProgram& program, size_t i, const select::Families& families, Violations& violations) {
  const RKernel& own = program.rkernels[i];
  const std::string who = fmt::format("'{}' ({})", printable(program.graph.rops[i].name), printable(own.name));
  if (own.phases.empty()) {
    if (own != RKernel{}) violations.add(who + " has an rKernel without phases that is none");
    return;
  }
  const kernels::Family* const family = family_of(families, own);
  if (family == nullptr) return violations.add(fmt::format("{} is of no family: '{}'", who, printable(own.family)));
  if (!is_of_catalogue(*family)) return;
  const ROperator& rop = program.graph.rops[i];
  const Precision precision = select::precision_of(program.graph, rop, program.precision);
  std::string why = "is no rKernel that the family lists for it";
  for (RKernel& listed : select::candidates_in_program({*family}, {program.graph, rop, program.vdevice, precision})) {
    if (listed.name != own.name || listed.config != own.config || listed.gang != own.gang) continue;
    take_decisions(listed, own);
    if (listed == own) return;
    why = difference(listed, own);
  }
  violations.add(fmt::format("{} {}", who, why));
}

}  // namespace

void verify_rkernels(const RProgram& program, const select::Families& families, Violations& violations) {
  verify_operators(program, families, violations);
  if (!violations.none()) return;
  for (size_t i = 0; i < program.rkernels.size() && !violations.full(); ++i) verify_listed(program, i, families, violations);
}

}  // namespace tamp::schedule
