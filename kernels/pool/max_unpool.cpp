// Host side of max_unpool.cuh.
#include "kernels/any_type.h"
#include "kernels/args.h"
#include "kernels/family.h"

namespace tamp::kernels {
namespace {

constexpr size_t kRank = 8;

// The elements of a tensor row by row.
Loop rows_of(const Tensor& tensor) {
  Loop loop;
  for (size_t d = 0; d < tensor.shape.size(); ++d) loop.push_back({tensor.shape[d], {tensor.place.strides[d]}});
  return merged(loop);
}

std::vector<RKernel> offers(const Request& request) {
  const ROperator& rop = request.rop;
  const Graph& graph = request.graph;
  if (!std::holds_alternative<MaxUnpool>(rop.attrs) || has_epilogue(rop) || !all_plain(graph, rop)) return {};
  const Tensor &in = graph.tensor(rop.inputs[0]), &indices = graph.tensor(rop.inputs[1]), &out = graph.tensor(rop.outputs[0]);
  if (in.dtype != DType::f32 || indices.dtype != DType::i64) return {};
  const Loop to = rows_of(out), from = rows_of(in), by = rows_of(indices);
  if (to.size() > kRank || from.size() > kRank || by.size() > kRank) return {};
  const int64_t elements = loop_elements(to), given = loop_elements(from);
  // Every rTask reads all indices.
  RKernel rkernel = typed_rkernel(request, "copy", elements, 0, 20);
  rkernel.family = rkernel.name = "max_unpool";
  Phase& phase = rkernel.phases[0];
  phase.cost.activation_bytes += 8 * static_cast<double>(given);
  phase.cost.flops += 20 * static_cast<double>(given);
  phase.work_bytes = 16;
  phase.header = "kernels/pool/max_unpool.cuh";
  phase.body = "rk::max_unpool";
  phase.args_type = "rk::MaxUnpoolArgs";
  phase.args = {{"out", arg(TensorArg{rop.outputs[0]})},
                {"in", arg(TensorArg{rop.inputs[0]})},
                {"indices", arg(TensorArg{rop.inputs[1]})},
                {"out_nest", nest_arg(to)},
                {"in_nest", nest_arg(from)},
                {"index_nest", nest_arg(by)},
                {"out_strides", array_arg(strides(to, 0), kRank)},
                {"in_strides", array_arg(strides(from, 0), kRank)},
                {"index_strides", array_arg(strides(by, 0), kRank)},
                {"elements", arg(elements)},
                {"elements_per_rtask", arg(elements_per_rtask(request, elements))},
                {"elements_in", arg(given)}};
  return {rkernel};
}

void accesses(const Graph& graph, const ROperator& rop, const RKernel& rkernel, int, int64_t index, Accesses& out) {
  typed_accesses(graph, rop, rkernel, rows_of(graph.tensor(rop.outputs[0])), index, out);
}

}  // namespace

Family max_unpool() { return {"max_unpool", offers, no_pack, accesses, nullptr, Narrowed::refuses}; }

}  // namespace tamp::kernels
