// Host side of max_roi_pool.cuh.

#include "kernels/any_type.h"
#include "kernels/args.h"
#include "kernels/family.h"
#include "kernels/sample/regions.h"

namespace tamp::kernels {
namespace {

constexpr double kUsualPixels = 9;  // pixels of a bin; a guess, since the number is known at run time only

RKernel rkernel_of(const Request& request, int64_t rtasks) {
  const ROperator& rop = request.rop;
  const MaxRoiPool& attrs = std::get<MaxRoiPool>(rop.attrs);
  Phase phase = body_phase("kernels/sample/max_roi_pool.cuh", "rk::max_roi_pool", "rk::MaxRoiPoolArgs");
  phase.args = {{"in", arg(TensorArg{rop.inputs[0]})}, {"rois", arg(TensorArg{rop.inputs[1]})}, {"out", arg(TensorArg{rop.outputs[0]})}};
  add_region_args(request, phase);
  add_args(phase, {{"rows", arg(attrs.height)}, {"columns", arg(attrs.width)}, {"spatial_scale", float_arg(attrs.spatial_scale)}});
  return region_rkernel(request, phase, rtasks, kUsualPixels);
}

std::vector<RKernel> offers(const Request& request) {
  const ROperator& rop = request.rop;
  if (!std::holds_alternative<MaxRoiPool>(rop.attrs) || has_epilogue(rop) || !all_plain_f32(request.graph, rop)) return {};
  return for_all_and_a_quarter(request.vdevice, [&](int64_t rtasks) { return rkernel_of(request, rtasks); });
}

}  // namespace

Family max_roi_pool() { return {"max_roi_pool", offers, no_pack, loop_accesses<region_loop>}; }

}  // namespace tamp::kernels
