// Host side of quantise.cuh.
#include "kernels/reduce/quantise.h"

#include <algorithm>

#include "compiler/ir/fused.h"
#include "kernels/args.h"
#include "kernels/family.h"
#include "kernels/loop.h"
#include "kernels/reduce/numbers.cuh"

namespace tamp::kernels {
namespace {

constexpr size_t kRank = rk::kRowsRank;
constexpr size_t kOut = 0, kIn = 1;  // operands of the loop

struct Quantising {
  DynamicQuantisation tensors;
  Loop loop;
  int64_t vector = 1;

  int64_t items() const { return loop_elements(loop) / vector; }
};

std::optional<Quantising> quantising_of(const Graph& graph, const ROperator& rop) {
  if (!std::holds_alternative<Fused>(rop.attrs)) return std::nullopt;
  const Graph steps = steps_of(graph, rop);
  size_t at = 0;  // of the step that makes the result
  while (at < steps.rops.size() && steps.rops[at].outputs[0] != steps.outputs[0]) ++at;
  const auto found = at < steps.rops.size() ? dynamic_quantisation_of(steps, uses_of(steps), at) : std::nullopt;
  if (!found || found->makers.size() != steps.rops.size() || steps.outputs.size() > 2) return std::nullopt;
  const auto place = std::find(std::get<Fused>(rop.attrs).body->inputs.begin(), std::get<Fused>(rop.attrs).body->inputs.end(), found->in);
  if (place == std::get<Fused>(rop.attrs).body->inputs.end()) return std::nullopt;
  if (steps.outputs.size() == 2 && steps.outputs[1] != found->scale) return std::nullopt;
  Quantising q;
  q.tensors.in = rop.inputs[static_cast<size_t>(place - std::get<Fused>(rop.attrs).body->inputs.begin())];
  q.tensors.out = rop.outputs[0];
  q.tensors.scale = rop.outputs.size() == 2 ? rop.outputs[1] : TensorId();
  q.tensors.scaled = found->scaled;
  const Tensor &in = graph.tensor(q.tensors.in), &out = graph.tensor(q.tensors.out);
  for (size_t d = 0; d < out.shape.size(); ++d) q.loop.push_back({out.shape[d], {out.place.strides[d], in.place.strides[d]}});
  q.loop = normalised(q.loop);
  const auto is_dense = [&](size_t operand) { return q.loop.size() == 1 && q.loop[0].strides[operand] == 1; };
  if (is_dense(kIn) && is_dense(kOut) && q.loop[0].extent % 4 == 0 && in.place.offset % 4 == 0 && out.place.offset % 4 == 0) q.vector = 4;
  return q;
}

double bytes_of_items(const Quantising& q, const Tensor& tensor, int64_t items) {
  constexpr double kSectors = 3;  // so many times as many where elements come one by one
  return static_cast<double>(items * q.vector) * static_cast<double>(bytes_of(tensor.dtype)) * (q.vector == 4 ? 1 : kSectors);
}

// A phase whose rTasks read so many items each.
Phase phase_of(const Request& request, const Quantising& q, const std::string& body, int64_t shares, int64_t per_rtask, int64_t read) {
  const auto& [graph, rop, vdevice, precision] = request;
  const Tensor &in = graph.tensor(q.tensors.in), &out = graph.tensor(q.tensors.out);
  const bool writes = body == "rk::quantise";
  Phase phase = early_phase("kernels/reduce/quantise.cuh", body, "rk::QuantiseArgs");
  phase.template_args = {{"kVector", std::to_string(q.vector)}};
  add_value_types(phase, in.dtype, writes ? out.dtype : DType::f32);
  phase.args = {{"in", arg(TensorArg{q.tensors.in})},
                {"out", writes ? arg(TensorArg{q.tensors.out}) : null_arg()},
                {"in_strides", array_arg(strides(q.loop, kIn), kRank)},
                {"out_strides", array_arg(strides(q.loop, kOut), kRank)},
                {"divisors", divisors_arg(inner_extents(q.loop), kRank - 1)},
                {"rank", arg(static_cast<int64_t>(q.loop.size()))},
                {"items", arg(q.items())},
                {"items_per_rtask", arg(per_rtask)},
                {"scaled", arg(int64_t{q.tensors.scaled})},
                {"scale", writes ? tensor_arg(q.tensors.scale) : null_arg()},
                {"ranges", shares > 0 ? ArgValue{ScratchArg{0}} : null_arg()},
                {"shares", arg(shares)}};
  phase.rtasks = ceil_div(q.items(), per_rtask);
  phase.work_bytes = 2 * 4 * vdevice.compute_threads / rk::kWarp;
  const double turns = static_cast<double>(ceil_div(read, 4 * vdevice.compute_threads));
  phase.cost.activation_bytes = bytes_of_items(q, in, read) + (writes ? bytes_of_items(q, out, per_rtask) : 8);
  phase.cost.calibrated_cycles = vdevice.cost("normalize.fixed_cycles") + (turns - 1) * vdevice.cost("normalize.turn_cycles");
  return phase;
}

RKernel rkernel_of(const Request& request, const Quantising& q, int64_t rtasks, bool in_shares) {
  const int64_t per_rtask = std::max(request.vdevice.compute_threads, ceil_div(q.items(), rtasks));
  const int64_t shares = in_shares ? ceil_div(q.items(), per_rtask) : 0;
  const Phase last = phase_of(request, q, "rk::quantise", shares, per_rtask, in_shares ? per_rtask : q.items());
  RKernel rkernel = one_phase("quantise<" + std::string(in_shares ? "shares, " : "") + std::to_string(last.rtasks) + ">",
                              {{"items_per_rtask", per_rtask}, {"shares", shares}}, last);
  if (!in_shares) return rkernel;
  rkernel.phases.insert(rkernel.phases.begin(), phase_of(request, q, "rk::quantise_range", shares, per_rtask, per_rtask));
  rkernel.scratch_elements = 2 * shares;
  return rkernel;
}

std::vector<RKernel> offers(const Request& request) {
  if (has_epilogue(request.rop)) return {};
  const std::optional<Quantising> q = quantising_of(request.graph, request.rop);
  if (!q || q->loop.size() > kRank || q->items() == 0) return {};
  if (!is_plain_values(request.graph.tensor(q->tensors.in)) || !is_plain_values(request.graph.tensor(q->tensors.out))) return {};
  if (q->tensors.scale.valid() && !is_plain_f32(request.graph.tensor(q->tensors.scale))) return {};
  std::vector<RKernel> out;
  for (const bool in_shares : {false, true}) {
    // A thread reads a range of a share at most.
    const int64_t most = in_shares ? std::min(request.vdevice.veus(), request.vdevice.compute_threads) : request.vdevice.veus();
    if (in_shares && q->items() <= request.vdevice.compute_threads) continue;
    out.push_back(rkernel_of(request, *q, most, in_shares));
    if (out.back().rtasks() > 8) out.push_back(rkernel_of(request, *q, std::max<int64_t>(1, most / 4), in_shares));
  }
  return out;
}

void accesses(const Graph& graph, const ROperator& rop, const RKernel& rkernel, int phase, int64_t index, Accesses& out) {
  const Quantising q = known(quantising_of(graph, rop), "quantise", rop);
  const Tensor &in = graph.tensor(q.tensors.in), &made = graph.tensor(q.tensors.out);
  const int64_t per_rtask = rkernel.config_value("items_per_rtask"), shares = rkernel.config_value("shares");
  const int64_t begin = index * per_rtask * q.vector, end = std::min((index + 1) * per_rtask, q.items()) * q.vector;
  if (shares == 0)
    append_whole(graph, q.tensors.in, out.reads);
  else
    append_runs(q.loop, kIn, q.tensors.in, in.place.offset, begin, end, out.reads);
  if (shares > 0 && phase == 0) return out.writes.push_back({TensorId(), Run{2 * index, 1, 0, 2}});
  if (shares > 0) out.reads.push_back({TensorId(), Run{0, 1, 0, 2 * shares}});
  if (index == 0 && q.tensors.scale.valid()) append_whole(graph, q.tensors.scale, out.writes);
  append_runs(q.loop, kOut, q.tensors.out, made.place.offset, begin, end, out.writes);
}

}  // namespace

Family quantise() { return {"quantise", offers, no_pack, accesses}; }

}  // namespace tamp::kernels
