// Host side of matmul.cuh.
#include "kernels/any_type.h"
#include "kernels/args.h"
#include "kernels/family.h"
#include "kernels/typed/numbers.cuh"

namespace tamp::kernels {
namespace {

constexpr size_t kRank = rk::kNestRank;

// Operands: output, A, B.
Loop loop_of(const Graph& graph, const ROperator& rop) {
  const auto& attrs = std::get<MatMul>(rop.attrs);
  const Tensor &a = graph.tensor(rop.inputs[0]), &b = graph.tensor(rop.inputs[1]), &out = graph.tensor(rop.outputs[0]);
  const size_t rank = out.shape.size();
  const auto batch_stride = [&](const Tensor& t, size_t d) -> int64_t {
    const size_t shift = rank - t.shape.size();
    return d < shift || t.shape[d - shift] == 1 ? 0 : t.place.strides[d - shift];
  };
  Loop loop;
  for (size_t d = 0; d + 2 < rank; ++d) loop.push_back({out.shape[d], {out.place.strides[d], batch_stride(a, d), batch_stride(b, d)}});
  const size_t a_row = a.shape.size() - (attrs.trans_a ? 1 : 2), b_column = b.shape.size() - (attrs.trans_b ? 2 : 1);
  loop.push_back({out.shape[rank - 2], {out.place.strides[rank - 2], a.place.strides[a_row], 0}});
  loop.push_back({out.shape[rank - 1], {out.place.strides[rank - 1], 0, b.place.strides[b_column]}});
  return normalised(loop);
}

std::vector<RKernel> offers(const Request& request) {
  const ROperator& rop = request.rop;
  const auto* attrs = std::get_if<MatMul>(&rop.attrs);
  if (attrs == nullptr || has_epilogue(rop) || all_f32(request.graph, rop) || !all_plain(request.graph, rop)) return {};
  const Tensor &a = request.graph.tensor(rop.inputs[0]), &b = request.graph.tensor(rop.inputs[1]);
  const bool has_c = operand(rop, 2).valid();
  if (has_c || (attrs->alpha != 1 && !is_float(a.dtype))) return {};
  const Loop loop = loop_of(request.graph, rop);
  if (loop.size() > kRank) return {};
  const size_t a_step = a.shape.size() - (attrs->trans_a ? 2 : 1), b_step = b.shape.size() - (attrs->trans_b ? 1 : 2);
  const int64_t count = a.shape[a_step], elements = loop_elements(loop), threads = request.vdevice.compute_threads;
  const int64_t lanes = elements < threads * request.vdevice.veus() ? rk::kWarp : 1;  // of a warp, for one result
  Phase phase = body_phase("kernels/typed/matmul.cuh", "rk::typed_matmul", "rk::TypedMatMulArgs");
  phase.template_args = {{"T", number_text(a.dtype)}, {"LANES", std::to_string(lanes)}};
  phase.args = {{"out", arg(TensorArg{rop.outputs[0]})}, {"a", arg(TensorArg{rop.inputs[0]})}, {"b", arg(TensorArg{rop.inputs[1]})}};
  add_nest_args(phase, "nest", loop, {"out_strides", "a_strides", "b_strides"});
  add_args(phase, {{"a_step", arg(a.place.strides[a_step])},
                   {"b_step", arg(b.place.strides[b_step])},
                   {"count", arg(count)},
                   {"type", arg(static_cast<int64_t>(a.dtype))},
                   {"alpha", float_arg(attrs->alpha)}});
  return {typed_rkernel(request, phase, elements, 2 * static_cast<double>(count), 30 * static_cast<double>(count), lanes)};
}

}  // namespace

Family typed_matmul() { return {"typed_matmul", offers, no_pack, loop_accesses<loop_of>, nullptr, Narrowed::refuses}; }

}  // namespace tamp::kernels
