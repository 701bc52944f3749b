#include "kernels/sample/regions.h"

#include <algorithm>

#include "kernels/any_type.h"
#include "kernels/args.h"

namespace tamp::kernels {

Loop region_loop(const Graph& graph, const ROperator& rop) {
  const Tensor &in = graph.tensor(rop.inputs[0]), &out = graph.tensor(rop.outputs[0]);
  const std::vector<int64_t>& to = out.place.strides;
  return normalised({{out.shape[0], {to[0], 0, 1, 0, 0}},
                     {out.shape[1], {to[1], in.place.strides[1], 0, 0, 0}},
                     {out.shape[2], {to[2], 0, 0, 1, 0}},
                     {out.shape[3], {to[3], 0, 0, 0, 1}}});
}

void add_region_args(const Request& request, Phase& phase) {
  const ROperator& rop = request.rop;
  const Tensor &in = request.graph.tensor(rop.inputs[0]), &rois = request.graph.tensor(rop.inputs[1]);
  add_nest_args(phase, "nest", region_loop(request.graph, rop),
                {"out_strides", "channel_strides", "region_steps", "row_steps", "column_steps"});
  add_args(phase, {{"images", arg(in.shape[0])},
                   {"height", arg(in.shape[2])},
                   {"width", arg(in.shape[3])},
                   {"image_stride", arg(in.place.strides[0])},
                   {"row_stride", arg(in.place.strides[2])},
                   {"column_stride", arg(in.place.strides[3])},
                   {"roi_strides", array_arg(rois.place.strides)}});
}

RKernel region_rkernel(const Request& request, Phase phase, int64_t rtasks, double reads) {
  const int64_t elements = element_count(request.graph.tensor(request.rop.outputs[0]).shape);
  const int64_t per_rtask = std::max(request.vdevice.compute_threads, ceil_div(elements, rtasks));
  phase.rtasks = std::max<int64_t>(1, ceil_div(elements, per_rtask));
  const auto share = static_cast<double>(per_rtask);
  phase.cost.activation_bytes = share * 4 * (6 + reads);
  phase.cost.flops = share * (100 + 20 * reads);
  phase.cost.efficiency = request.vdevice.cost("regions.efficiency");
  add_args(phase, {{"elements", arg(elements)}, {"elements_per_rtask", arg(per_rtask)}});
  return one_phase(name_of_body(phase) + "<" + std::to_string(phase.rtasks) + ">", {{"elements_per_rtask", per_rtask}}, phase);
}

}  // namespace tamp::kernels
