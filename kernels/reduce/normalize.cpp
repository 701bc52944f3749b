// Host side of normalize.cuh.
#include "kernels/reduce/normalize.h"

#include <algorithm>
#include <utility>

#include "kernels/args.h"
#include "kernels/loop.h"
#include "kernels/reduce/numbers.cuh"
#include "kernels/reduce/rows.h"

namespace tamp::kernels {
namespace {

constexpr size_t kRank = rk::kRowsRank;
enum Operand : size_t { kIn, kOut, kScale, kBias };  // of the nests, in this order

TensorId operand(const ROperator& rop, size_t i) { return i < rop.inputs.size() ? rop.inputs[i] : TensorId(); }

// Strides with which scale or bias is walked along the dimensions of x.
std::vector<int64_t> strides_in(const Graph& graph, TensorId id, const Shape& shape) {
  return id.valid() ? broadcast_strides(graph.tensor(id), shape) : std::vector<int64_t>(shape.size(), 0);
}

Rows rows_of(const Graph& graph, const ROperator& rop) {
  const std::vector<int64_t>& axes = std::get<Normalize>(rop.attrs).axes;
  const Tensor &in = graph.tensor(rop.inputs[0]), &out = graph.tensor(rop.outputs[0]);
  const std::vector<int64_t> scale = strides_in(graph, operand(rop, 1), in.shape), bias = strides_in(graph, operand(rop, 2), in.shape);
  Rows rows;
  for (size_t d = 0; d < in.shape.size(); ++d) {
    const bool reduced = std::find(axes.begin(), axes.end(), static_cast<int64_t>(d)) != axes.end();
    Loop& loop = reduced ? rows.reduced : rows.kept;
    loop.push_back({in.shape[d], {in.place.strides[d], out.place.strides[d], scale[d], bias[d]}});
  }
  rows.kept = normalised(rows.kept);
  rows.reduced = normalised(rows.reduced);
  return rows;
}

ArgValue tensor_arg(TensorId id) { return id.valid() ? arg(TensorArg{id}) : null_arg(); }

RKernel rkernel_of(const Request& request, const Rows& rows, int64_t rtasks) {
  const ROperator& rop = request.rop;
  const Normalize& attrs = std::get<Normalize>(rop.attrs);
  const VDevice& vdevice = request.vdevice;
  const int64_t per_rtask = rows_per_rtask(rows, rtasks);
  const int64_t kept = kept_per_thread(rows, vdevice);
  Phase phase;
  phase.header = "kernels/reduce/normalize.cuh";
  phase.body = "rk::normalize";
  phase.template_args = {{"kFlat", rows.reduced.size() <= 1 ? "true" : "false"}};
  phase.args_type = "rk::NormalizeArgs";
  phase.args = {{"rows", rows_arg(rows, arg(TensorArg{rop.inputs[0]}), arg(TensorArg{rop.outputs[0]}), per_rtask)},
                {"scale", tensor_arg(operand(rop, 1))},
                {"bias", tensor_arg(operand(rop, 2))},
                {"kept_scale", array_arg(strides(rows.kept, kScale), kRank)},
                {"reduced_scale", array_arg(strides(rows.reduced, kScale), kRank)},
                {"kept_bias", array_arg(strides(rows.kept, kBias), kRank)},
                {"reduced_bias", array_arg(strides(rows.reduced, kBias), kRank)},
                {"kept_per_thread", arg(kept)},
                {"centered", arg(int64_t{attrs.centered})},
                {"epsilon", float_arg(attrs.epsilon)}};
  phase.work_bytes = vdevice.compute_threads * 4 * (1 + kept);
  const double elements = static_cast<double>(per_rtask) * static_cast<double>(rows.reduced_elements());
  phase.cost.activation_bytes = elements * (kept > 0 ? 16 : 24);
  phase.cost.flops = elements * 60 + static_cast<double>(vdevice.compute_threads) * 400;
  phase.cost.efficiency = vdevice.cost("normalize.efficiency");
  return rows_rkernel("normalize", rows, per_rtask, std::move(phase));
}

std::vector<RKernel> offers(const Request& request) {
  const ROperator& rop = request.rop;
  if (!std::holds_alternative<Normalize>(rop.attrs) || has_epilogue(rop) || !all_plain_f32(request.graph, rop)) return {};
  Rows rows = rows_of(request.graph, rop);
  lay_threads(rows, request.vdevice);
  if (rows.kept.size() > kRank || rows.reduced.size() > kRank) return {};
  std::vector<RKernel> out = {rkernel_of(request, rows, request.vdevice.veus())};
  if (out[0].rtasks() > 8) out.push_back(rkernel_of(request, rows, std::max<int64_t>(1, request.vdevice.veus() / 4)));
  return out;
}

void accesses(const Graph& graph, const ROperator& rop, const RKernel& rkernel, int, int64_t index, Accesses& out) {
  append_rows(rows_of(graph, rop), graph, rop, rkernel, index, out);
  for (const size_t i : {size_t{1}, size_t{2}}) {
    if (operand(rop, i).valid()) append_whole(graph, operand(rop, i), out.reads);
  }
}

}  // namespace

const Family& normalize() {
  static const Family family{"normalize", offers, no_pack, accesses};
  return family;
}

}  // namespace tamp::kernels
