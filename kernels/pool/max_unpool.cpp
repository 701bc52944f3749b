// Host side of max_unpool.cuh.
#include "kernels/any_type.h"
#include "kernels/args.h"
#include "kernels/family.h"

namespace tamp::kernels {
namespace {

constexpr size_t kRank = 8;

// The elements of a tensor row by row.
Loop rows_of(const Tensor& tensor) { return merged(loop_over(tensor.shape, tensor.place.strides)); }

std::vector<RKernel> offers(const Request& request) {
  const auto& [graph, rop, vdevice, precision] = request;
  if (!std::holds_alternative<MaxUnpool>(rop.attrs) || has_epilogue(rop) || !all_plain(graph, rop)) return {};
  const Tensor &in = graph.tensor(rop.inputs[0]), &indices = graph.tensor(rop.inputs[1]), &out = graph.tensor(rop.outputs[0]);
  if (in.dtype != DType::f32 || indices.dtype != DType::i64) return {};
  const Loop to = rows_of(out), from = rows_of(in), by = rows_of(indices);
  if (to.size() > kRank || from.size() > kRank || by.size() > kRank) return {};
  const int64_t elements = loop_elements(to), given = loop_elements(from);
  Phase body = body_phase("kernels/pool/max_unpool.cuh", "rk::max_unpool", "rk::MaxUnpoolArgs");
  body.args = {{"out", arg(TensorArg{rop.outputs[0]})},
               {"in", arg(TensorArg{rop.inputs[0]})},
               {"indices", arg(TensorArg{rop.inputs[1]})},
               {"out_nest", nest_arg(to)},
               {"in_nest", nest_arg(from)},
               {"index_nest", nest_arg(by)},
               {"out_strides", array_arg(strides(to, 0), kRank)},
               {"in_strides", array_arg(strides(from, 0), kRank)},
               {"index_strides", array_arg(strides(by, 0), kRank)}};
  body.work_bytes = 16;
  RKernel rkernel = typed_rkernel(request, body, elements, 0, 20);
  Phase& phase = rkernel.phases[0];
  add_args(phase, {{"elements_in", arg(given)}});
  // Every rTask reads all indices.
  phase.cost.activation_bytes += 8 * static_cast<double>(given);
  phase.cost.flops += 20 * static_cast<double>(given);
  return {rkernel};
}

Loop out_rows(const Graph& graph, const ROperator& rop) { return rows_of(graph.tensor(rop.outputs[0])); }

}  // namespace

Family max_unpool() { return {"max_unpool", offers, no_pack, loop_accesses<out_rows>, nullptr, Narrowed::refuses}; }

}  // namespace tamp::kernels
