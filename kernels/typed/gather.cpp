// Host side of gather.cuh.
#include "kernels/args.h"
#include "kernels/typed/numbers.cuh"
#include "kernels/typed/typed.h"

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

std::vector<RKernel> offers(const Request& request) {
  const ROperator& rop = request.rop;
  const auto* gather = std::get_if<Gather>(&rop.attrs);
  if (gather == nullptr || has_epilogue(rop) || !all_plain(request.graph, rop)) return {};
  const Tensor &in = request.graph.tensor(rop.inputs[0]), &indices = request.graph.tensor(rop.inputs[1]);
  const Loop loop = loop_of(request.graph, rop);
  if (indices.role == Role::constant || !is_integer(indices.dtype) || loop.size() > kRank || element_count(in.shape) == 0) return {};
  const auto axis = static_cast<size_t>(gather->axis);
  const int64_t elements = loop_elements(loop);
  RKernel rkernel = typed_rkernel(request, "gather", elements, 2, 40);
  Phase& phase = rkernel.phases[0];
  phase.template_args = {{"Cell", cell_text(in.dtype)}};
  phase.args_type = "rk::TypedGatherArgs";
  phase.args = {{"out", arg(TensorArg{rop.outputs[0]})},
                {"in", arg(TensorArg{rop.inputs[0]})},
                {"indices", arg(TensorArg{rop.inputs[1]})},
                {"nest", nest_arg(loop)},
                {"out_strides", array_arg(strides(loop, 0), kRank)},
                {"in_strides", array_arg(strides(loop, 1), kRank)},
                {"index_strides", array_arg(strides(loop, 2), kRank)},
                {"axis_stride", arg(in.place.strides[axis])},
                {"extent", arg(in.shape[axis])},
                {"index_type", arg(static_cast<int64_t>(indices.dtype))},
                {"elements", arg(elements)},
                {"elements_per_rtask", arg(elements_per_rtask(request, elements))}};
  return {rkernel};
}

}  // namespace

const Family& typed_gather() {
  static const Family family{"typed_gather", offers, no_pack, loop_accesses<loop_of>, nullptr, Narrowed::refuses};
  return family;
}

}  // namespace tamp::kernels
