// Host side of scatter.cuh.
#include "kernels/args.h"
#include "kernels/typed/typed.h"

namespace tamp::kernels {
namespace {

constexpr size_t kRank = 8;

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

std::vector<RKernel> offers(const Request& request) {
  const ROperator& rop = request.rop;
  const Graph& graph = request.graph;
  const auto* attrs = std::get_if<Scatter>(&rop.attrs);
  if (attrs == nullptr || has_epilogue(rop) || !all_plain(graph, rop)) return {};
  const Tensor &in = graph.tensor(rop.inputs[0]), &indices = graph.tensor(rop.inputs[1]), &updates = graph.tensor(rop.inputs[2]);
  const Loop loop = loop_of(graph, rop);
  if (loop.size() > kRank) return {};
  const auto axis = static_cast<size_t>(attrs->axis);
  const int64_t elements = loop_elements(loop), count = updates.shape[axis];
  std::vector<int64_t> limits = updates.shape;
  limits[axis] = in.shape[axis];
  const auto looked_at = static_cast<double>(count);
  RKernel rkernel = typed_rkernel(request, "scatter", elements, 1 + looked_at, 60 + 20 * looked_at);
  Phase& phase = rkernel.phases[0];
  if (attrs->kind == ScatterKind::none) {
    phase.body = "rk::typed_scatter_cells";
    phase.template_args = {{"Cell", cell_text(in.dtype)}};
  } else {
    phase.template_args = {{"T", number_text(in.dtype)}, {"kFunction", std::to_string(static_cast<int>(attrs->kind))}};
  }
  phase.args_type = "rk::TypedScatterArgs";
  phase.args = {{"out", arg(TensorArg{rop.outputs[0]})},
                {"in", arg(TensorArg{rop.inputs[0]})},
                {"indices", arg(TensorArg{rop.inputs[1]})},
                {"updates", arg(TensorArg{rop.inputs[2]})},
                {"nest", nest_arg(loop)},
                {"out_strides", array_arg(strides(loop, 0), kRank)},
                {"in_strides", array_arg(strides(loop, 1), kRank)},
                {"index_strides", array_arg(strides(loop, 2), kRank)},
                {"update_strides", array_arg(strides(loop, 3), kRank)},
                {"limits", array_arg(limits, kRank)},
                {"index_step", arg(indices.place.strides[axis])},
                {"update_step", arg(updates.place.strides[axis])},
                {"axis", arg(attrs->axis)},
                {"extent", arg(in.shape[axis])},
                {"count", arg(count)},
                {"type", arg(static_cast<int64_t>(in.dtype))},
                {"index_type", arg(static_cast<int64_t>(indices.dtype))},
                {"elements", arg(elements)},
                {"elements_per_rtask", arg(elements_per_rtask(request, elements))}};
  return {rkernel};
}

}  // namespace

const Family& typed_scatter() {
  static const Family family{"typed_scatter", offers, no_pack, loop_accesses<loop_of>, nullptr, Narrowed::refuses};
  return family;
}

}  // namespace tamp::kernels
