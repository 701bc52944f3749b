// Host side of grid_sample.cuh.
#include <algorithm>

#include "kernels/any_type.h"
#include "kernels/args.h"
#include "kernels/family.h"
#include "kernels/loop.h"
#include "kernels/sample/numbers.cuh"

namespace tamp::kernels {
namespace {

constexpr size_t kRank = rk::kSampleRank;
static_assert(static_cast<int>(Interpolation::linear) == rk::kSampleLinear &&
              static_cast<int>(Interpolation::nearest) == rk::kSampleNearest &&
              static_cast<int>(Interpolation::cubic) == rk::kSampleCubic && static_cast<int>(Outside::zeros) == rk::kSampleZeros &&
              static_cast<int>(Outside::border) == rk::kSampleBorder && static_cast<int>(Outside::reflection) == rk::kSampleReflection);

// Operands: output, x (batch and channel), grid (batch and pixel).
Loop loop_of(const Graph& graph, const ROperator& rop) {
  const std::vector<int64_t>& in = graph.tensor(rop.inputs[0]).place.strides;
  const std::vector<int64_t>& grid = graph.tensor(rop.inputs[1]).place.strides;
  const Tensor& out = graph.tensor(rop.outputs[0]);
  const std::vector<int64_t>& to = out.place.strides;
  return normalised({{out.shape[0], {to[0], in[0], grid[0]}},
                     {out.shape[1], {to[1], in[1], 0}},
                     {out.shape[2], {to[2], 0, grid[1]}},
                     {out.shape[3], {to[3], 0, grid[2]}}});
}

RKernel rkernel_of(const Request& request, const Loop& loop, int64_t rtasks) {
  const ROperator& rop = request.rop;
  const GridSample& attrs = std::get<GridSample>(rop.attrs);
  const Tensor &in = request.graph.tensor(rop.inputs[0]), &grid = request.graph.tensor(rop.inputs[1]);
  const int64_t elements = loop_elements(loop);
  const int64_t per_rtask = std::max(request.vdevice.compute_threads, ceil_div(elements, rtasks));
  const int64_t taps = attrs.mode == Interpolation::linear ? 4 : attrs.mode == Interpolation::nearest ? 1 : 16;
  Phase phase = body_phase("kernels/sample/grid_sample.cuh", "rk::grid_sample", "rk::GridSampleArgs");
  phase.template_args = {{"kMode", std::to_string(static_cast<int>(attrs.mode))}};
  phase.args = {{"in", arg(TensorArg{rop.inputs[0]})},
                {"grid", arg(TensorArg{rop.inputs[1]})},
                {"out", arg(TensorArg{rop.outputs[0]})},
                {"nest", nest_arg(loop)},
                {"out_strides", array_arg(strides(loop, 0), kRank)},
                {"in_strides", array_arg(strides(loop, 1), kRank)},
                {"grid_strides", array_arg(strides(loop, 2), kRank)},
                {"elements", arg(elements)},
                {"elements_per_rtask", arg(per_rtask)},
                {"height", arg(in.shape[2])},
                {"width", arg(in.shape[3])},
                {"row_stride", arg(in.place.strides[2])},
                {"column_stride", arg(in.place.strides[3])},
                {"coordinate_stride", arg(grid.place.strides[3])},
                {"padding", arg(static_cast<int64_t>(attrs.padding))},
                {"align_corners", arg(int64_t{attrs.align_corners})},
                {"in_pixels", arg(int64_t{attrs.in_pixels})}};
  phase.rtasks = std::max<int64_t>(1, ceil_div(elements, per_rtask));
  const auto share = static_cast<double>(per_rtask);
  phase.cost.activation_bytes = share * 4 * static_cast<double>(3 + taps);
  phase.cost.flops = share * (80 + 12 * static_cast<double>(taps));  // places and weights are found for every element
  phase.cost.efficiency = request.vdevice.cost("grid_sample.efficiency");
  const std::string name = std::string("grid_sample<") + name_of(attrs.mode) + ", " + std::to_string(phase.rtasks) + ">";
  return one_phase(name, {{"elements_per_rtask", per_rtask}}, phase);
}

std::vector<RKernel> offers(const Request& request) {
  const ROperator& rop = request.rop;
  if (!std::holds_alternative<GridSample>(rop.attrs) || has_epilogue(rop) || !all_plain_f32(request.graph, rop)) return {};
  if (request.graph.tensor(rop.outputs[0]).shape.size() != 4) return {};
  const Loop loop = loop_of(request.graph, rop);
  return for_all_and_a_quarter(request.vdevice, [&](int64_t rtasks) { return rkernel_of(request, loop, rtasks); });
}

}  // namespace

// Any pixel of x may be asked for.
Family grid_sample() { return {"grid_sample", offers, no_pack, loop_accesses<loop_of>}; }

}  // namespace tamp::kernels
