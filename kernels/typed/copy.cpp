// Host side of copy.cuh: which element goes where, as a loop for either side.
#include <optional>

#include "kernels/any_type.h"
#include "kernels/args.h"
#include "kernels/family.h"
#include "kernels/typed/numbers.cuh"

namespace tamp::kernels {
namespace {

constexpr size_t kRank = rk::kNestRank;

struct Copy {
  Loop out, in;       // one operand each
  int64_t start = 0;  // elements from the input's first
};

Loop loop_of(const Shape& shape, const std::vector<int64_t>& strides) { return merged(loop_over(shape, strides)); }

bool is_identity(const Elementwise& attrs) { return attrs.steps.size() == 1 && attrs.steps[0].op == ElementwiseOp::identity; }

std::optional<Copy> copy_of(const Graph& graph, const ROperator& rop) {
  if (rop.inputs.size() != 1 || rop.outputs.size() != 1) return std::nullopt;
  const Tensor &in = graph.tensor(rop.inputs[0]), &out = graph.tensor(rop.outputs[0]);
  if (in.dtype != out.dtype || in.dtype == DType::f32) return std::nullopt;
  Copy copy{loop_of(out.shape, out.place.strides), {}, 0};
  if (const auto* chain = std::get_if<Elementwise>(&rop.attrs); chain && is_identity(*chain)) {
    copy.in = loop_of(out.shape, broadcast_strides(in, out.shape));
  } else if (const auto* transpose = std::get_if<Transpose>(&rop.attrs)) {
    std::vector<int64_t> strides;
    for (const int64_t d : transpose->perm) strides.push_back(in.place.strides[static_cast<size_t>(d)]);
    copy.in = loop_of(out.shape, strides);
  } else if (const auto* slice = std::get_if<Slice>(&rop.attrs)) {
    std::vector<int64_t> strides;
    for (size_t d = 0; d < in.shape.size(); ++d) {
      strides.push_back(in.place.strides[d] * slice->steps[d]);
      copy.start += in.place.strides[d] * slice->starts[d];
    }
    copy.in = loop_of(out.shape, strides);
  } else if (std::holds_alternative<Reshape>(rop.attrs)) {
    copy.in = loop_of(in.shape, in.place.strides);
  } else {
    return std::nullopt;
  }
  return copy;
}

std::vector<RKernel> offers(const Request& request) {
  const ROperator& rop = request.rop;
  const std::optional<Copy> copy = copy_of(request.graph, rop);
  if (!copy || has_epilogue(rop) || !all_plain(request.graph, rop) || copy->in.size() > kRank || copy->out.size() > kRank) return {};
  Phase phase = body_phase("kernels/typed/copy.cuh", "rk::typed_copy", "rk::TypedCopyArgs");
  phase.template_args = {{"Cell", cell_text(request.graph.tensor(rop.outputs[0]).dtype)}};
  phase.args = {{"out", arg(TensorArg{rop.outputs[0]})},
                {"in", arg(TensorArg{rop.inputs[0], copy->start})},
                {"out_nest", nest_arg(copy->out)},
                {"in_nest", nest_arg(copy->in)},
                {"out_strides", array_arg(strides(copy->out, 0), kRank)},
                {"in_strides", array_arg(strides(copy->in, 0), kRank)}};
  return {typed_rkernel(request, phase, loop_elements(copy->out), 1, 30)};
}

Loop out_of(const Graph& graph, const ROperator& rop) { return copy_of(graph, rop)->out; }

}  // namespace

Family typed_copy() { return {"typed_copy", offers, no_pack, loop_accesses<out_of>, nullptr, Narrowed::moves}; }

}  // namespace tamp::kernels
