// Host side of cumulate.cuh.
#include <algorithm>

#include "kernels/any_type.h"
#include "kernels/args.h"
#include "kernels/family.h"
#include "kernels/typed/lines.h"

namespace tamp::kernels {
namespace {

constexpr size_t kRank = 8;

std::vector<RKernel> offers(const Request& request) {
  const ROperator& rop = request.rop;
  const auto* attrs = std::get_if<Cumulate>(&rop.attrs);
  if (attrs == nullptr || has_epilogue(rop) || !all_plain(request.graph, rop)) return {};
  const Tensor &in = request.graph.tensor(rop.inputs[0]), &made = request.graph.tensor(rop.outputs[0]);
  const auto axis = static_cast<size_t>(attrs->axis);
  const Loop loop = lines_of(request.graph, rop, attrs->axis);
  if (loop.size() > kRank) return {};
  const int64_t extent = in.shape[axis], lines = loop_elements(loop);
  std::vector<RKernel> out;
  for (const int64_t lanes : {int64_t{1}, int64_t{32}}) {
    const int64_t at_once = request.vdevice.compute_threads / lanes;
    const int64_t per_rtask = std::max(at_once, ceil_div(lines, request.vdevice.veus()));
    const double rounds = static_cast<double>(ceil_div(std::min(per_rtask, lines), at_once));
    const double steps = rounds * (lanes == 1 ? static_cast<double>(extent) : static_cast<double>(2 * ceil_div(extent, lanes) + 10));
    RKernel rkernel = lines_rkernel(
        request.vdevice, body_phase("kernels/typed/cumulate.cuh", "rk::typed_cumulate", "rk::TypedCumulateArgs"), lines, per_rtask, steps);
    rkernel.name += "<" + std::to_string(lanes) + ">";
    Phase& phase = rkernel.phases[0];
    phase.template_args = {
        {"T", number_text(in.dtype)}, {"kProduct", attrs->product ? "true" : "false"}, {"kLanes", std::to_string(lanes)}};
    phase.args = {{"out", arg(TensorArg{rop.outputs[0]})}, {"in", arg(TensorArg{rop.inputs[0]})}};
    add_nest_args(phase, "lines", loop, {"out_strides", "in_strides"});
    add_args(phase, {{"out_step", arg(made.place.strides[axis])},
                     {"in_step", arg(in.place.strides[axis])},
                     {"extent", arg(extent)},
                     {"line_count", arg(lines)},
                     {"lines_per_rtask", arg(per_rtask)},
                     {"type", arg(static_cast<int64_t>(in.dtype))},
                     {"exclusive", arg(int64_t{attrs->exclusive})},
                     {"reverse", arg(int64_t{attrs->reverse})}});
    out.push_back(rkernel);
  }
  return out;
}

void accesses(const Graph& graph, const ROperator& rop, const RKernel& rkernel, int, int64_t index, Accesses& out) {
  lines_accesses(graph, rop, rkernel, std::get<Cumulate>(rop.attrs).axis, index, out);
}

}  // namespace

Family typed_cumulate() { return {"typed_cumulate", offers, no_pack, accesses, nullptr, Narrowed::refuses}; }

}  // namespace tamp::kernels
