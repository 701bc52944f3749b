// Host side of lrn.cuh.
#include <algorithm>

#include "kernels/any_type.h"
#include "kernels/args.h"
#include "kernels/family.h"
#include "kernels/loop.h"
#include "kernels/reduce/numbers.cuh"

namespace tamp::kernels {
namespace {

constexpr size_t kRank = rk::kLrnRank;

// A stride that marks the channel dimension, so that it merges with no other; operands 0 output, 1 input.
constexpr int64_t kChannel = int64_t{1} << 40;

Loop loop_of(const Graph& graph, const ROperator& rop) {
  const Tensor& in = graph.tensor(rop.inputs[0]);
  const Tensor& out = graph.tensor(rop.outputs[0]);
  Loop loop;
  for (size_t d = 0; d < in.shape.size(); ++d)
    loop.push_back({in.shape[d], {out.place.strides[d], in.place.strides[d], d == 1 ? kChannel : 0}});
  return normalised(loop);
}

RKernel rkernel_of(const Request& request, const Loop& loop, int64_t rtasks) {
  const ROperator& rop = request.rop;
  const Lrn& attrs = std::get<Lrn>(rop.attrs);
  const Tensor& in = request.graph.tensor(rop.inputs[0]);
  const int64_t elements = loop_elements(loop);
  const int64_t per_rtask = std::max(request.vdevice.compute_threads, ceil_div(elements, rtasks));
  int64_t channel_dim = -1;
  for (size_t d = 0; d < loop.size(); ++d) {
    if (loop[d].strides[2] == kChannel) channel_dim = static_cast<int64_t>(d);
  }
  Phase phase = body_phase("kernels/reduce/lrn.cuh", "rk::lrn", "rk::LrnArgs");
  phase.args = {{"in", arg(TensorArg{rop.inputs[0]})},
                {"out", arg(TensorArg{rop.outputs[0]})},
                {"nest", nest_arg(loop)},
                {"in_strides", array_arg(strides(loop, 1), kRank)},
                {"out_strides", array_arg(strides(loop, 0), kRank)},
                {"elements", arg(elements)},
                {"elements_per_rtask", arg(per_rtask)},
                {"channel_dim", arg(channel_dim)},
                {"channels", arg(in.shape[1])},
                {"channel_stride", arg(in.place.strides[1])},
                {"before", arg((attrs.size - 1) / 2)},
                {"after", arg(attrs.size / 2)},
                {"bias", float_arg(attrs.bias)},
                {"alpha_over_size", float_arg(attrs.alpha / static_cast<float>(attrs.size))},
                {"beta", float_arg(attrs.beta)}};
  phase.rtasks = std::max<int64_t>(1, ceil_div(elements, per_rtask));
  phase.cost.activation_bytes = static_cast<double>(per_rtask) * 4 * static_cast<double>(attrs.size + 1);
  phase.cost.flops = static_cast<double>(per_rtask) * (250 + 4 * static_cast<double>(attrs.size));
  phase.cost.efficiency = request.vdevice.cost("lrn.efficiency");
  return one_phase("lrn<" + std::to_string(phase.rtasks) + ">", {{"elements_per_rtask", per_rtask}}, phase);
}

std::vector<RKernel> offers(const Request& request) {
  const ROperator& rop = request.rop;
  if (!std::holds_alternative<Lrn>(rop.attrs) || has_epilogue(rop) || !all_plain_f32(request.graph, rop)) return {};
  const Loop loop = loop_of(request.graph, rop);
  if (loop.size() > kRank) return {};
  return for_all_and_a_quarter(request.vdevice, [&](int64_t rtasks) { return rkernel_of(request, loop, rtasks); });
}

void accesses(const Graph& graph, const ROperator& rop, const RKernel& rkernel, int, int64_t index, Accesses& out) {
  const Loop loop = loop_of(graph, rop);
  const int64_t per_rtask = rkernel.config_value("elements_per_rtask");
  const int64_t begin = index * per_rtask, end = std::min(begin + per_rtask, loop_elements(loop));
  append_runs(loop, 0, rop.outputs[0], graph.tensor(rop.outputs[0]).place.offset, begin, end, out.writes);
  // Windows reach into other channels. If channels are innermost, the rTask reads all channels of its pixels.
  if (!loop.empty() && loop.back().strides[2] == kChannel) {
    const int64_t first = begin / loop.back().extent * loop.back().extent;
    const int64_t last = ceil_div(end, loop.back().extent) * loop.back().extent;
    return append_runs(loop, 1, rop.inputs[0], graph.tensor(rop.inputs[0]).place.offset, first, last, out.reads);
  }
  append_whole(graph, rop.inputs[0], out.reads);
}

}  // namespace

Family lrn() { return {"lrn", offers, no_pack, accesses}; }

}  // namespace tamp::kernels
