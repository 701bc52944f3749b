// Host side of roi_align.cuh.

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
  Phase phase = body_phase("kernels/sample/roi_align.cuh", "rk::roi_align", "rk::RoiAlignArgs");
  phase.template_args = {{"kLargest", attrs.largest ? "true" : "false"}};
  phase.args = {{"in", arg(TensorArg{rop.inputs[0]})},
                {"rois", arg(TensorArg{rop.inputs[1]})},
                {"batch", arg(TensorArg{rop.inputs[2]})},
                {"out", arg(TensorArg{rop.outputs[0]})}};
  add_region_args(request, phase);
  add_args(phase, {{"batch_stride", arg(request.graph.tensor(rop.inputs[2]).place.strides[0])},
                   {"rows", arg(attrs.height)},
                   {"columns", arg(attrs.width)},
                   {"sampling_ratio", arg(attrs.sampling_ratio)},
                   {"half_pixel", arg(int64_t{attrs.half_pixel})},
                   {"spatial_scale", float_arg(attrs.spatial_scale)}});
  return region_rkernel(request, phase, rtasks, static_cast<double>(4 * ratio * ratio));
}

std::vector<RKernel> offers(const Request& request) {
  const ROperator& rop = request.rop;
  if (!std::holds_alternative<RoiAlign>(rop.attrs) || has_epilogue(rop) || !all_plain_f32(request.graph, rop)) return {};
  return for_all_and_a_quarter(request.vdevice, [&](int64_t rtasks) { return rkernel_of(request, rtasks); });
}

}  // namespace

Family roi_align() { return {"roi_align", offers, no_pack, loop_accesses<region_loop>}; }

}  // namespace tamp::kernels
