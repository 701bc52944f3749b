// Host side of pool.cuh, pool_strip.cuh and pool_walk.cuh, all also of bytes. If pool_strip can do a pool, pool.cuh has no candidates. A
// pool of one pixel that skips none is a copy, which the elementwise family does.
#include <algorithm>
#include <optional>

#include "kernels/args.h"
#include "kernels/family.h"
#include "kernels/narrow.h"
#include "kernels/window.h"

namespace tamp::kernels {
namespace {

// The type of the result and the residual; that of the input is the same but for averages of bytes.
DType type_of(const Request& request) { return request.graph.tensor(request.rop.outputs[0]).dtype; }
DType in_type(const Request& request) { return request.graph.tensor(request.rop.inputs[0]).dtype; }

// `bytes_header`: of the body for bytes.
void add_types(const Request& request, const char* bytes_header, Phase& phase) {
  const DType in = in_type(request), out = type_of(request);
  if (in != DType::f32 || out != DType::f32) phase.template_args.emplace_back("Value", value_type(in));
  if (in != out) phase.template_args.emplace_back("Out", value_type(out));
  if (is_whole_byte(in)) phase.header = bytes_header;
}

// Bytes: a maximum of them is that of what they stand for, wherever they begin. An average computes with the numbers, so its bytes begin at
// 0; the mean is not whole, and is stored in another type.
bool takes_types(const Graph& graph, const ROperator& rop) {
  const TensorId x = rop.inputs[0], y = rop.outputs[0], residual = rop.epilogue.residual;
  const DType in = graph.tensor(x).dtype, out = graph.tensor(y).dtype;
  if (residual.valid() && graph.tensor(residual).dtype != out) return false;
  if (!is_whole_byte(in) && !is_whole_byte(out)) return in == out;
  if (std::get<Pool>(rop.attrs).kind == PoolKind::average) return is_whole_byte(in) && !is_whole_byte(out) && low_of(graph, x) == 0;
  return in == out && low_of(graph, x) == low_of(graph, y) && !has_epilogue(rop);
}

bool has_plain_values(const Graph& graph, const ROperator& rop) {
  for (const TensorId id : {rop.inputs[0], rop.outputs[0], rop.epilogue.residual}) {
    if (id.valid() && !is_plain_values_or_bytes(graph.tensor(id))) return false;
  }
  if (!takes_types(graph, rop)) return false;
  return !rop.epilogue.bias.valid() || is_plain_f32(graph.tensor(rop.epilogue.bias));
}

Window pool_window(const Graph& graph, const ROperator& rop) {
  Window window = window_of(graph, rop);
  if (has_vector_outputs(graph, window) && has_vector_inputs(graph, window)) window.vector = 4;
  return window;
}

// What pool_strip can do: the two windows that networks have, on whole vectors, without an epilogue, every window partly in the input.
bool has_strips(const ROperator& rop, const Window& w) {
  if (w.vector != 4 || !w.channels_innermost || has_epilogue(rop)) return false;
  if (w.kernel[0] != w.kernel[1] || w.stride[0] != w.stride[1] || w.kernel[0] > 3 || w.stride[0] > 2) return false;
  if (w.dilation[0] != 1 || w.dilation[1] != 1 || w.height < 1 || w.width < 1) return false;
  if (std::max(w.pad[0], w.pad[1]) >= w.kernel[0]) return false;
  for (const auto& strides : {w.in_strides, w.out_strides}) {
    if (std::any_of(strides.begin(), strides.end(), [](int64_t stride) { return stride < 0; })) return false;
  }
  return (w.out_height - 1) * w.stride[0] - w.pad[0] < w.height && (w.out_width - 1) * w.stride[1] - w.pad[1] < w.width;
}

// Which taps an average counts.
void append_counted(const Window& window, const Pool& attrs, Phase& phase) {
  const bool pads = attrs.count_include_pad;
  constexpr int64_t kFar = int64_t{1} << 20;  // further out than any padding
  add_args(phase, {{"counted_from", arg(pads ? -kFar : 0)},
                   {"counted_height", arg(window.height + (pads ? window.pad_end[0] : 0))},
                   {"counted_width", arg(window.width + (pads ? window.pad_end[1] : 0))}});
}

constexpr int64_t kFewTurns = 8;
int64_t strip_turns(const Request& request, int64_t per_rtask) { return ceil_div(per_rtask, request.vdevice.compute_threads); }

RKernel strip_rkernel_of(const Request& request, const Window& window, int64_t per_rtask) {
  const Pool& attrs = std::get<Pool>(request.rop.attrs);
  const bool average = attrs.kind == PoolKind::average;
  Phase phase = early_phase("kernels/pool/pool_strip.cuh", "rk::pool_strip", "rk::PoolStripArgs");
  phase.template_args = {{"kKernel", std::to_string(window.kernel[0])},
                         {"kStride", std::to_string(window.stride[0])},
                         {"kPixels", std::to_string(window.pixels)},
                         {"kAverage", average ? "true" : "false"}};
  add_types(request, "kernels/pool/pool_strip_bytes.cuh", phase);
  phase.args = {{"window", window_arg(window, per_rtask)}};
  append_counted(window, attrs, phase);
  phase.rtasks = std::max<int64_t>(1, ceil_div(window.items(), per_rtask));
  // Inputs that several windows share come from L2 far faster than VDevice::l2_gb_per_s says. So count every input once, and some again.
  const double share = static_cast<double>(window.items()) / static_cast<double>(phase.rtasks);
  // Loads of 4 bytes take as long as those of 8.
  const auto counted = [](DType dtype) { return is_whole_byte(dtype) ? DType::f16 : dtype; };
  phase.cost.activation_bytes = window_bytes(window, share, 1.25 * static_cast<double>(window.stride[0] * window.stride[1]),
                                             counted(in_type(request)), counted(type_of(request)));
  // A turn is a trip to L2 by all threads of a rTask; the first is in VDevice::rtask_us. With many turns the warps run apart, and most of
  // a trip is hidden.
  const int64_t turns = strip_turns(request, per_rtask);
  phase.cost.latency_us = request.vdevice.cost("pool.strip_turn_us") * static_cast<double>(std::min(turns, kFewTurns) - 1) +
                          request.vdevice.cost("pool.strip_later_turn_us") * static_cast<double>(std::max<int64_t>(turns - kFewTurns, 0));
  const std::string name = "pool<strips of " + std::to_string(window.pixels) + ", " + std::to_string(phase.rtasks) + ">";
  return one_phase(name, {{"items_per_rtask", per_rtask}, {"pixels", window.pixels}}, phase);
}

// --- pool_walk ------------------------------------------------------------------------------------------------------------

// Channels of an item: 16 bytes of them, or 8 of a byte each.
int64_t cell_channels(const Graph& graph, const ROperator& rop) {
  return std::min<int64_t>(16 / bytes_of(graph.tensor(rop.outputs[0]).dtype), 8);
}

// Items of pool_walk, of a window that pool_strip can do; none where a pixel is not of whole cells, or the window not 3 x 3.
std::optional<Window> walk_window(const Graph& graph, const ROperator& rop, Window w) {
  w.vector = cell_channels(graph, rop);
  w.pixels = 2;
  if (w.kernel[0] != 3 || w.channels % w.vector != 0 || graph.tensor(w.in).dtype != graph.tensor(w.out).dtype) return std::nullopt;
  for (const auto& [id, strides] : {std::pair{w.in, w.in_strides}, std::pair{w.out, w.out_strides}}) {
    if (graph.tensor(id).place.offset % w.vector != 0) return std::nullopt;
    for (const size_t d : {size_t{0}, size_t{2}, size_t{3}}) {
      if (strides[d] % w.vector != 0) return std::nullopt;
    }
  }
  return w;
}

// Turns of a thread for one item: one is for the rows above the first window.
int64_t walk_turns(const Window& w) { return ceil_div(w.lines * w.stride[0], 2) + 1; }

// The height of an item with which the threads make the fewest turns.
int64_t walk_lines(Window w, const ShapedVDevice& vdevice) {
  int64_t best = 1, fewest = 0;
  for (w.lines = 1; w.lines <= w.out_height; ++w.lines) {
    const int64_t turns = ceil_div(ceil_div(w.items(), vdevice.veus()), vdevice.compute_threads) * walk_turns(w);
    if (fewest == 0 || turns <= fewest) best = w.lines, fewest = turns;
  }
  return best;
}

RKernel walk_rkernel_of(const Request& request, const Window& window) {
  const Pool& attrs = std::get<Pool>(request.rop.attrs);
  const ShapedVDevice& vdevice = request.vdevice;
  const bool average = attrs.kind == PoolKind::average, narrow = type_of(request) != DType::f32;
  const int64_t per_rtask = std::max(vdevice.compute_threads / 2, ceil_div(window.items(), vdevice.veus()));
  const bool far_ahead = !narrow || (!average && window.stride[0] == 2);  // as the registers allow
  Phase phase = early_phase("kernels/pool/pool_walk.cuh", "rk::pool_walk", "rk::PoolWalkArgs");
  phase.template_args = {{"kStride", std::to_string(window.stride[0])},
                         {"kPixels", std::to_string(window.pixels)},
                         {"kAhead", far_ahead ? "2" : "1"},
                         {"kAverage", average ? "true" : "false"}};
  add_types(request, "kernels/pool/pool_walk_bytes.cuh", phase);
  phase.args = {{"window", window_arg(window, per_rtask)}};
  append_counted(window, attrs, phase);
  add_args(phase, {{"lines", arg(window.lines)}, {"out_height", arg(window.out_height)}});
  phase.rtasks = ceil_div(window.items(), per_rtask);
  const double items = static_cast<double>(std::min(per_rtask, window.items()));
  phase.cost.activation_bytes =
      window_bytes(window, items, static_cast<double>(window.stride[0] * window.stride[1]), type_of(request), type_of(request));
  const auto columns = static_cast<double>((window.pixels - 1) * window.stride[1] + 3);
  phase.cost.calibrated_cycles = vdevice.cost("pool.walk_fixed_cycles") + vdevice.cost("pool.walk_load_cycles") * items /
                                                                              static_cast<double>(vdevice.compute_threads) *
                                                                              static_cast<double>(walk_turns(window)) * 2 * columns;
  const std::string name = "pool<walks of " + std::to_string(window.lines) + ", " + std::to_string(phase.rtasks) + ">";
  return one_phase(name, {{"items_per_rtask", per_rtask}, {"pixels", window.pixels}, {"lines", window.lines}}, phase);
}

std::vector<RKernel> strip_offers(const Request& request, Window window) {
  const int64_t veus = request.vdevice.veus(), threads = request.vdevice.compute_threads;
  // One pixel if that gives at most one item for each thread of the vDevice, else two. Longer strips are longer code and no faster.
  if (window.items() > veus * threads) window.pixels = 2;
  const int64_t wide = std::max(threads / 2, ceil_div(window.items(), veus));
  std::vector<RKernel> out = {strip_rkernel_of(request, window, wide)};
  if (wide < threads && window.items() > wide) out.push_back(strip_rkernel_of(request, window, threads));
  // A quarter of the vEUs, while few turns are enough for these: else the pool holds up all that waits for it.
  const int64_t quarter = std::max(threads, ceil_div(window.items(), std::max<int64_t>(1, veus / 4)));
  if (ceil_div(window.items(), threads) > veus / 4 && strip_turns(request, quarter) <= kFewTurns)
    out.push_back(strip_rkernel_of(request, window, quarter));
  if (strip_turns(request, wide) > 2) {
    if (std::optional<Window> walk = walk_window(request.graph, request.rop, window)) {
      walk->lines = walk_lines(*walk, request.vdevice);
      out.push_back(walk_rkernel_of(request, *walk));
    }
  }
  return out;
}

RKernel rkernel_of(const Request& request, const Window& window, int64_t rtasks) {
  const Pool& attrs = std::get<Pool>(request.rop.attrs);
  const int64_t per_rtask = items_per_rtask(window, request.vdevice, rtasks);
  Phase phase = early_phase("kernels/pool/pool.cuh", "rk::pool", "rk::PoolArgs");
  phase.template_args = {{"kVector", std::to_string(window.vector)}};
  add_types(request, "kernels/pool/pool_bytes.cuh", phase);
  phase.args = {{"window", window_arg(window, per_rtask)},
                {"epilogue", epilogue_arg(request.rop, {window.residual_strides.begin(), window.residual_strides.end()})},
                {"average", arg(int64_t{attrs.kind == PoolKind::average})},
                {"counted_height", arg(window.height + window.pad_end[0])},
                {"counted_width", arg(window.width + window.pad_end[1])},
                {"count_pads", arg(int64_t{attrs.count_include_pad})}};
  phase.rtasks = std::max<int64_t>(1, ceil_div(window.items(), per_rtask));
  const double share = static_cast<double>(window.items()) / static_cast<double>(phase.rtasks);
  phase.cost.activation_bytes = window_bytes(window, share, window.taps(), in_type(request), type_of(request));
  phase.cost.flops = share * static_cast<double>(window.vector) * (window.taps() + 8) * 2;
  phase.cost.efficiency = request.vdevice.cost("pool.efficiency");
  const std::string name = "pool<" + std::to_string(window.vector) + " channels, " + std::to_string(phase.rtasks) + ">";
  return one_phase(name, {{"items_per_rtask", per_rtask}, {"pixels", 1}}, phase);
}

std::vector<RKernel> offers(const Request& request) {
  const ROperator& rop = request.rop;
  if (!std::holds_alternative<Pool>(rop.attrs) || !has_plain_values(request.graph, rop)) return {};
  if ((in_type(request) != DType::f32 || type_of(request) != DType::f32) && !has_narrow_activations(request.precision)) return {};
  const Window window = pool_window(request.graph, rop);
  if (is_copy(std::get<Pool>(rop.attrs)) && !has_epilogue(rop)) return {};
  if (has_strips(rop, window)) return strip_offers(request, window);
  return for_all_and_a_quarter(request.vdevice, [&](int64_t rtasks) { return rkernel_of(request, window, rtasks); });
}

void accesses(const Graph& graph, const ROperator& rop, const RKernel& rkernel, int, int64_t index, Accesses& out) {
  Window window = pool_window(graph, rop);
  window.pixels = rkernel.config_value("pixels");
  if (rkernel.phases[0].body == "rk::pool_walk") {
    window.vector = cell_channels(graph, rop);
    window.lines = rkernel.config_value("lines");
  }
  window_accesses(graph, rop, window, rkernel.config_value("items_per_rtask"), index, out);
}

}  // namespace

Family pool() { return {"pool", offers, no_pack, accesses, nullptr, Narrowed::computes, /*takes_sums=*/false, /*takes_bytes=*/true}; }

}  // namespace tamp::kernels
