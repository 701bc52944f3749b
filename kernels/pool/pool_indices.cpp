// Host side of pool_indices.cuh.
#include "kernels/any_type.h"
#include "kernels/args.h"
#include "kernels/family.h"

namespace tamp::kernels {
namespace {

// With three spatial dimensions, of which the first may be added: of [N,C,spatial..], and of spatial dimensions alone.
std::vector<int64_t> in_five(const std::vector<int64_t>& values, int64_t added) { return with_dimensions(values, 2, 5, added); }
std::vector<int64_t> in_three(const std::vector<int64_t>& values, int64_t added) { return with_dimensions(values, 0, 3, added); }

Loop loop_of(const Graph& graph, const ROperator& rop) {
  const Tensor& out = graph.tensor(rop.outputs[0]);
  return loop_over(in_five(out.shape, 1), in_five(out.place.strides, 0));
}

// What a step along image, channel, plane, row, column of x adds to an element's number.
std::vector<int64_t> counts_of(const std::vector<int64_t>& shape, bool column_major) {
  const int64_t depth = shape[2], height = shape[3], width = shape[4], pixels = depth * height * width;
  if (column_major) return {shape[1] * pixels, pixels, 1, depth, depth * height};
  return {shape[1] * pixels, pixels, height * width, width, 1};
}

std::vector<RKernel> offers(const Request& request) {
  const ROperator& rop = request.rop;
  const auto* attrs = std::get_if<PoolIndices>(&rop.attrs);
  if (attrs == nullptr || has_epilogue(rop) || !all_plain(request.graph, rop)) return {};
  const Tensor& in = request.graph.tensor(rop.inputs[0]);
  if (in.dtype != DType::f32) return {};
  const Loop loop = loop_of(request.graph, rop);
  const std::vector<int64_t> shape = in_five(in.shape, 1);
  double taps = 1;
  for (const int64_t extent : attrs->kernel) taps *= static_cast<double>(extent);
  Phase phase = body_phase("kernels/pool/pool_indices.cuh", "rk::pool_indices", "rk::PoolIndicesArgs");
  phase.args = {{"out", arg(TensorArg{rop.outputs[0]})},
                {"in", arg(TensorArg{rop.inputs[0]})},
                {"nest", nest_arg(loop)},
                {"out_strides", array_arg(strides(loop, 0))},
                {"in_strides", array_arg(in_five(in.place.strides, 0))},
                {"counts", array_arg(counts_of(shape, attrs->column_major))},
                {"extents", array_arg({shape[2], shape[3], shape[4]})},
                {"kernel", array_arg(in_three(attrs->kernel, 1))},
                {"stride", array_arg(in_three(attrs->strides, 1))},
                {"dilation", array_arg(in_three(attrs->dilations, 1))},
                {"pad", array_arg(in_three(attrs->pads_begin, 0))}};
  return {typed_rkernel(request, phase, loop_elements(loop), taps, 20 * taps)};
}

}  // namespace

Family pool_indices() { return {"pool_indices", offers, no_pack, loop_accesses<loop_of>, nullptr, Narrowed::refuses}; }

}  // namespace tamp::kernels
