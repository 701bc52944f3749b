// Host side of ended_copy.cuh: strides and ends as arguments of run time.
#include <algorithm>
#include <optional>

#include "kernels/any_type.h"
#include "kernels/args.h"
#include "kernels/family.h"
#include "kernels/shared/numbers.h"
#include "kernels/vdevice/numbers.cuh"

namespace tamp::kernels {
namespace {

constexpr size_t kRank = rk::kNestRank;

std::optional<Extent> end_of(const Pad& pad, size_t dim) {
  for (const LengthAxis& axis : pad.ends) {
    if (static_cast<size_t>(axis.dim) == dim) return axis.extent;
  }
  return std::nullopt;
}

// The stride of a dimension of a dense tensor with the true extents: the product of those behind it.
ArgValue packed_stride(const Pad& pad, const Shape& shape, size_t dim) {
  ExtentArg stride;
  for (size_t d = dim + 1; d < shape.size(); ++d) {
    if (const auto end = end_of(pad, d))
      stride.extents.push_back(*end);
    else
      stride.factor *= shape[d];
  }
  return stride.extents.empty() ? arg(stride.factor) : ArgValue{stride};
}

ArgValue strides_arg(const Pad& pad, const Tensor& tensor, bool is_packed) {
  ArgList list;
  for (size_t d = 0; d < tensor.shape.size(); ++d)
    list.push_back(is_packed ? packed_stride(pad, tensor.shape, d) : arg(tensor.place.strides[d]));
  list.resize(kRank, arg(int64_t{0}));
  return {list};
}

ArgValue ends_arg(const Pad& pad, const Shape& shape) {
  ArgList list;
  for (size_t d = 0; d < shape.size(); ++d) {
    const auto end = end_of(pad, d);
    list.push_back(pad.number ? arg(int64_t{0}) : end ? ArgValue{ExtentArg{{*end}, 1}} : arg(shape[d]));
  }
  list.resize(kRank, arg(int64_t{0}));
  return {list};
}

// Element by element in row-major order: what lies behind an end is in no order that a larger step could skip.
Loop loop_of(const Graph& graph, const ROperator& rop) {
  const Tensor& out = graph.tensor(rop.outputs[0]);
  return loop_over(out.shape, out.place.strides);
}

std::vector<RKernel> offers(const Request& request) {
  const auto* const pad = std::get_if<Pad>(&request.rop.attrs);
  if (pad == nullptr || !ends_at_length(*pad) || has_epilogue(request.rop)) return {};
  const Tensor &in = request.graph.tensor(request.rop.inputs[0]), &out = request.graph.tensor(request.rop.outputs[0]);
  if (!is_plain(in) || !is_plain(out) || in.dtype != out.dtype || out.shape.size() > kRank) return {};
  const uint64_t bits = rk::element_bits<double>(pad->value, static_cast<uint32_t>(out.dtype));
  Phase phase = body_phase("kernels/elementwise/ended_copy.cuh", "rk::ended_copy", "rk::EndedCopyArgs");
  phase.template_args = {{"Cell", cell_text(out.dtype)}};
  phase.args = {{"out", arg(TensorArg{request.rop.outputs[0]})},
                {"in", arg(TensorArg{request.rop.inputs[0]})},
                {"nest", nest_arg(loop_of(request.graph, request.rop))},
                {"out_strides", strides_arg(*pad, out, pad->packed == Packed::out)},
                {"in_strides", strides_arg(*pad, in, pad->packed == Packed::in)},
                {"ends", ends_arg(*pad, out.shape)},
                {"value_low", pad->number ? ArgValue{ExtentArg{{*pad->number}}} : arg(static_cast<int64_t>(bits & 0xffffffff))},
                {"value_high", arg(static_cast<int64_t>(bits >> 32))},
                {"fills", arg(int64_t{pad->packed != Packed::out})}};
  return {typed_rkernel(request, phase, element_count(out.shape), 1, 30)};
}

}  // namespace

Family ended_copy() { return {"ended_copy", offers, no_pack, loop_accesses<loop_of>, nullptr, Narrowed::moves}; }

}  // namespace tamp::kernels
