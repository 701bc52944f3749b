// Host side of roi_align.cuh.
#include <algorithm>

#include "kernels/any_type.h"
#include "kernels/args.h"
#include "kernels/family.h"
#include "kernels/sample/regions.h"

namespace tamp::kernels {
namespace {

constexpr int64_t kUsualRatio = 2;  // a guess where the ratio is adaptive and known at run time only

RKernel rkernel_of(const Request& request, int64_t rtasks) {
  const ROperator& rop = request.rop;
  const RoiAlign& attrs = std::get<RoiAlign>(rop.attrs);
  const int64_t ratio = attrs.sampling_ratio > 0 ? attrs.sampling_ratio : kUsualRatio;
  RKernel rkernel = region_rkernel(request, "roi_align", rtasks, static_cast<double>(4 * ratio * ratio));
  Phase& phase = rkernel.phases[0];
  phase.template_args = {{"kLargest", attrs.largest ? "true" : "false"}};
  phase.args_type = "rk::RoiAlignArgs";
  phase.args = {{"in", arg(TensorArg{rop.inputs[0]})},
                {"rois", arg(TensorArg{rop.inputs[1]})},
                {"batch", arg(TensorArg{rop.inputs[2]})},
                {"out", arg(TensorArg{rop.outputs[0]})}};
  for (Arg& common : region_args(request.graph, rop, region_loop(request.graph, rop))) phase.args.push_back(std::move(common));
  const std::vector<Arg> own = {{"batch_stride", arg(request.graph.tensor(rop.inputs[2]).place.strides[0])},
                                {"rows", arg(attrs.height)},
                                {"columns", arg(attrs.width)},
                                {"sampling_ratio", arg(attrs.sampling_ratio)},
                                {"half_pixel", arg(int64_t{attrs.half_pixel})},
                                {"spatial_scale", float_arg(attrs.spatial_scale)},
                                {"elements", arg(element_count(request.graph.tensor(rop.outputs[0]).shape))},
                                {"elements_per_rtask", arg(rkernel.config_value("elements_per_rtask"))}};
  phase.args.insert(phase.args.end(), own.begin(), own.end());
  return rkernel;
}

std::vector<RKernel> offers(const Request& request) {
  const ROperator& rop = request.rop;
  if (!std::holds_alternative<RoiAlign>(rop.attrs) || has_epilogue(rop) || !all_plain_f32(request.graph, rop)) return {};
  const int64_t veus = request.vdevice.veus();
  std::vector<RKernel> out = {rkernel_of(request, veus)};
  if (out[0].rtasks() > 8) out.push_back(rkernel_of(request, std::max<int64_t>(1, veus / 4)));
  return out;
}

}  // namespace

Family roi_align() { return {"roi_align", offers, no_pack, loop_accesses<region_loop>}; }

}  // namespace tamp::kernels
