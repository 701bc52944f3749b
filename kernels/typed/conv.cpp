// Host side of conv.cuh.
#include <algorithm>

#include "kernels/any_type.h"
#include "kernels/args.h"
#include "kernels/family.h"

namespace tamp::kernels {
namespace {

// Batch, channel, row, column: with one spatial dimension a row of its own is put in. And row, column alone.
std::vector<int64_t> in_four(const std::vector<int64_t>& values, int64_t row) { return with_dimensions(values, 2, 4, row); }
std::vector<int64_t> in_two(const std::vector<int64_t>& values, int64_t row) { return with_dimensions(values, 0, 2, row); }

Loop loop_of(const Graph& graph, const ROperator& rop) {
  const Tensor& out = graph.tensor(rop.outputs[0]);
  return loop_over(in_four(out.shape, 1), in_four(out.place.strides, 0));
}

std::vector<RKernel> offers(const Request& request) {
  const auto& [graph, rop, vdevice, precision] = request;
  const auto* attrs = std::get_if<Conv>(&rop.attrs);
  if (attrs == nullptr || has_epilogue(rop) || has_prologue(*attrs) || all_f32(graph, rop)) return {};
  for (const TensorId id : reads_of(rop)) {
    if (!is_plain(graph.tensor(id)) || graph.tensor(id).dtype != graph.tensor(rop.outputs[0]).dtype) return {};
  }
  const Tensor &in = graph.tensor(rop.inputs[0]), &weights = graph.tensor(rop.inputs[1]), &out = graph.tensor(rop.outputs[0]);
  const bool has_bias = operand(rop, 2).valid();
  const std::vector<int64_t> shape = in_four(in.shape, 1);
  const Loop loop = loop_of(graph, rop);
  const double taps = static_cast<double>(element_count(weights.shape)) / static_cast<double>(std::max<int64_t>(1, weights.shape[0]));
  Phase phase = body_phase("kernels/typed/conv.cuh", "rk::typed_conv", "rk::TypedConvArgs");
  phase.template_args = {{"T", number_text(out.dtype)}};
  phase.args = {{"out", arg(TensorArg{rop.outputs[0]})},
                {"in", arg(TensorArg{rop.inputs[0]})},
                {"weights", arg(TensorArg{rop.inputs[1]})},
                {"bias", has_bias ? arg(TensorArg{rop.inputs[2]}) : null_arg()},
                {"nest", nest_arg(loop)},
                {"out_strides", array_arg(strides(loop, 0), 4)},
                {"in_strides", array_arg(in_four(in.place.strides, 0), 4)},
                {"weight_strides", array_arg(in_four(weights.place.strides, 0), 4)},
                {"bias_stride", arg(has_bias ? graph.tensor(rop.inputs[2]).place.strides[0] : 0)},
                {"height", arg(shape[2])},
                {"width", arg(shape[3])},
                {"group_channels", arg(weights.shape[1])},
                {"group_outputs", arg(std::max<int64_t>(1, weights.shape[0] / attrs->group))},
                {"kernel", array_arg(in_two(attrs->kernel, 1))},
                {"stride", array_arg(in_two(attrs->strides, 1))},
                {"dilation", array_arg(in_two(attrs->dilations, 1))},
                {"pad", array_arg(in_two(attrs->pads_begin, 0))},
                {"type", arg(static_cast<int64_t>(out.dtype))}};
  return {typed_rkernel(request, phase, loop_elements(loop), 2 * taps, 40 * taps)};
}

}  // namespace

Family typed_conv() { return {"typed_conv", offers, no_pack, loop_accesses<loop_of>, nullptr, Narrowed::refuses}; }

}  // namespace tamp::kernels
