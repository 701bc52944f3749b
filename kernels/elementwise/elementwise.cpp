// Host side of elementwise.cuh, of vector_copy.cuh and, where nvcc can be told the chain (static_chain.h), of static_chain.cuh: a phase per
// sweep.
#include <fmt/format.h>

#include <algorithm>

#include "kernels/args.h"
#include "kernels/elementwise/static_chain.h"
#include "kernels/elementwise/sweep.h"
#include "kernels/family.h"
#include "kernels/narrow.h"

namespace tamp::kernels {
namespace {

// How `work` is used: groups of four elements a thread has at a time, and the inputs that go through it. Chains with many
// temporaries do not get four groups into it.
struct Work {
  int64_t groups = 4, prefetched = 0;
};
Work work_of(const Sweep& sweep, const ShapedVDevice& vdevice) {
  const int64_t units = vdevice.work_bytes() / (vdevice.compute_threads * 16);
  const int64_t inputs = static_cast<int64_t>(sweep.chain.inputs.size());
  Work work;
  if (units / 4 < sweep.chain.temporaries + std::min<int64_t>(inputs, 1)) work.groups = 1;
  work.prefetched = std::clamp<int64_t>(units / work.groups - sweep.chain.temporaries, 0, inputs);
  return work;
}

std::vector<Arg> arguments(const Graph& graph, const Sweep& sweep, int64_t prefetched, int64_t groups_per_rtask) {
  ArgList inputs, in_strides, chain, constants;
  int64_t in_vectors = 0;
  for (size_t i = 0; i < kChainInputs; ++i) {
    const bool used = i < sweep.chain.inputs.size();
    inputs.push_back(used ? place_arg(sweep.chain.inputs[i], sweep.starts[i + 1]) : null_arg());
    in_strides.push_back(array_arg(used ? strides(sweep.loop, i + 1) : std::vector<int64_t>{}, kChainRank));
    if (used && is_vector(graph, sweep, i + 1)) in_vectors |= int64_t{1} << i;
  }
  for (const ChainStep& step : sweep.chain.steps) chain.push_back(array_arg({step.op, step.x, step.y, step.z, step.to}));
  for (const float value : sweep.chain.constants) constants.push_back(float_arg(value));
  if (constants.empty()) constants.push_back(float_arg(0));
  return {{"out", place_arg(sweep.out, sweep.starts[0])},
          {"inputs", ArgValue{inputs}},
          {"out_strides", array_arg(strides(sweep.loop, 0), kChainRank)},
          {"in_strides", ArgValue{in_strides}},
          {"divisors", divisors_arg(inner_extents(sweep.loop), kChainRank - 1)},
          {"elements", arg(loop_elements(sweep.loop))},
          {"groups_per_rtask", arg(groups_per_rtask)},
          {"rank", arg(static_cast<int64_t>(sweep.loop.size()))},
          {"prefetched", arg(prefetched)},
          {"steps", arg(static_cast<int64_t>(sweep.chain.steps.size()))},
          {"grouped", arg(int64_t{is_grouped(sweep)})},
          {"out_vector", arg(int64_t{is_vector(graph, sweep, 0)})},
          {"in_vectors", arg(in_vectors)},
          {"chain", ArgValue{chain}},
          {"constants", ArgValue{constants}}};
}

// What a rTask costs besides memory: a turn of the loop has a latency of its own, and then each step has a price per element.
double interpreting_flops(const ShapedVDevice& vdevice, const Sweep& sweep, const Work& work, int64_t groups_per_rtask) {
  const double turns = static_cast<double>(ceil_div(groups_per_rtask, 256 * work.groups));
  double per_element = 0;
  for (const ChainStep& step : sweep.chain.steps) per_element += row_of(static_cast<ElementwiseOp>(step.op)).price;
  return turns * vdevice.cost("elementwise.turn_flops") + static_cast<double>(groups_per_rtask * 4) * per_element;
}

double bytes_of_share(const Graph& graph, const Sweep& sweep, double share) {
  const auto bytes_of_operand = [&](size_t operand) { return static_cast<double>(bytes_of(type_of(graph, sweep, operand))); };
  double bytes = bytes_of_operand(0) * share * (is_vector(graph, sweep, 0) ? 1 : 2);
  for (size_t i = 0; i < sweep.chain.inputs.size(); ++i) {
    const bool broadcast = sweep.loop.empty() || sweep.loop.back().strides[i + 1] == 0;
    bytes += bytes_of_operand(i + 1) * share * (broadcast ? 0.25 : is_vector(graph, sweep, i + 1) ? 1 : 3);
  }
  return bytes;
}

constexpr int64_t kCopyGroups = 8;  // of a thread at a time

// Whether the sweep is a copy by vectors that gives a thread so many groups that decoding their places counts.
bool is_large_copy(const Graph& graph, const Sweep& sweep, const ShapedVDevice& vdevice, int64_t groups_per_rtask) {
  const Chain& chain = sweep.chain;
  const bool copies = chain.inputs.size() == 1 && chain.steps.size() == 1 &&
                      chain.steps[0].op == static_cast<int64_t>(ElementwiseOp::identity) && !sweep.loop.empty();
  return copies && is_vector(graph, sweep, 0) && is_vector(graph, sweep, 1) && sweep.loop.back().extent % 4 == 0 &&
         groups_per_rtask > kCopyGroups * vdevice.compute_threads;
}

Phase copy_phase(const Request& request, const Sweep& sweep, int64_t groups_per_rtask) {
  const int64_t groups = loop_elements(sweep.loop) / 4;
  Loop nest = sweep.loop;
  nest.back().extent /= 4;
  for (int64_t& stride : nest.back().strides) stride *= 4;
  Phase phase = early_phase("kernels/elementwise/vector_copy.cuh", "rk::vector_copy", "rk::VectorCopyArgs");
  phase.template_args = {{"In", value_type(type_of(request.graph, sweep, 1))},
                         {"Out", value_type(type_of(request.graph, sweep, 0))},
                         {"kGroups", std::to_string(kCopyGroups)}};
  phase.args = {{"out", place_arg(sweep.out, sweep.starts[0])},
                {"in", place_arg(sweep.chain.inputs[0], sweep.starts[1])},
                {"out_strides", array_arg(strides(nest, 0), kChainRank)},
                {"in_strides", array_arg(strides(nest, 1), kChainRank)},
                {"divisors", divisors_arg(inner_extents(nest), kChainRank - 1)},
                {"rank", arg(static_cast<int64_t>(nest.size()))},
                {"groups", arg(groups)},
                {"groups_per_rtask", arg(groups_per_rtask)}};
  phase.rtasks = ceil_div(groups, groups_per_rtask);
  phase.cost.activation_bytes = bytes_of_share(request.graph, sweep, 4 * static_cast<double>(groups) / static_cast<double>(phase.rtasks));
  const int64_t turns = ceil_div(groups_per_rtask, kCopyGroups * request.vdevice.compute_threads);
  phase.cost.latency_us = request.vdevice.cost("elementwise.static_turn_us") * static_cast<double>(turns - 1);
  return phase;
}

Phase phase_of(const Request& request, const Sweep& sweep, int64_t groups_per_rtask) {
  const int64_t elements = loop_elements(sweep.loop);
  const int64_t groups = std::max<int64_t>(1, ceil_div(elements, 4));
  const Work work = work_of(sweep, request.vdevice);
  Phase phase = early_phase("kernels/elementwise/elementwise.cuh", "rk::elementwise", "rk::ElementwiseArgs");
  phase.template_args = {{"kGroups", std::to_string(work.groups)}};
  if (const int64_t narrow = narrow_operands(request.graph, sweep); narrow != 0) {
    phase.template_args.emplace_back("Value", value_type(narrow_type(request.graph, sweep)));
    phase.template_args.emplace_back("kNarrow", fmt::format("{:#x}u", narrow));
  }
  phase.args = arguments(request.graph, sweep, work.prefetched, groups_per_rtask);
  phase.rtasks = ceil_div(groups, groups_per_rtask);
  phase.work_bytes = (work.prefetched + sweep.chain.temporaries) * work.groups * request.vdevice.compute_threads * 16;

  const double share = static_cast<double>(elements) / static_cast<double>(phase.rtasks);
  phase.cost.activation_bytes = bytes_of_share(request.graph, sweep, share);
  phase.cost.flops = interpreting_flops(request.vdevice, sweep, work, groups_per_rtask);
  phase.cost.efficiency = request.vdevice.cost("elementwise.efficiency");
  return phase;
}

// How many groups, of four elements or fewer, the sweep has. rTasks are shares of these groups.
int64_t groups_of(const Graph& graph, const Sweep& sweep) {
  return is_static(graph, sweep) ? static_groups(sweep) : std::max<int64_t>(1, ceil_div(loop_elements(sweep.loop), 4));
}

RKernel rkernel_of(const Request& request, const std::vector<Sweep>& sweeps, int64_t rtasks, const std::string& kind) {
  RKernel rkernel;
  for (const Sweep& sweep : sweeps) {
    const int64_t groups = groups_of(request.graph, sweep);
    int64_t per_rtask = std::max(request.vdevice.compute_threads, ceil_div(groups, rtasks));
    const bool known = is_static(request.graph, sweep);
    const bool copies = !known && is_large_copy(request.graph, sweep, request.vdevice, per_rtask);
    if (known && !copies) per_rtask = static_share(request.graph, sweep, request.vdevice, per_rtask);
    rkernel.phases.push_back(copies  ? copy_phase(request, sweep, per_rtask)
                             : known ? static_phase(request.graph, sweep, request.vdevice, per_rtask)
                                     : phase_of(request, sweep, per_rtask));
    rkernel.config.emplace_back("groups_per_rtask" + std::to_string(rkernel.phases.size() - 1), per_rtask);
    if (!sweep.out.valid()) rkernel.scratch_elements = loop_elements(sweep.loop);
  }
  rkernel.name = "elementwise<" + kind + ", " + std::to_string(rkernel.phases[0].rtasks) + ">";
  return rkernel;
}

// Whether the rOperator can compute on tensors of 16 bits as on f32, since it does not turn one type into another. Copies can.
bool is_f32_chain(const ROperator& rop) {
  const auto* const chain = std::get_if<Elementwise>(&rop.attrs);
  if (chain == nullptr) return true;
  const auto casts = [](const ElementwiseStep& step) { return step.op == ElementwiseOp::cast; };
  return chain->dtype.value_or(DType::f32) == DType::f32 && std::none_of(chain->steps.begin(), chain->steps.end(), casts);
}

std::vector<RKernel> offers(const Request& request) {
  const ROperator& rop = request.rop;
  if (has_epilogue(rop)) return {};
  const std::vector<Sweep> sweeps = sweeps_of(request.graph, rop);
  if (sweeps.empty() || !is_plain_values_or_bytes(request.graph.tensor(rop.outputs[0]))) return {};
  const bool may_be_narrow = has_narrow_activations(request.precision) && is_f32_chain(rop);
  const int64_t units = request.vdevice.work_bytes() / (request.vdevice.compute_threads * 16);
  for (const Sweep& sweep : sweeps) {
    if (static_cast<int64_t>(sweep.loop.size()) > kChainRank || sweep.chain.temporaries > units) return {};
    for (const TensorId id : sweep.chain.inputs) {
      if (id.valid() && !is_plain_values_or_bytes(request.graph.tensor(id))) return {};
    }
    if (has_bytes(request.graph, sweep) && (!may_be_narrow || !is_static(request.graph, sweep))) return {};
    if (narrow_operands(request.graph, sweep) != 0 && (!may_be_narrow || is_of_two_types(request.graph, sweep))) return {};
  }
  const int64_t veus = request.vdevice.veus();
  std::vector<RKernel> out = {rkernel_of(request, sweeps, veus, "wide")};
  if (out[0].rtasks() > 8) out.push_back(rkernel_of(request, sweeps, std::max<int64_t>(1, veus / 4), "narrow"));
  return out;
}

void accesses(const Graph& graph, const ROperator& rop, const RKernel& rkernel, int phase, int64_t index, Accesses& out) {
  const Sweep sweep = sweeps_of(graph, rop)[static_cast<size_t>(phase)];
  const int64_t per_rtask = rkernel.config_value("groups_per_rtask" + std::to_string(phase));
  const int64_t first = index * per_rtask, last = std::min(first + per_rtask, groups_of(graph, sweep));
  const bool known = is_static(graph, sweep);
  const int64_t begin = known ? elements_before(sweep, first) : first * 4;
  const int64_t end = known ? elements_before(sweep, last) : std::min(last * 4, loop_elements(sweep.loop));
  append_runs(sweep.loop, 0, sweep.out, first_element(graph, sweep.out) + sweep.starts[0], begin, end, out.writes);
  for (size_t i = 0; i < sweep.chain.inputs.size(); ++i) {
    const TensorId id = sweep.chain.inputs[i];
    if (known)
      append_static_reads(graph, sweep, i + 1, first, last, out.reads);
    else
      append_runs(sweep.loop, i + 1, id, first_element(graph, id) + sweep.starts[i + 1], begin, end, out.reads);
  }
}

}  // namespace

Family elementwise() {
  return {"elementwise", offers, no_pack, accesses, nullptr, Narrowed::computes, /*takes_sums=*/false, /*takes_bytes=*/true};
}

}  // namespace tamp::kernels
