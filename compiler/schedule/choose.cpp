#include "compiler/schedule/choose.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "compiler/ir/fused.h"
#include "compiler/ir/products.h"
#include "compiler/schedule/dependencies.h"
#include "compiler/support/error.h"
#include "compiler/support/text.h"

namespace tamp::schedule {
namespace {

// "node 'conv1' (Conv): f32[1,3,8,8], f32[4,3,3,3] -> f32[1,4,6,6]"
std::string describe(const Graph& graph, const ROperator& rop) {
  const auto tensors = [&](const std::vector<TensorId>& ids) {
    std::vector<std::string> texts;
    for (const TensorId id : ids) {
      if (!id.valid()) continue;
      const Tensor& tensor = graph.tensor(id);
      texts.push_back(name_of(tensor.dtype) + shape_text(tensor.shape));
    }
    return join(texts, ", ");
  };
  std::vector<std::string> nodes;
  for (const std::string& node : rop.origin) {
    if (node != rop.name) nodes.push_back("'" + printable(node) + "'");
  }
  const std::string of = nodes.empty() ? "" : fmt::format(" of ONNX node{} {}", nodes.size() == 1 ? "" : "s", join(nodes, ", "));
  return fmt::format("node '{}' ({}{}): {} -> {}", printable(rop.name), title_of(rop), of, tensors(rop.inputs), tensors(rop.outputs));
}

// Bodies walk a nest of so many dimensions at most; neighbours that lie one behind the other in all operands count as one.
std::string limit_text(const Graph& graph, const ROperator& rop) {
  constexpr size_t kMostWalked = 8;
  const auto is_deep = [&](TensorId id) { return id.valid() && graph.tensor(id).shape.size() > kMostWalked; };
  const bool is_any =
      std::any_of(rop.inputs.begin(), rop.inputs.end(), is_deep) || std::any_of(rop.outputs.begin(), rop.outputs.end(), is_deep);
  return is_any ? fmt::format("; supported: up to {} dimensions, or more whose neighbours lie one behind the other", kMostWalked) : "";
}

}  // namespace

void refuse_unsupported(const PolicyInput& input, const Unsupported& rops) {
  if (rops.empty()) return;
  const std::string where = fmt::format("at {} on vDevice '{}'", name_of(input.machine.precision), input.machine.vdevice.name);
  std::vector<std::string> texts;
  std::vector<Refusal> refusals;
  std::string limit;
  for (const ROperatorId id : rops) {
    const ROperator& rop = input.graph.rop(id);
    texts.push_back(describe(input.graph, rop));
    const std::string own = limit_text(input.graph, rop);
    if (!own.empty()) limit = own;
    refusals.push_back({rop.name, title_of(rop), "no rKernel " + where + own});
  }
  throw unsupported(fmt::format("no rKernel for {} {}{}", join(texts, "; "), where, limit), std::move(refusals));
}

std::vector<RKernel> candidates_of(const PolicyInput& input, ROperatorId id, bool alone, Unsupported& unsupported) {
  const ROperator& rop = input.graph.rop(id);
  const Precision precision = select::precision_of(input.graph, rop, input.machine.precision);
  auto found = select::candidates_in_program(input.families, {input.graph, rop, input.machine.vdevice, precision});
  if (!input.options.gangs) std::erase_if(found, [](const RKernel& rkernel) { return rkernel.gang; });
  if (found.empty()) unsupported.push_back(id);
  if (input.options.records) input.options.records->correct(found, input.graph, rop, input.machine, alone);
  const std::string forced = input.options.forced ? input.options.forced->at(id.index()) : "";
  if (forced.empty()) return found;
  std::erase_if(found, [&](const RKernel& rkernel) { return select::identity(rkernel) != forced; });
  TAMP_CHECK(!found.empty(), "no candidate is " + forced);
  return found;
}

std::vector<bool> alone_of(const PolicyInput& input) {
  const size_t count = input.graph.rops.size();
  std::vector<size_t> wave(count, 0), members(count + 1, 0);
  for (size_t i = 0; i < count; ++i) {
    for (const ROperatorId p : input.producers[i]) wave[i] = std::max(wave[i], wave[p.index()] + (input.is_view[i] ? 0 : 1));
    if (!input.is_view[i]) ++members[wave[i]];
  }
  std::vector<bool> alone;
  for (size_t i = 0; i < count; ++i) alone.push_back(!input.is_view[i] && members[wave[i]] == 1);
  return alone;
}

namespace {

std::optional<RKernel> fastest_alone(const Graph& graph, const ROperator& rop, const select::Machine& machine, bool gangs) {
  const Precision precision = select::precision_of(graph, rop, machine.precision);
  std::vector<RKernel> found = select::candidates_in_program(kernels::families(), {graph, rop, machine.vdevice, precision});
  if (!gangs) std::erase_if(found, [](const RKernel& rkernel) { return rkernel.gang; });
  if (found.empty()) return std::nullopt;
  return std::move(found[select::fastest(found, machine)]);
}

}  // namespace

double alone_us(const Graph& graph, const ROperator& rop, const select::Machine& machine, bool gangs) {
  const std::optional<RKernel> rkernel = fastest_alone(graph, rop, machine, gangs);
  if (!rkernel) return std::numeric_limits<double>::infinity();
  return select::completion_us(*rkernel, machine, machine.vdevice.veus(), /*active=*/1);
}

namespace {

// A barrier stands in front of sums that lie over the input stages, 0.1 us on an H200; 25 KB of inputs that come late cost 0.25 us
// (docs/log/2026-11-27.md, "More of a rTask's inputs on their way").
double late_bytes_of(const Phase& phase, const ShapedVDevice& vdevice) {
  constexpr double kBytesOfBarrier = 14 * 1024;
  if (!phase.boxes) return 0;
  const InputBoxes& boxes = *phase.boxes;
  const int64_t late = std::max<int64_t>(boxes.boxes_per_split - vdevice.input_stages * boxes.boxes_per_chunk, 0) * boxes.box_bytes();
  return static_cast<double>(late) + (phase.stores_behind_boxes ? kBytesOfBarrier : 0);
}

// Whether a product normalises the same rows itself, so that only later residuals wait for this: it runs beside that product.
std::vector<bool> runs_beside(const Graph& graph) {
  const std::vector<bool> by_moments = normalized_by_moments(graph);
  std::vector<bool> beside;
  for (const ROperator& rop : graph.rops)
    beside.push_back(std::holds_alternative<Normalize>(rop.attrs) && by_moments[graph.tensor(rop.inputs[0]).place.buffer.index()]);
  return beside;
}

}  // namespace

double one_after_another_us(const Graph& graph, const ShapedVDevice& vdevice, Precision precision, bool gangs) {
  const select::Machine machine = select::machine_for(graph, vdevice, precision);
  const std::vector<bool> is_view = find_dependencies(graph).is_view, is_beside = runs_beside(graph);
  double us = 0;
  for (size_t i = 0; i < graph.rops.size(); ++i) {
    if (!is_view[i] && !is_beside[i]) us += alone_us(graph, graph.rops[i], machine, gangs);
  }
  return us;
}

double late_bytes(const Graph& graph, const ShapedVDevice& vdevice, Precision precision, bool gangs) {
  const select::Machine machine = select::machine_for(graph, vdevice, precision);
  const std::vector<bool> is_view = find_dependencies(graph).is_view;
  double late = 0;
  for (size_t i = 0; i < graph.rops.size(); ++i) {
    if (is_view[i]) continue;
    const std::optional<RKernel> rkernel = fastest_alone(graph, graph.rops[i], machine, gangs);
    if (!rkernel) return std::numeric_limits<double>::infinity();
    for (const Phase& phase : rkernel->phases) late += late_bytes_of(phase, vdevice);
  }
  return late;
}

}  // namespace tamp::schedule
