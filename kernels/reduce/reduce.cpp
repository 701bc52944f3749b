// Host side of reduce.cuh, reduce_sum.cuh and reduce_octets.cuh. Where there are too few rows for the vEUs, a second candidate cuts the
// reduced elements as well: its first phase leaves partial results in scratch, its second combines them.
#include <algorithm>

#include "compiler/support/error.h"
#include "kernels/args.h"
#include "kernels/family.h"
#include "kernels/narrow.h"
#include "kernels/reduce/numbers.cuh"
#include "kernels/reduce/rows.h"

namespace tamp::kernels {
namespace {

using enum rk::ReducePrepare;
using enum rk::ReduceCombine;
using enum rk::ReduceFinish;

struct Formula {
  rk::ReducePrepare prepare = kPrepareNone;
  rk::ReduceCombine combine = kCombineSum;
  rk::ReduceFinish finish = kFinishNone;
};

Formula formula_of(ReduceKind kind) {
  switch (kind) {
    case ReduceKind::sum: return {};
    case ReduceKind::mean: return {kPrepareNone, kCombineSum, kFinishDivide};
    case ReduceKind::max: return {kPrepareNone, kCombineMax, kFinishNone};
    case ReduceKind::min: return {kPrepareNone, kCombineMin, kFinishNone};
    case ReduceKind::prod: return {kPrepareNone, kCombineProduct, kFinishNone};
    case ReduceKind::l1: return {kPrepareAbs, kCombineSum, kFinishNone};
    case ReduceKind::l2: return {kPrepareSquare, kCombineSum, kFinishSqrt};
    case ReduceKind::sum_square: return {kPrepareSquare, kCombineSum, kFinishNone};
    case ReduceKind::log_sum: return {kPrepareNone, kCombineSum, kFinishLog};
    case ReduceKind::log_sum_exp: return {kPrepareExp, kCombineSum, kFinishLogPlusMax};
  }
  TAMP_CHECK(false, "unknown reduction");
}

Rows rows_of(const Graph& graph, const ROperator& rop) {
  const Reduce& attrs = std::get<Reduce>(rop.attrs);
  const Tensor& in = graph.tensor(rop.inputs[0]);
  const Tensor& out = graph.tensor(rop.outputs[0]);
  Rows rows;
  size_t o = 0;  // output dimension
  for (size_t d = 0; d < in.shape.size(); ++d) {
    const bool reduced = std::find(attrs.axes.begin(), attrs.axes.end(), static_cast<int64_t>(d)) != attrs.axes.end();
    if (reduced)
      rows.reduced.push_back({in.shape[d], {in.place.strides[d], 0}});
    else
      rows.kept.push_back({in.shape[d], {in.place.strides[d], out.place.strides[o]}});
    if (!reduced || attrs.keepdims) ++o;
  }
  rows.kept = normalised(rows.kept);
  rows.reduced = normalised(rows.reduced);
  const auto fits = [](const LoopDim& dim) { return dim.strides[0] % 4 == 0; };
  const bool dense = !rows.kept.empty() && rows.kept.back().strides[0] == 1 && rows.kept.back().extent % 4 == 0 && in.place.offset % 4 == 0;
  if (dense && std::all_of(rows.kept.begin(), rows.kept.end() - 1, fits) && std::all_of(rows.reduced.begin(), rows.reduced.end(), fits))
    rows.vector = 4;
  return rows;
}

// The second phase's view of the scratch: split after split, in each the rows in the order of `first.kept`.
Rows rows_of_partials(const Rows& first, int64_t splits) {
  Rows rows;
  rows.kept = first.kept;
  int64_t step = 1;
  for (size_t d = rows.kept.size(); d-- > 0;) {
    rows.kept[d].strides[0] = step;
    step *= rows.kept[d].extent;
  }
  rows.kept = normalised(rows.kept);
  rows.reduced = {LoopDim{splits, {step, 0}}};
  return rows;
}

// The first phase writes row-major scratch.
Rows into_scratch(Rows rows) {
  int64_t step = 1;
  for (size_t d = rows.kept.size(); d-- > 0;) {
    rows.kept[d].strides[1] = step;
    step *= rows.kept[d].extent;
  }
  return rows;
}

struct Cut {
  int64_t splits = 1;
  int64_t per_split = 0;  // reduced elements
};

Cut cut_of(const Rows& rows, int64_t splits) {
  const int64_t per_split = std::max<int64_t>(1, ceil_div(rows.reduced_elements(), splits));
  return {std::max<int64_t>(1, ceil_div(rows.reduced_elements(), per_split)), per_split};
}

// What a phase reads and writes.
struct Types {
  DType in = DType::f32, out = DType::f32;

  double in_bytes() const { return static_cast<double>(bytes_of(in)); }
  double out_bytes() const { return static_cast<double>(bytes_of(out)); }
};

Types types_of(const Graph& graph, const ROperator& rop) { return {graph.tensor(rop.inputs[0]).dtype, graph.tensor(rop.outputs[0]).dtype}; }

Phase phase_of(const Rows& rows, const ArgValue& in, const ArgValue& out, const Types& types, const Formula& formula, double count,
               const Cut& cut, int64_t per_rtask, const ShapedVDevice& vdevice) {
  const int64_t rtasks = std::max<int64_t>(1, ceil_div(rows.rows(), per_rtask));
  Phase phase = body_phase("kernels/reduce/reduce.cuh", "rk::reduce", "rk::ReduceArgs");
  phase.template_args = {{"kVector", std::to_string(rows.vector)}, {"kFlat", rows.reduced.size() <= 1 ? "true" : "false"}};
  add_value_types(phase, types.in, types.out);
  phase.args = {
      {"rows", rows_arg(rows, in, out, per_rtask)},
      {"rtasks_per_split", divisor_arg(rtasks)},
      {"reduced_per_split", arg(cut.per_split)},
      {"split_stride", arg(rows.rows() * rows.vector)},
      {"prepare", enumerator_arg(formula.prepare, {"kPrepareNone", "kPrepareAbs", "kPrepareSquare", "kPrepareExp"})},
      {"combine", enumerator_arg(formula.combine, {"kCombineSum", "kCombineMax", "kCombineMin", "kCombineProduct"})},
      {"finish", enumerator_arg(formula.finish, {"kFinishNone", "kFinishDivide", "kFinishSqrt", "kFinishLog", "kFinishLogPlusMax"})},
      {"count", float_arg(static_cast<float>(count))}};
  phase.rtasks = rtasks * cut.splits;
  phase.work_bytes = vdevice.compute_threads * rows.vector * 4;
  const double elements = static_cast<double>(per_rtask * rows.vector) * static_cast<double>(cut.per_split);
  phase.cost.activation_bytes = types.in_bytes() * elements * (formula.prepare == kPrepareExp ? 2 : 1) *
                                    sector_factor(rows, 0, static_cast<int64_t>(types.in_bytes())) +
                                types.out_bytes() * static_cast<double>(per_rtask * rows.vector);
  phase.cost.flops = elements * (formula.prepare == kPrepareExp ? 40 : 8) + static_cast<double>(vdevice.compute_threads) * 500;
  phase.cost.efficiency = vdevice.cost("reduce.efficiency");
  phase.cost.latency_us = vdevice.cost("reduce.cold_us");  // the general body is long, and runs cold where it runs once
  return phase;
}

// --- reduce_sum -----------------------------------------------------------------------------------------------------------

// Whether the rOperator adds up vectors, in nests that the arguments of reduce_sum and reduce_octets have room for.
bool is_sum(const Graph& graph, const ROperator& rop, const Rows& rows) {
  const ReduceKind kind = std::get<Reduce>(rop.attrs).kind;
  if ((kind != ReduceKind::sum && kind != ReduceKind::mean) || rows.vector != 4 || rows.kept.size() > 2 || rows.reduced.size() > 1)
    return false;
  if (rows.reduced_elements() == 0 || rows.rows() == 0) return false;
  for (const TensorId id : {rop.inputs[0], rop.outputs[0]}) {
    const std::vector<int64_t>& strides = graph.tensor(id).place.strides;
    if (std::any_of(strides.begin(), strides.end(), [](int64_t stride) { return stride < 0; })) return false;
  }
  return true;
}

// Items side by side in a rTask of reduce_sum; 0 if reduce_sum cannot do the rOperator.
int64_t sum_lanes(const Graph& graph, const ROperator& rop, const Rows& rows, const ShapedVDevice& vdevice) {
  if (!is_sum(graph, rop, rows)) return 0;
  for (const int64_t lanes : {4, 8, 32}) {
    if (rows.rows() <= lanes * vdevice.veus() && 4 * lanes <= vdevice.compute_threads) return lanes;
  }
  return 0;
}

// Trips to memory, of two loads each.
int64_t sum_turns(const Rows& rows, int64_t lanes, const ShapedVDevice& vdevice) {
  return ceil_div(rows.reduced_elements(), 2 * vdevice.compute_threads / lanes);
}

// For items of `width` rows.
std::vector<Arg> sum_args(const ROperator& rop, const Rows& rows, int64_t width) {
  const bool mean = std::get<Reduce>(rop.attrs).kind == ReduceKind::mean;
  const LoopDim& inner = rows.kept.back();
  const auto outer = [&](size_t operand) { return rows.kept.size() == 2 ? rows.kept[0].strides[operand] : 0; };
  return {{"in", arg(TensorArg{rop.inputs[0]})},
          {"out", arg(TensorArg{rop.outputs[0]})},
          {"row_items", divisor_arg(inner.extent / width)},
          {"in_row", arg(outer(0))},
          {"out_row", arg(outer(1))},
          {"out_step", arg(inner.strides[1])},
          {"stride", arg(rows.reduced.empty() ? 0 : rows.reduced[0].strides[0])},
          {"items", arg(rows.rows() * rows.vector / width)},
          {"reduced", arg(rows.reduced_elements())},
          {"scale", float_arg(mean ? 1 / static_cast<double>(rows.reduced_elements()) : 1)}};
}

RKernel sum_rkernel_of(const Request& request, const Rows& rows, int64_t lanes) {
  const ROperator& rop = request.rop;
  Phase phase = early_phase("kernels/reduce/reduce_sum.cuh", "rk::reduce_sum", "rk::ReduceSumArgs");
  phase.template_args = {{"kLanes", std::to_string(lanes)}};
  const Types types = types_of(request.graph, rop);
  add_value_types(phase, types.in, types.out);
  phase.args = sum_args(rop, rows, 4);
  phase.rtasks = ceil_div(rows.rows(), lanes);
  phase.work_bytes = 2 * request.vdevice.compute_threads / 32 * lanes * 16;
  phase.cost.activation_bytes =
      4 * static_cast<double>(lanes) * (types.in_bytes() * static_cast<double>(rows.reduced_elements()) + types.out_bytes());
  // A turn is a trip to L2 by all threads of a rTask; the first is in VDevice::rtask_us.
  phase.cost.latency_us = request.vdevice.cost("reduce.sum_turn_us") * static_cast<double>(sum_turns(rows, lanes, request.vdevice) - 1);
  phase.cost.early_us = request.vdevice.cost("reduce.sum_early_us");
  return one_phase("reduce_sum<" + std::to_string(phase.rtasks) + ">", {{"rows_per_rtask", lanes}, {"splits", 1}}, phase);
}

// --- reduce_octets --------------------------------------------------------------------------------------------------------

// Items side by side in a rTask of reduce_octets; 0 if it cannot do the rOperator, or if there are too few rows for it.
int64_t octet_lanes(const Request& request, const Rows& rows) {
  const Graph& graph = request.graph;
  const Tensor& in = graph.tensor(request.rop.inputs[0]);
  if (!is_sum(graph, request.rop, rows)) return 0;
  const int64_t aligned = is_narrow(in.dtype) ? 8 : 4;
  const auto fits = [aligned](const LoopDim& dim) { return dim.strides[0] % aligned == 0; };
  if (rows.kept.back().extent % 8 != 0 || in.place.offset % aligned != 0) return 0;
  if (!std::all_of(rows.kept.begin(), rows.kept.end() - 1, fits) || !std::all_of(rows.reduced.begin(), rows.reduced.end(), fits)) return 0;
  const int64_t items = rows.rows() * rows.vector / 8;
  for (const int64_t lanes : {32, 64, 128}) {
    if (items <= lanes * request.vdevice.veus()) return lanes;
  }
  return 256;
}

RKernel octets_rkernel_of(const Request& request, const Rows& rows, int64_t lanes) {
  const ROperator& rop = request.rop;
  const Types types = types_of(request.graph, rop);
  Phase phase = body_phase("kernels/reduce/reduce_octets.cuh", "rk::reduce_octets", "rk::ReduceSumArgs");
  phase.template_args = {{"kLanes", std::to_string(lanes)}, {"kBatch", is_narrow(types.in) ? "8" : "4"}};
  add_value_types(phase, types.in, types.out);
  phase.args = sum_args(rop, rows, 8);
  phase.rtasks = ceil_div(rows.rows() * rows.vector / 8, lanes);
  phase.work_bytes = request.vdevice.compute_threads * 8 * 4;
  phase.cost.activation_bytes =
      8 * static_cast<double>(lanes) * (types.in_bytes() * static_cast<double>(rows.reduced_elements()) + types.out_bytes());
  phase.cost.calibrated_cycles =
      request.vdevice.cost("reduce.octets_fixed_cycles") + phase.cost.activation_bytes * request.vdevice.cost("reduce.octets_byte_cycles");
  return one_phase("reduce_octets<" + std::to_string(phase.rtasks) + ">", {{"rows_per_rtask", lanes * 8 / rows.vector}, {"splits", 1}},
                   phase);
}

// --- reduce -------------------------------------------------------------------------------------------------------------------

RKernel rkernel_of(const Request& request, const Rows& rows, int64_t rtasks, int64_t splits) {
  const ROperator& rop = request.rop;
  const Formula formula = formula_of(std::get<Reduce>(rop.attrs).kind);
  const double count = static_cast<double>(rows.reduced_elements());
  const ArgValue in = arg(TensorArg{rop.inputs[0]}), out = arg(TensorArg{rop.outputs[0]});
  const Types types = types_of(request.graph, rop);
  const int64_t per_rtask = rows_per_rtask(rows, rtasks);
  const Cut cut = cut_of(rows, splits);
  RKernel rkernel;
  rkernel.config = {{"rows_per_rtask", per_rtask}, {"splits", cut.splits}};
  if (cut.splits == 1) {
    rkernel.phases = {phase_of(rows, in, out, types, formula, count, cut, per_rtask, request.vdevice)};
  } else {
    Rows second = rows_of_partials(rows, cut.splits);
    lay_threads(second, request.vdevice);
    const Formula partial{formula.prepare, formula.combine, kFinishNone}, rest{kPrepareNone, formula.combine, formula.finish};
    const int64_t second_per_rtask = rows_per_rtask(second, rtasks);
    const ArgValue scratch{ScratchArg{0}};
    rkernel.scratch_elements = rows.rows() * rows.vector * cut.splits;
    rkernel.phases = {
        phase_of(into_scratch(rows), in, scratch, {types.in, DType::f32}, partial, count, cut, per_rtask, request.vdevice),
        phase_of(second, scratch, out, {DType::f32, types.out}, rest, count, cut_of(second, 1), second_per_rtask, request.vdevice)};
    rkernel.config.emplace_back("second_rows_per_rtask", second_per_rtask);
  }
  rkernel.name = "reduce<" + std::to_string(rows.vector) + " wide, " + std::to_string(rkernel.phases[0].rtasks) + ", split " +
                 std::to_string(cut.splits) + ">";
  return rkernel;
}

std::vector<RKernel> offers(const Request& request) {
  const ROperator& rop = request.rop;
  if (!std::holds_alternative<Reduce>(rop.attrs) || has_epilogue(rop)) return {};
  for (const TensorId id : {rop.inputs[0], rop.outputs[0]}) {
    const Tensor& tensor = request.graph.tensor(id);
    if (!is_plain_values(tensor) || (is_narrow(tensor.dtype) && !has_narrow_activations(request.precision))) return {};
  }
  const std::vector<Rows> layouts = layouts_of(rows_of(request.graph, rop), request.vdevice);
  const Rows& rows = layouts[0];
  if (rows.kept.size() > 8 || rows.reduced.size() > 8) return {};
  const int64_t veus = request.vdevice.veus(), lanes = sum_lanes(request.graph, rop, rows, request.vdevice);
  std::vector<RKernel> out;
  // Too many rows for reduce_sum: nothing is faster than loads of whole octets.
  if (const int64_t octets = lanes > 0 ? 0 : octet_lanes(request, rows); octets > 0) return {octets_rkernel_of(request, rows, octets)};
  if (lanes > 0) out.push_back(sum_rkernel_of(request, rows, lanes));
  // Few turns of reduce_sum are faster than anything else.
  const double few_turns = request.vdevice.cost("reduce.sum_few_turns");
  if (lanes > 0 && static_cast<double>(sum_turns(rows, lanes, request.vdevice)) <= few_turns) return out;
  out.push_back(rkernel_of(request, rows, veus, 1));
  const int64_t rtasks = out.back().rtasks();
  if (rtasks > 8) out.push_back(rkernel_of(request, rows, std::max<int64_t>(1, veus / 4), 1));
  // A split is worth a second phase if it leaves every thread some elements.
  const int64_t splits = std::min(veus / rtasks, rows.reduced_elements() * rows.lanes / (request.vdevice.compute_threads * 4));
  if (splits > 1 && std::get<Reduce>(rop.attrs).kind != ReduceKind::log_sum_exp) out.push_back(rkernel_of(request, rows, veus, splits));
  for (size_t i = 1; i < layouts.size(); ++i) out.push_back(rkernel_of(request, layouts[i], veus, 1));
  return out;
}

void accesses(const Graph& graph, const ROperator& rop, const RKernel& rkernel, int phase, int64_t index, Accesses& out) {
  const TensorId from = rop.inputs[0], to = rop.outputs[0];
  const int64_t splits = rkernel.config_value("splits");
  const Rows rows = rows_of(graph, rop);
  const int64_t rtasks = rkernel.phases[static_cast<size_t>(phase)].rtasks / (phase == 0 ? splits : 1);
  const int64_t split = index / rtasks, within = index % rtasks;
  if (phase == 1) {  // the partial results lie split after split; reading all of a split is close enough
    const Rows second = rows_of_partials(rows, splits);
    const int64_t per_rtask = rkernel.config_value("second_rows_per_rtask");
    append_runs(second.kept, 1, to, graph.tensor(to).place.offset, within * per_rtask, std::min((within + 1) * per_rtask, second.rows()),
                out.writes);
    out.reads.push_back({TensorId(), Run{0, 1, 0, rkernel.scratch_elements}});
    return;
  }
  const Rows sweep = splits > 1 ? into_scratch(rows) : rows;
  const int64_t per_rtask = rkernel.config_value("rows_per_rtask") * rows.vector;
  const int64_t begin = within * per_rtask, end = std::min(begin + per_rtask, rows.rows() * rows.vector);
  const int64_t out_offset = splits > 1 ? split * rows.rows() * rows.vector : graph.tensor(to).place.offset;
  append_runs(sweep.kept, 1, splits > 1 ? TensorId() : to, out_offset, begin, end, out.writes);
  append_row_reads(rows, graph, from, begin, end, out.reads);
}

}  // namespace

Family reduce() { return {"reduce", offers, no_pack, accesses}; }

}  // namespace tamp::kernels
