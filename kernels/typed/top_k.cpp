// Host side of top_k.cuh.
#include <algorithm>

#include "kernels/any_type.h"
#include "kernels/args.h"
#include "kernels/family.h"
#include "kernels/typed/lines.h"
#include "kernels/vdevice/numbers.cuh"

namespace tamp::kernels {
namespace {

constexpr size_t kRank = 8;
constexpr int64_t kWarp = rk::kWarp, kFoundBytes = 16;  // an element that a warp has found, of at most 8 bytes, and its place

std::string compared_as(DType dtype) {
  return dtype == DType::f32 || dtype == DType::f16 || dtype == DType::bf16 ? "float" : number_text(dtype);
}

void set_args(const Graph& graph, const ROperator& rop, const TopK& attrs, const Loop& loop, int64_t lines, int64_t per_rtask,
              Phase& phase) {
  const Tensor &in = graph.tensor(rop.inputs[0]), &values = graph.tensor(rop.outputs[0]), &indices = graph.tensor(rop.outputs[1]);
  const auto axis = static_cast<size_t>(attrs.axis);
  phase.args = {
      {"in", arg(TensorArg{rop.inputs[0]})}, {"values", arg(TensorArg{rop.outputs[0]})}, {"indices", arg(TensorArg{rop.outputs[1]})}};
  add_nest_args(phase, "lines", loop, {"value_strides", "index_strides", "in_strides"});
  add_args(phase, {{"value_step", arg(values.place.strides[axis])},
                   {"index_step", arg(indices.place.strides[axis])},
                   {"in_step", arg(in.place.strides[axis])},
                   {"extent", divisor_arg(std::max<int64_t>(1, in.shape[axis]))},
                   {"k", arg(attrs.k)},
                   {"line_count", arg(lines)},
                   {"lines_per_rtask", arg(per_rtask)},
                   {"type", arg(static_cast<int64_t>(in.dtype))},
                   {"largest", arg(int64_t{attrs.largest})},
                   {"last_of_equals", arg(int64_t{attrs.last_of_equals})},
                   {"nan_first", arg(int64_t{attrs.nan_first})}});
}

std::vector<RKernel> offers(const Request& request) {
  const ROperator& rop = request.rop;
  const auto* attrs = std::get_if<TopK>(&rop.attrs);
  if (attrs == nullptr || has_epilogue(rop) || !all_plain(request.graph, rop)) return {};
  const Tensor& in = request.graph.tensor(rop.inputs[0]);
  const Loop loop = lines_of(request.graph, rop, attrs->axis);
  if (loop.size() > kRank) return {};
  const int64_t extent = in.shape[static_cast<size_t>(attrs->axis)], k = attrs->k, threads = request.vdevice.compute_threads;
  const int64_t lines = k == 0 ? 0 : loop_elements(loop), share = ceil_div(lines, request.vdevice.veus());
  std::vector<RKernel> out;
  const auto offer = [&](const std::string& body, int64_t lanes, int64_t per_rtask, double steps) {
    RKernel rkernel =
        lines_rkernel(request.vdevice, body_phase("kernels/typed/top_k.cuh", body, "rk::TypedTopKArgs"), lines, per_rtask, steps);
    Phase& phase = rkernel.phases[0];
    phase.template_args = {{"T", compared_as(in.dtype)}};
    if (lanes > 0) phase.template_args.push_back({"kLanes", std::to_string(lanes)});
    if (lanes > 0) rkernel.name += "<" + std::to_string(lanes) + ">";
    set_args(request.graph, rop, *attrs, loop, lines, per_rtask, phase);
    out.push_back(rkernel);
  };
  for (const int64_t lanes : {int64_t{1}, kWarp, threads}) {
    const int64_t at_once = threads / lanes, per_rtask = std::max(at_once, share);
    const double rounds = static_cast<double>(ceil_div(std::min(per_rtask, lines), at_once) * k);
    // Four loads under way together take about as long as one and a half.
    const double walk = lanes == 1 ? static_cast<double>(extent) : 1.5 * static_cast<double>(ceil_div(extent, 4 * lanes));
    const double shared = lanes == 1 ? 0 : lanes == kWarp ? 10 : 20;  // what the lanes have found
    offer("rk::typed_top_k_rounds", lanes, per_rtask, rounds * (walk + shared));
    if (lanes > kWarp) out.back().phases[0].work_bytes = threads / kWarp * kFoundBytes;
  }
  const int64_t per_rtask = std::max({int64_t{1}, share, threads / std::max<int64_t>(1, extent)});
  offer("rk::typed_top_k_ranks", 0, per_rtask,
        static_cast<double>(ceil_div(std::min(per_rtask, lines) * extent, threads)) * static_cast<double>(extent));
  return out;
}

void accesses(const Graph& graph, const ROperator& rop, const RKernel& rkernel, int, int64_t index, Accesses& out) {
  lines_accesses(graph, rop, rkernel, std::get<TopK>(rop.attrs).axis, index, out);
}

}  // namespace

Family typed_top_k() { return {"typed_top_k", offers, no_pack, accesses, nullptr, Narrowed::refuses}; }

}  // namespace tamp::kernels
