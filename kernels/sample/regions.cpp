#include "kernels/sample/regions.h"

#include <algorithm>

#include "kernels/any_type.h"
#include "kernels/args.h"

namespace tamp::kernels {
namespace {

constexpr size_t kRank = 8;

}  // namespace

Loop region_loop(const Graph& graph, const ROperator& rop) {
  const Tensor &in = graph.tensor(rop.inputs[0]), &out = graph.tensor(rop.outputs[0]);
  const std::vector<int64_t>& to = out.place.strides;
  return normalised({{out.shape[0], {to[0], 0, 1, 0, 0}},
                     {out.shape[1], {to[1], in.place.strides[1], 0, 0, 0}},
                     {out.shape[2], {to[2], 0, 0, 1, 0}},
                     {out.shape[3], {to[3], 0, 0, 0, 1}}});
}

std::vector<Arg> region_args(const Graph& graph, const ROperator& rop, const Loop& loop) {
  const Tensor& in = graph.tensor(rop.inputs[0]);
  return {{"nest", nest_arg(loop)},
          {"out_strides", array_arg(strides(loop, 0), kRank)},
          {"channel_strides", array_arg(strides(loop, 1), kRank)},
          {"region_steps", array_arg(strides(loop, 2), kRank)},
          {"row_steps", array_arg(strides(loop, 3), kRank)},
          {"column_steps", array_arg(strides(loop, 4), kRank)},
          {"images", arg(in.shape[0])},
          {"height", arg(in.shape[2])},
          {"width", arg(in.shape[3])},
          {"image_stride", arg(in.place.strides[0])},
          {"row_stride", arg(in.place.strides[2])},
          {"column_stride", arg(in.place.strides[3])},
          {"roi_strides", array_arg(graph.tensor(rop.inputs[1]).place.strides)}};
}

RKernel region_rkernel(const Request& request, const std::string& name, int64_t rtasks, double reads) {
  const int64_t elements = element_count(request.graph.tensor(request.rop.outputs[0]).shape);
  const int64_t per_rtask = std::max(request.vdevice.compute_threads, ceil_div(elements, rtasks));
  Phase phase;
  phase.header = "kernels/sample/" + name + ".cuh";
  phase.body = "rk::" + name;
  phase.rtasks = std::max<int64_t>(1, ceil_div(elements, per_rtask));
  const auto share = static_cast<double>(per_rtask);
  phase.cost.activation_bytes = share * 4 * (6 + reads);
  phase.cost.flops = share * (100 + 20 * reads);
  phase.cost.efficiency = request.vdevice.cost("regions.efficiency");
  RKernel rkernel;
  rkernel.family = name;
  rkernel.name = name + "<" + std::to_string(phase.rtasks) + ">";
  rkernel.config = {{"elements_per_rtask", per_rtask}};
  rkernel.phases = {phase};
  return rkernel;
}

}  // namespace tamp::kernels
