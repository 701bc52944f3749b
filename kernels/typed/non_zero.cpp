// Host side of non_zero.cuh.
#include "kernels/any_type.h"
#include "kernels/args.h"
#include "kernels/family.h"

namespace tamp::kernels {
namespace {

std::vector<RKernel> offers(const Request& request) {
  const ROperator& rop = request.rop;
  if (!std::holds_alternative<NonZero>(rop.attrs) || has_epilogue(rop) || !all_plain(request.graph, rop)) return {};
  const Tensor &in = request.graph.tensor(rop.inputs[0]), &places = request.graph.tensor(rop.outputs[0]);
  const auto extent = static_cast<double>(in.shape[0]);
  Phase phase = body_phase("kernels/typed/non_zero.cuh", "rk::typed_non_zero", "rk::TypedNonZeroArgs");
  phase.args = {{"places", arg(TensorArg{rop.outputs[0]})}, {"count", arg(TensorArg{rop.outputs[1]})},
                {"in", arg(TensorArg{rop.inputs[0]})},      {"place_step", arg(places.place.strides[0])},
                {"in_step", arg(in.place.strides[0])},      {"extent", arg(in.shape[0])}};
  phase.rtasks = 1;
  phase.work_bytes = request.vdevice.compute_threads * 4;
  phase.cost.activation_bytes = 10 * extent;
  phase.cost.flops = 40 * extent + 2000;
  phase.cost.efficiency = request.vdevice.cost("typed.efficiency");
  return {one_phase("typed_non_zero", {}, phase)};
}

void accesses(const Graph& graph, const ROperator& rop, const RKernel&, int, int64_t, Accesses& out) {
  append_whole(graph, rop.inputs[0], out.reads);
  for (const TensorId id : rop.outputs) append_whole(graph, id, out.writes);
}

}  // namespace

Family typed_non_zero() { return {"typed_non_zero", offers, no_pack, accesses, nullptr, Narrowed::refuses}; }

}  // namespace tamp::kernels
