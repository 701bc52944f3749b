// Host side of gather.cuh.
#include <algorithm>

#include "kernels/any_type.h"
#include "kernels/args.h"
#include "kernels/family.h"
#include "kernels/typed/numbers.cuh"

namespace tamp::kernels {
namespace {

constexpr size_t kRank = rk::kNestRank;

// Operands: output, x, indices.
Loop loop_of(const Graph& graph, const ROperator& rop) {
  const Tensor &in = graph.tensor(rop.inputs[0]), &indices = graph.tensor(rop.inputs[1]), &out = graph.tensor(rop.outputs[0]);
  const size_t axis = static_cast<size_t>(std::get<Gather>(rop.attrs).axis), index_rank = indices.shape.size();
  Loop loop;
  for (size_t d = 0; d < out.shape.size(); ++d) {
    const bool selects = d >= axis && d < axis + index_rank;
    const size_t from = d < axis ? d : d - index_rank + 1;
    loop.push_back(
        {out.shape[d], {out.place.strides[d], selects ? 0 : in.place.strides[from], selects ? indices.place.strides[d - axis] : 0}});
  }
  return normalised(loop);
}

constexpr int64_t kPieceBytes = 16, kPiecesAtOnce = 8;

// Whether x and the output have rows of contiguous elements that are whole, aligned pieces.
bool has_rows(const Graph& graph, const ROperator& rop, const Loop& loop) {
  const Tensor &in = graph.tensor(rop.inputs[0]), &out = graph.tensor(rop.outputs[0]);
  if (loop.empty() || loop.back().strides != std::vector<int64_t>{1, 1, 0}) return false;
  const int64_t cells = kPieceBytes / bytes_of(in.dtype);
  const auto aligned = [&](int64_t elements) { return elements % cells == 0; };
  const auto steps_aligned = [&](const LoopDim& dim) { return aligned(dim.strides[0]) && aligned(dim.strides[1]); };
  return aligned(loop.back().extent) && aligned(in.place.offset) && aligned(out.place.offset) &&
         aligned(in.place.strides[static_cast<size_t>(std::get<Gather>(rop.attrs).axis)]) &&
         std::all_of(loop.begin(), loop.end() - 1, steps_aligned);
}

std::string index_text(DType dtype) {
  if (dtype == DType::i64 || dtype == DType::u64) return "int64_t";
  return (dtype == DType::i8 || dtype == DType::i16 || dtype == DType::i32 ? "int" : "uint") + std::to_string(8 * bytes_of(dtype)) + "_t";
}

// Turns the rKernel into one of typed_gather_rows.
void copy_rows(const Request& request, const Loop& loop, RKernel& rkernel) {
  const ROperator& rop = request.rop;
  const Tensor &in = request.graph.tensor(rop.inputs[0]), &indices = request.graph.tensor(rop.inputs[1]);
  const int64_t cells = kPieceBytes / bytes_of(in.dtype), pieces = loop_elements(loop) / cells;
  const int64_t per_rtask = ceil_div(pieces, request.vdevice.veus());
  Loop rows = loop;
  rows.pop_back();
  const auto pieces_of = [&](size_t operand) {
    std::vector<int64_t> out = strides(rows, operand);
    for (int64_t& stride : out) stride /= cells;
    return array_arg(out, kRank);
  };
  Phase& phase = rkernel.phases[0];
  set_body(phase, "kernels/typed/gather.cuh", "rk::typed_gather_rows", "rk::TypedGatherRowsArgs");
  phase.template_args = {{"Index", index_text(indices.dtype)}, {"kPieces", std::to_string(kPiecesAtOnce)}};
  phase.args = {{"out", arg(TensorArg{rop.outputs[0]})},
                {"in", arg(TensorArg{rop.inputs[0]})},
                {"indices", arg(TensorArg{rop.inputs[1]})},
                {"nest", nest_arg(rows)},
                {"out_strides", pieces_of(0)},
                {"in_strides", pieces_of(1)},
                {"index_strides", array_arg(strides(rows, 2), kRank)},
                {"axis_stride", arg(in.place.strides[static_cast<size_t>(std::get<Gather>(rop.attrs).axis)] / cells)},
                {"extent", arg(in.shape[static_cast<size_t>(std::get<Gather>(rop.attrs).axis)])},
                {"row_pieces", divisor_arg(loop.back().extent / cells)},
                {"pieces", arg(pieces)},
                {"pieces_per_rtask", arg(per_rtask)}};
  phase.rtasks = ceil_div(pieces, per_rtask);
  phase.cost = {};
  phase.cost.activation_bytes = 2 * static_cast<double>(kPieceBytes * per_rtask);
  const int64_t turns = ceil_div(per_rtask, kPiecesAtOnce * request.vdevice.compute_threads);
  phase.cost.latency_us = request.vdevice.cost("typed.turn_us") * static_cast<double>(turns - 1);
  rkernel.name = "typed_gather<rows>";
  rkernel.config = {{"elements_per_rtask", per_rtask * cells}};
}

std::vector<RKernel> offers(const Request& request) {
  const ROperator& rop = request.rop;
  const auto* gather = std::get_if<Gather>(&rop.attrs);
  if (gather == nullptr || has_epilogue(rop) || !all_plain(request.graph, rop)) return {};
  const Tensor &in = request.graph.tensor(rop.inputs[0]), &indices = request.graph.tensor(rop.inputs[1]);
  const Loop loop = loop_of(request.graph, rop);
  if (indices.role == Role::constant || !is_integer(indices.dtype) || loop.size() > kRank || element_count(in.shape) == 0) return {};
  const auto axis = static_cast<size_t>(gather->axis);
  const int64_t elements = loop_elements(loop);
  Phase phase = body_phase("kernels/typed/gather.cuh", "rk::typed_gather", "rk::TypedGatherArgs");
  phase.template_args = {{"Cell", cell_text(in.dtype)}};
  phase.args = {{"out", arg(TensorArg{rop.outputs[0]})}, {"in", arg(TensorArg{rop.inputs[0]})}, {"indices", arg(TensorArg{rop.inputs[1]})}};
  add_nest_args(phase, "nest", loop, {"out_strides", "in_strides", "index_strides"});
  add_args(phase, {{"axis_stride", arg(in.place.strides[axis])},
                   {"extent", arg(in.shape[axis])},
                   {"index_type", arg(static_cast<int64_t>(indices.dtype))}});
  RKernel rkernel = typed_rkernel(request, phase, elements, 2, 40);
  // Where its threads have an element each, a rTask gains little by pieces.
  if (has_rows(request.graph, rop, loop) && elements > request.vdevice.compute_threads * request.vdevice.veus())
    copy_rows(request, loop, rkernel);
  return {rkernel};
}

}  // namespace

Family typed_gather() { return {"typed_gather", offers, no_pack, loop_accesses<loop_of>, nullptr, Narrowed::refuses}; }

}  // namespace tamp::kernels
