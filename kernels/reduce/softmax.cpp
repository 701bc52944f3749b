// Host side of softmax.cuh.
#include <algorithm>
#include <utility>

#include "kernels/args.h"
#include "kernels/family.h"
#include "kernels/reduce/quantised_rows.h"
#include "kernels/reduce/rows.h"

namespace tamp::kernels {
namespace {

Rows rows_of(const Graph& graph, const ROperator& rop) {
  const Softmax& attrs = std::get<Softmax>(rop.attrs);
  const Tensor& in = graph.tensor(rop.inputs[0]);
  const Tensor& out = graph.tensor(rop.outputs[0]);
  Rows rows;
  for (size_t d = 0; d < in.shape.size(); ++d) {
    const int64_t axis = static_cast<int64_t>(d);
    Loop& loop = axis >= attrs.first_axis && axis <= attrs.last_axis ? rows.reduced : rows.kept;
    loop.push_back({in.shape[d], {in.place.strides[d], out.place.strides[d]}});
  }
  rows.kept = normalised(rows.kept);
  rows.reduced = normalised(rows.reduced);
  return rows;
}

// `by`: null for a softmax alone.
RKernel rkernel_of(const Request& request, const Rows& rows, int64_t rtasks, const Quantised* by) {
  const auto& [graph, rop, vdevice, precision] = request;
  const int64_t per_rtask = rows_per_rtask(rows, rtasks);
  const int64_t kept = kept_per_thread(rows, vdevice);
  Phase phase = body_phase("kernels/reduce/softmax.cuh", by ? "rk::softmax_quantised" : "rk::softmax", "rk::SoftmaxArgs");
  phase.template_args = {{"kFlat", rows.reduced.size() <= 1 ? "true" : "false"}};
  phase.args = {{"rows", rows_arg(rows, arg(TensorArg{rop.inputs[0]}), arg(TensorArg{rop.outputs[0]}), per_rtask)},
                {"kept_per_thread", arg(kept)},
                {"log", arg(int64_t{std::get<Softmax>(rop.attrs).log})}};
  if (by)
    add_args(phase, {{"factor", float_arg(by->factor)},
                     {"divisor", float_arg(by->divisor)},
                     {"low", float_arg(by->low)},
                     {"high", float_arg(by->high)}});
  phase.work_bytes = vdevice.compute_threads * 4 * (1 + kept);
  const double elements = static_cast<double>(per_rtask) * static_cast<double>(rows.reduced_elements());
  phase.cost.activation_bytes = elements * 4 * (sector_factor(rows, 0, 4) * (kept > 0 ? 1 : 3) + sector_factor(rows, 1, 4));
  phase.cost.flops = elements * 120 + static_cast<double>(vdevice.compute_threads) * 400;
  phase.cost.efficiency = vdevice.cost("softmax.efficiency");
  return rows_rkernel("softmax", rows, per_rtask, std::move(phase));
}

std::vector<RKernel> offers(const Request& whole) {
  const std::optional<QuantisedRows> quantised = quantised_rows_of(whole.graph, whole.rop);
  const Quantised* const by = quantised ? &quantised->by : nullptr;
  const Request request{whole.graph, quantised ? quantised->rop : whole.rop, whole.vdevice, whole.precision};
  const ROperator& rop = request.rop;
  if (!std::holds_alternative<Softmax>(rop.attrs) || has_epilogue(rop) || !all_plain_f32(request.graph, rop)) return {};
  const std::vector<Rows> layouts = layouts_of(rows_of(request.graph, rop), request.vdevice);
  if (layouts[0].kept.size() > 8 || layouts[0].reduced.size() > 8) return {};
  std::vector<RKernel> out;
  for (const Rows& rows : layouts) out.push_back(rkernel_of(request, rows, request.vdevice.veus(), by));
  if (out[0].rtasks() > 8) out.push_back(rkernel_of(request, layouts[0], std::max<int64_t>(1, request.vdevice.veus() / 4), by));
  return out;
}

void accesses(const Graph& graph, const ROperator& whole, const RKernel& rkernel, int, int64_t index, Accesses& out) {
  const std::optional<QuantisedRows> quantised = quantised_rows_of(graph, whole);
  const ROperator& rop = quantised ? quantised->rop : whole;
  append_rows(rows_of(graph, rop), graph, rop, rkernel, index, out);
}

}  // namespace

Family softmax() { return {"softmax", offers, no_pack, accesses}; }

}  // namespace tamp::kernels
