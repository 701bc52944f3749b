// Host side of scatter.cuh.
#include <algorithm>

#include "compiler/ir/in_place.h"
#include "kernels/any_type.h"
#include "kernels/args.h"
#include "kernels/family.h"

namespace tamp::kernels {
namespace {

constexpr size_t kRank = 8;
constexpr int64_t kInPlaceRTasks = 8;
enum ScatterOperand : size_t { kOut, kIn, kIndices, kUpdates };  // places in the loop

// Operands: output, x, indices and updates; the latter two have 0 along the axis. Dimensions stay apart and in their order, as the
// updates may be smaller than x in each of them.
Loop loop_of(const Graph& graph, const ROperator& rop) {
  const Tensor &in = graph.tensor(rop.inputs[0]), &indices = graph.tensor(rop.inputs[1]), &updates = graph.tensor(rop.inputs[2]);
  const Tensor& out = graph.tensor(rop.outputs[0]);
  Loop loop;
  for (size_t d = 0; d < out.shape.size(); ++d) {
    const bool along = d == static_cast<size_t>(std::get<Scatter>(rop.attrs).axis);
    loop.push_back(
        {out.shape[d],
         {out.place.strides[d], in.place.strides[d], along ? 0 : indices.place.strides[d], along ? 0 : updates.place.strides[d]}});
  }
  return loop;
}

// Elements of a cell of 16 bytes, where all operands lie in whole cells whose elements one index is for; else 1. A decoder's cache, into
// which one row is written, is copied four times as fast.
int64_t elements_of_cell(const Graph& graph, const ROperator& rop, const Loop& loop) {
  const auto& attrs = std::get<Scatter>(rop.attrs);
  const Tensor& updates = graph.tensor(rop.inputs[2]);
  const int64_t of_cell = 16 / bytes_of(updates.dtype);
  if (attrs.kind != ScatterKind::none || attrs.axis + 1 == static_cast<int64_t>(loop.size())) return 1;
  const LoopDim& last = loop.back();
  const bool is_row = last.strides[kOut] == 1 && last.strides[kIn] == 1 && last.strides[kUpdates] == 1 && last.strides[kIndices] == 0;
  if (!is_row || last.extent != updates.shape.back() || last.extent % of_cell != 0) return 1;
  const auto is_whole = [&](int64_t elements) { return elements % of_cell == 0; };
  for (size_t d = 0; d + 1 < loop.size(); ++d) {
    for (const size_t operand : {kOut, kIn, kUpdates}) {
      if (loop[d].extent > 1 && !is_whole(loop[d].strides[operand])) return 1;
    }
  }
  for (const TensorId id : {rop.outputs[0], rop.inputs[0], rop.inputs[2]}) {
    if (!is_whole(graph.tensor(id).place.offset)) return 1;
  }
  return is_whole(updates.place.strides[static_cast<size_t>(attrs.axis)]) ? of_cell : 1;
}

// The loop over cells instead of elements.
Loop over_cells(Loop loop, int64_t of_cell) {
  loop.back().extent /= of_cell;
  for (size_t d = 0; d + 1 < loop.size(); ++d) {
    for (const size_t operand : {kOut, kIn, kUpdates}) loop[d].strides[operand] /= of_cell;
  }
  return loop;
}

// Cells behind the axis; 0 if not all elements have the same indices.
int64_t cells_behind(const Loop& loop, size_t axis) {
  const bool are_shared =
      std::all_of(loop.begin(), loop.end(), [](const LoopDim& dim) { return dim.extent == 1 || dim.strides[kIndices] == 0; });
  int64_t behind = are_shared ? 1 : 0;
  for (size_t d = axis + 1; d < loop.size(); ++d) behind *= loop[d].extent;
  return behind;
}

// Where the result may stay in the input's memory, its rTasks look at what the indices name alone, so few of them are enough, and others
// begin sooner. For a caller who gives the result memory of its own these copy everything, which then takes longer than by all vEUs.
void take_few(const Request& request, int64_t cells, int64_t named, int64_t cell_bytes, RKernel& rkernel) {
  Phase& phase = rkernel.phases[0];
  const int64_t per_rtask = std::max(ceil_div(cells, kInPlaceRTasks), request.vdevice.compute_threads);
  if (per_rtask <= rkernel.config_value("elements_per_rtask")) return;
  phase.rtasks = std::max<int64_t>(1, ceil_div(cells, per_rtask));
  const double share = static_cast<double>(named) / static_cast<double>(phase.rtasks);
  phase.cost.activation_bytes = share * 2 * static_cast<double>(cell_bytes);
  phase.cost.flops = share * 60;
  for (Arg& argument : phase.args) {
    if (argument.name == "elements_per_rtask") argument.value = arg(per_rtask);
  }
  rkernel.config = {{"elements_per_rtask", per_rtask}};
}

std::vector<RKernel> offers(const Request& request) {
  const auto& [graph, rop, vdevice, precision] = request;
  const auto* attrs = std::get_if<Scatter>(&rop.attrs);
  if (attrs == nullptr || has_epilogue(rop) || !all_plain(graph, rop)) return {};
  const Tensor &in = graph.tensor(rop.inputs[0]), &indices = graph.tensor(rop.inputs[1]), &updates = graph.tensor(rop.inputs[2]);
  if (loop_of(graph, rop).size() > kRank) return {};
  // Elements of 16 bits are moved as they are; combined, they would be so in the type that they have in memory.
  const DType type = graph.tensor(rop.outputs[0]).dtype;
  if (in.dtype != type || updates.dtype != type || (attrs->kind != ScatterKind::none && touches_narrowed(graph, rop))) return {};
  const int64_t of_cell = elements_of_cell(graph, rop, loop_of(graph, rop));
  const Loop loop = over_cells(loop_of(graph, rop), of_cell);
  const auto axis = static_cast<size_t>(attrs->axis);
  const int64_t cells = loop_elements(loop), count = updates.shape[axis];
  std::vector<int64_t> limits = updates.shape;
  limits.back() /= of_cell;
  limits[axis] = in.shape[axis];
  const int64_t behind = cells_behind(loop, axis);
  const auto looked_at = static_cast<double>(count);
  Phase phase = body_phase("kernels/typed/scatter.cuh", "rk::typed_scatter", "rk::TypedScatterArgs");
  if (attrs->kind == ScatterKind::none) {
    phase.body = "rk::typed_scatter_cells";
    phase.template_args = {{"Cell", of_cell > 1 ? "uint4" : cell_text(in.dtype)}};
  } else {
    phase.template_args = {{"T", number_text(in.dtype)}, {"kFunction", std::to_string(static_cast<int>(attrs->kind))}};
  }
  phase.args = {{"out", arg(TensorArg{rop.outputs[0]})},
                {"in", arg(TensorArg{rop.inputs[0]})},
                {"indices", arg(TensorArg{rop.inputs[1]})},
                {"updates", arg(TensorArg{rop.inputs[2]})}};
  add_nest_args(phase, "nest", loop, {"out_strides", "in_strides", "index_strides", "update_strides"});
  add_args(phase, {{"limits", array_arg(limits, kRank)},
                   {"index_step", arg(indices.place.strides[axis])},
                   {"update_step", arg(updates.place.strides[axis] / of_cell)},
                   {"axis", arg(attrs->axis)},
                   {"extent", arg(in.shape[axis])},
                   {"count", arg(count)},
                   {"behind", arg(behind)},
                   {"type", arg(static_cast<int64_t>(in.dtype))},
                   {"index_type", arg(static_cast<int64_t>(indices.dtype))}});
  RKernel rkernel = typed_rkernel(request, phase, cells, 1 + looked_at, 60 + 20 * looked_at);
  rkernel.name = "typed_scatter";
  if (behind > 0 && may_stay_in_place(graph, rop))
    take_few(request, cells, cells / in.shape[axis] * count, of_cell * bytes_of(in.dtype), rkernel);
  rkernel.config = {{"elements_per_rtask", rkernel.config_value("elements_per_rtask") * of_cell}};
  return {rkernel};
}

}  // namespace

Family typed_scatter() { return {"typed_scatter", offers, no_pack, loop_accesses<loop_of>, nullptr, Narrowed::moves}; }

}  // namespace tamp::kernels
