// Host side of reduce.cuh.
#include <algorithm>

#include "kernels/any_type.h"
#include "kernels/args.h"
#include "kernels/family.h"
#include "kernels/typed/numbers.cuh"

namespace tamp::kernels {
namespace {

constexpr size_t kRank = rk::kNestRank;
static_assert(static_cast<int>(ReduceKind::sum) == rk::kReduceSum && static_cast<int>(ReduceKind::mean) == rk::kReduceMean &&
              static_cast<int>(ReduceKind::max) == rk::kReduceMax && static_cast<int>(ReduceKind::min) == rk::kReduceMin &&
              static_cast<int>(ReduceKind::prod) == rk::kReduceProd && static_cast<int>(ReduceKind::l1) == rk::kReduceL1 &&
              static_cast<int>(ReduceKind::l2) == rk::kReduceL2 && static_cast<int>(ReduceKind::sum_square) == rk::kReduceSumSquare &&
              static_cast<int>(ReduceKind::log_sum) == rk::kReduceLogSum &&
              static_cast<int>(ReduceKind::log_sum_exp) == rk::kReduceLogSumExp);

struct Sets {
  Loop kept;     // operands: output, input
  Loop reduced;  // operand: input; dimensions in the model's order, since that is the order of adding
};

Sets sets_of(const Graph& graph, const ROperator& rop) {
  const auto& attrs = std::get<Reduce>(rop.attrs);
  const Tensor &in = graph.tensor(rop.inputs[0]), &out = graph.tensor(rop.outputs[0]);
  Sets sets;
  size_t o = 0;  // output dimension
  for (size_t d = 0; d < in.shape.size(); ++d) {
    const bool reduced = std::find(attrs.axes.begin(), attrs.axes.end(), static_cast<int64_t>(d)) != attrs.axes.end();
    if (reduced)
      sets.reduced.push_back({in.shape[d], {in.place.strides[d]}});
    else
      sets.kept.push_back({in.shape[d], {out.place.strides[o], in.place.strides[d]}});
    if (!reduced || attrs.keepdims) ++o;
  }
  return {normalised(sets.kept), merged(sets.reduced)};
}

std::vector<RKernel> offers(const Request& request) {
  const ROperator& rop = request.rop;
  const auto* attrs = std::get_if<Reduce>(&rop.attrs);
  if (attrs == nullptr || has_epilogue(rop) || all_f32(request.graph, rop) || !all_plain(request.graph, rop)) return {};
  const DType dtype = request.graph.tensor(rop.inputs[0]).dtype;
  const Sets sets = sets_of(request.graph, rop);
  if (sets.kept.size() > kRank || sets.reduced.size() > kRank) return {};
  const int64_t elements = loop_elements(sets.kept), count = loop_elements(sets.reduced);
  Phase phase = body_phase("kernels/typed/reduce.cuh", "rk::typed_reduce", "rk::TypedReduceArgs");
  phase.template_args = {{"T", number_text(dtype)}, {"kKind", std::to_string(static_cast<int>(attrs->kind))}};
  phase.args = {{"out", arg(TensorArg{rop.outputs[0]})},
                {"in", arg(TensorArg{rop.inputs[0]})},
                {"kept", nest_arg(sets.kept)},
                {"reduced", nest_arg(sets.reduced)},
                {"out_strides", array_arg(strides(sets.kept, 0), kRank)},
                {"in_strides", array_arg(strides(sets.kept, 1), kRank)},
                {"reduced_strides", array_arg(strides(sets.reduced, 0), kRank)}};
  RKernel rkernel = typed_rkernel(request, phase, elements, static_cast<double>(count), 30 * static_cast<double>(count));
  add_args(rkernel.phases[0], {{"count", arg(count)}, {"type", arg(static_cast<int64_t>(dtype))}});
  return {rkernel};
}

Loop kept_of(const Graph& graph, const ROperator& rop) { return sets_of(graph, rop).kept; }

}  // namespace

Family typed_reduce() { return {"typed_reduce", offers, no_pack, loop_accesses<kept_of>, nullptr, Narrowed::refuses}; }

}  // namespace tamp::kernels
