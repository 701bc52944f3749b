// Host side of max_roi_pool.cuh.
#include <algorithm>

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
  RKernel rkernel = region_rkernel(request, "max_roi_pool", rtasks, kUsualPixels);
  Phase& phase = rkernel.phases[0];
  phase.args_type = "rk::MaxRoiPoolArgs";
  phase.args = {{"in", arg(TensorArg{rop.inputs[0]})}, {"rois", arg(TensorArg{rop.inputs[1]})}, {"out", arg(TensorArg{rop.outputs[0]})}};
  for (Arg& common : region_args(request.graph, rop, region_loop(request.graph, rop))) phase.args.push_back(std::move(common));
  const std::vector<Arg> own = {{"rows", arg(attrs.height)},
                                {"columns", arg(attrs.width)},
                                {"spatial_scale", float_arg(attrs.spatial_scale)},
                                {"elements", arg(element_count(request.graph.tensor(rop.outputs[0]).shape))},
                                {"elements_per_rtask", arg(rkernel.config_value("elements_per_rtask"))}};
  phase.args.insert(phase.args.end(), own.begin(), own.end());
  return rkernel;
}

std::vector<RKernel> offers(const Request& request) {
  const ROperator& rop = request.rop;
  if (!std::holds_alternative<MaxRoiPool>(rop.attrs) || has_epilogue(rop) || !all_plain_f32(request.graph, rop)) return {};
  const int64_t veus = request.vdevice.veus();
  std::vector<RKernel> out = {rkernel_of(request, veus)};
  if (out[0].rtasks() > 8) out.push_back(rkernel_of(request, std::max<int64_t>(1, veus / 4)));
  return out;
}

}  // namespace

Family max_roi_pool() { return {"max_roi_pool", offers, no_pack, loop_accesses<region_loop>}; }

}  // namespace tamp::kernels
