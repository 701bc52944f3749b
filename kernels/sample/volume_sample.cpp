// Host side of volume_sample.cuh.

#include "kernels/any_type.h"
#include "kernels/args.h"
#include "kernels/family.h"
#include "kernels/loop.h"

namespace tamp::kernels {
namespace {

// Operands: output, x (batch and channel), grid (batch and pixel).
Loop loop_of(const Graph& graph, const ROperator& rop) {
  const std::vector<int64_t>& in = graph.tensor(rop.inputs[0]).place.strides;
  const std::vector<int64_t>& grid = graph.tensor(rop.inputs[1]).place.strides;
  const Tensor& out = graph.tensor(rop.outputs[0]);
  Loop loop;
  for (size_t d = 0; d < out.shape.size(); ++d)
    loop.push_back({out.shape[d], {out.place.strides[d], d < 2 ? in[d] : 0, d == 0 ? grid[0] : d == 1 ? 0 : grid[d - 1]}});
  return normalised(loop);
}

std::vector<RKernel> offers(const Request& request) {
  const ROperator& rop = request.rop;
  const auto* attrs = std::get_if<GridSample>(&rop.attrs);
  if (attrs == nullptr || has_epilogue(rop) || !all_plain_f32(request.graph, rop)) return {};
  const Tensor &in = request.graph.tensor(rop.inputs[0]), &grid = request.graph.tensor(rop.inputs[1]);
  if (in.shape.size() != 5 || attrs->mode == Interpolation::cubic || attrs->in_pixels) return {};
  const Loop loop = loop_of(request.graph, rop);
  const int64_t elements = loop_elements(loop), taps = attrs->mode == Interpolation::linear ? 8 : 1;
  const auto last_three = [](const std::vector<int64_t>& list) { return std::vector<int64_t>(list.end() - 3, list.end()); };
  Phase phase = body_phase("kernels/sample/volume_sample.cuh", "rk::volume_sample", "rk::VolumeSampleArgs");
  phase.template_args = {{"kMode", std::to_string(static_cast<int>(attrs->mode))}};
  phase.args = {{"in", arg(TensorArg{rop.inputs[0]})}, {"grid", arg(TensorArg{rop.inputs[1]})}, {"out", arg(TensorArg{rop.outputs[0]})}};
  add_nest_args(phase, "nest", loop, {"out_strides", "in_strides", "grid_strides"});
  add_args(phase, {{"extents", array_arg(last_three(in.shape))},
                   {"steps", array_arg(last_three(in.place.strides))},
                   {"coordinate_stride", arg(grid.place.strides[4])},
                   {"padding", arg(static_cast<int64_t>(attrs->padding))},
                   {"align_corners", arg(int64_t{attrs->align_corners})}});
  RKernel rkernel = typed_rkernel(request, phase, elements, static_cast<double>(taps + 3), 120 + 12 * static_cast<double>(taps));
  rkernel.name += std::string("<") + name_of(attrs->mode) + ">";
  return {rkernel};
}

}  // namespace

// Any pixel of x may be asked for.
Family volume_sample() { return {"volume_sample", offers, no_pack, loop_accesses<loop_of>}; }

}  // namespace tamp::kernels
