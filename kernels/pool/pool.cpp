// Host side of pool.cuh.
#include "kernels/pool/pool.h"

#include <algorithm>

#include "kernels/args.h"
#include "kernels/window.h"

namespace tamp::kernels {
namespace {

Window pool_window(const Graph& graph, const ROperator& rop) {
  Window window = window_of(graph, rop);
  if (has_vector_outputs(graph, window) && has_vector_inputs(graph, window)) window.vector = 4;
  return window;
}

RKernel rkernel_of(const Request& request, const Window& window, int64_t rtasks) {
  const Pool& attrs = std::get<Pool>(request.rop.attrs);
  const int64_t per_rtask = items_per_rtask(window, request.vdevice, rtasks);
  Phase phase;
  phase.header = "kernels/pool/pool.cuh";
  phase.body = "rk::pool";
  phase.template_args = {{"kVector", std::to_string(window.vector)}};
  phase.args_type = "rk::PoolArgs";
  phase.args = {{"window", window_arg(window, per_rtask)},
                {"epilogue", epilogue_arg(request.rop, {window.residual_strides.begin(), window.residual_strides.end()})},
                {"average", arg(int64_t{attrs.kind == PoolKind::average})},
                {"counted_height", arg(window.height + window.pad_end[0])},
                {"counted_width", arg(window.width + window.pad_end[1])},
                {"count_pads", arg(int64_t{attrs.count_include_pad})}};
  phase.rtasks = std::max<int64_t>(1, ceil_div(window.items(), per_rtask));
  const double share = static_cast<double>(window.items()) / static_cast<double>(phase.rtasks);
  phase.cost.activation_bytes = window_bytes(window, share, window.taps());
  phase.cost.flops = share * static_cast<double>(window.vector) * (window.taps() + 8) * 2;
  phase.cost.efficiency = 0.2;
  RKernel rkernel;
  rkernel.family = "pool";
  rkernel.name = "pool<" + std::to_string(window.vector) + " channels, " + std::to_string(phase.rtasks) + ">";
  rkernel.config = {{"items_per_rtask", per_rtask}};
  rkernel.phases = {phase};
  return rkernel;
}

std::vector<RKernel> offers(const Request& request) {
  const ROperator& rop = request.rop;
  if (!std::holds_alternative<Pool>(rop.attrs) || !all_plain_f32(request.graph, rop)) return {};
  const Window window = pool_window(request.graph, rop);
  const int64_t veus = request.vdevice.veus();
  std::vector<RKernel> out = {rkernel_of(request, window, veus)};
  if (out[0].rtasks() > 8) out.push_back(rkernel_of(request, window, std::max<int64_t>(1, veus / 4)));
  return out;
}

Bytes pack(const Graph&, const ROperator&, const RKernel&, int) { return {}; }

void accesses(const Graph& graph, const ROperator& rop, const RKernel& rkernel, int, int64_t index, Accesses& out) {
  window_accesses(graph, pool_window(graph, rop), rkernel.config_value("items_per_rtask"), index, out);
}

}  // namespace

const Family& pool() {
  static const Family family{"pool", offers, pack, accesses};
  return family;
}

}  // namespace tamp::kernels
