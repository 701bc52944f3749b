// Host side of depthwise.cuh and depthwise_strips.cuh.
#include <algorithm>
#include <cstring>
#include <utility>

#include "compiler/support/error.h"
#include "kernels/args.h"
#include "kernels/family.h"
#include "kernels/tile/depthwise_item.h"
#include "kernels/tile/numbers.cuh"
#include "kernels/tile/product_phases.h"
#include "kernels/tile/requantised.h"
#include "kernels/window.h"

namespace tamp::kernels {
namespace {

// The convolution, and what becomes of its results where they are rounded: numbers of a table, or themselves.
struct Depthwise {
  ROperator conv;
  TensorId table;  // none: there is no table
  int64_t table_low = 0;
};
Depthwise depthwise_of(const Graph& graph, const ROperator& rop) {
  const std::optional<Requantised> again = requantised_of(graph, rop);
  return again ? Depthwise{again->product, again->table, again->table_low} : Depthwise{rop, TensorId()};
}

// Whether the body for square filters takes the window: 3, 5 or 7 taps, stride 1 or 2.
bool is_square(const Window& w) {
  const int64_t taps = w.kernel[0];
  return w.kernel[1] == taps && (taps == 3 || taps == 5 || taps == 7) && (w.stride[1] == 1 || w.stride[1] == 2) && w.dilation[0] == 1 &&
         w.dilation[1] == 1;
}

// The number of groups of channels. A group is 8 vectors of channels (a line of memory) where that divides them, else 7 down to 4.
int64_t channel_groups_of(const Window& window) {
  const int64_t vectors = ceil_div(window.channels, window.vector);
  if (window.vector == 1 || !window.channels_innermost) return 1;
  for (const int64_t of_group : {int64_t{8}, int64_t{7}, int64_t{6}, int64_t{5}, int64_t{4}}) {
    if (vectors % of_group == 0) return vectors / of_group;
  }
  return 1;
}

Window window_with(const Graph& graph, const ROperator& rop, int64_t pixels) {
  Window window = window_of(graph, rop);
  if (has_aligned_pixels(graph, window)) window.vector = 4;
  window.pixels = pixels;
  window.channel_groups = channel_groups_of(window);
  window.by_columns = window.vector == 4;
  return window;
}

// Floats from one tap's weights to the next: whole vectors.
int64_t pitch_of(int64_t channels) { return ceil_div(channels, 4) * 4; }

int64_t seen_columns(const Window& w, int64_t pixels) { return (pixels - 1) * w.stride[1] + w.kernel[1]; }

constexpr int64_t kFewTurns = 2;

// The time of trips for rows of the filter and of what is computed between them, one after another. Behind the first turns, all
// vEUs wait for L2.
double trips_us(const Window& window, const ShapedVDevice& d, DepthwiseItem item, int64_t per_rtask) {
  const double turns = static_cast<double>(ceil_div(per_rtask * item.parts, d.compute_threads));
  const double row_us = d.cost("depthwise.row_us") + static_cast<double>(item.pixels) * d.cost("depthwise.pixel_us");
  const double loads = static_cast<double>(seen_columns(window, item.pixels) * window.kernel[0]) / static_cast<double>(item.parts);
  const double waits_us = std::max(turns - kFewTurns, 0.0) * loads * d.cost("depthwise.later_load_us");
  return turns * (d.cost("depthwise.turn_us") + static_cast<double>(item.trips(window.kernel[0])) * row_us) + waits_us;
}

// The weights that a rTask reads: those of all channels of the groups in which it has items.
double weight_bytes(const Window& window, int64_t per_rtask) {
  const int64_t of_group = ceil_div(window.items(), window.batch * window.channel_groups);
  const int64_t groups = std::min(window.channel_groups, per_rtask / of_group + 1);
  return 4 * window.taps() * static_cast<double>(window.channels) * static_cast<double>(groups) /
         static_cast<double>(window.channel_groups);
}

Cost cost_of(const Request& request, const Window& window, DepthwiseItem item, double items, int64_t per_rtask) {
  const ShapedVDevice& d = request.vdevice;
  const DType in = request.graph.tensor(window.in).dtype, stored = request.graph.tensor(window.out).dtype;
  const bool square = is_square(window);
  // Pixels of an item share the columns that they load; items of a group of channels share about half of the rows.
  const double columns =
      square ? static_cast<double>((item.pixels - 1) * window.stride[1] + window.kernel[1]) / static_cast<double>(item.pixels)
             : static_cast<double>(window.kernel[1]);
  const double rows = static_cast<double>(window.kernel[0]) * (square && window.channel_groups > 1 ? 0.5 : 1);
  Cost cost;
  cost.activation_bytes = window_bytes(window, items, rows * columns, in, stored);
  cost.weight_bytes = weight_bytes(window, per_rtask);
  cost.flops = items * static_cast<double>(window.vector * item.pixels) * (2 * window.taps() + 20);
  cost.efficiency = d.cost(window.vector == 4 ? "depthwise.vector_efficiency" : "depthwise.scalar_efficiency");
  if (!square) return cost;
  const double veus = static_cast<double>(d.veus());
  const double busy_us =
      std::max(cost.activation_bytes / (d.l2_gb_per_s * 1e3 / veus), cost.flops / (d.fp32_tflops * 1e6 / veus * cost.efficiency));
  cost.latency_us = std::max(trips_us(window, d, item, per_rtask) - busy_us, 0.0);
  return cost;
}

// Items of a rTask: at least one turn of all threads, and whole pixels of a group of channels.
int64_t per_rtask_of(const Window& window, const ShapedVDevice& d, DepthwiseItem item, int64_t rtasks) {
  const int64_t vectors = ceil_div(window.channels, window.vector) / window.channel_groups;
  const int64_t wanted = std::max(d.compute_threads / item.parts, ceil_div(window.items(), rtasks));
  return window.channel_groups > 1 ? ceil_div(wanted, vectors) * vectors : wanted;
}

// The packed data: weights, what is 0 in bytes that begin at another number, the bias with what these bytes bring to each sum, the table.
struct Packed {
  int64_t no_input, bias, table;  // where they begin
};
Packed packed_of(const Window& w) {
  const int64_t weights = pitch_of(w.channels) * w.kernel[0] * w.kernel[1] * 4, no_input = 16;
  return {weights, weights + no_input, weights + no_input + pitch_of(w.channels) * 4};
}

// The byte that is 0 in `id`, four times.
uint32_t no_input_of(const Graph& graph, TensorId id) { return 0x01010101U * (static_cast<uint32_t>(-low_of(graph, id)) & 0xFFU); }

ArgValue bias_arg(const Graph& graph, const ROperator& rop, const Window& w) {
  return low_of(graph, w.in) != 0 ? ArgValue{PackedArg{packed_of(w).bias}} : tensor_arg(rop.epilogue.bias);
}

// Arguments that a phase of Window `w` has besides: behind all others.
void add_byte_args(const Graph& graph, const Depthwise& of, const Window& w, bool in_strips, Phase& phase) {
  if (of.table.valid()) {
    phase.args.push_back({"table", ArgValue{PackedArg{packed_of(w).table}}});
    phase.args.push_back({"table_low", float_arg(static_cast<float>(of.table_low))});
  }
  if (low_of(graph, w.in) == 0) return;
  phase.args.push_back(
      {"no_input", in_strips ? arg(static_cast<int64_t>(no_input_of(graph, w.in))) : ArgValue{PackedArg{packed_of(w).no_input}}});
}

// Types that are not the default, and kTable.
void add_types(Phase& phase, DType in, DType stored, bool rounds, bool has_table) {
  add_value_types(phase, in, stored);
  if (is_whole_byte(in) || is_whole_byte(stored)) phase.header.replace(phase.header.size() - 4, 4, "_bytes.cuh");
  if (!rounds && !has_table) return;
  if (in == DType::f32 && stored == DType::f32) phase.template_args.emplace_back("In", "float");
  if (stored == DType::f32) phase.template_args.emplace_back("Out", "float");
}

RKernel rkernel_of(const Request& request, DepthwiseItem item, int64_t rtasks) {
  const Depthwise of = depthwise_of(request.graph, request.rop);
  const ROperator& rop = of.conv;
  const Window window = window_with(request.graph, rop, item.pixels);
  const int64_t per_rtask = per_rtask_of(window, request.vdevice, item, rtasks);
  const bool square = is_square(window);
  Phase phase = body_phase("kernels/depthwise/depthwise.cuh", square ? "rk::depthwise" : "rk::depthwise_any", "rk::DepthwiseArgs");
  phase.awaits_inputs = square;
  phase.template_args = {{"kVector", std::to_string(window.vector)}};
  if (square) {
    phase.template_args.insert(phase.template_args.end(), {{"kTaps", std::to_string(window.kernel[0])},
                                                           {"kStride", std::to_string(window.stride[1])},
                                                           {"kPixels", std::to_string(item.pixels)},
                                                           {"kParts", std::to_string(item.parts)}});
  }
  const DType in = request.graph.tensor(window.in).dtype, stored = request.graph.tensor(window.out).dtype;
  add_types(phase, in, stored, /*rounds=*/false, of.table.valid());
  if (of.table.valid()) phase.template_args.emplace_back("kTable", "true");
  phase.args = {
      {"zeros", array_arg({0, 0, 0, 0})},
      {"window", window_arg(window, per_rtask)},
      {"epilogue", epilogue_arg(rop.epilogue, bias_arg(request.graph, rop, window), tensor_arg(window.residual),
                                {window.residual_strides.begin(), window.residual_strides.end()}, rop.epilogue.residual_after_activation)},
      {"clip", clip_arg(rop.epilogue, rop.epilogue.residual_after_activation)},
      {"weights", ArgValue{PackedArg{0}}},
      {"channels", arg(window.channels)},
      {"pitch", arg(pitch_of(window.channels))},
      {"groups", divisor_arg(window.channel_groups)}};
  add_byte_args(request.graph, of, window, /*in_strips=*/false, phase);
  phase.rtasks = std::max<int64_t>(1, ceil_div(window.items(), per_rtask));
  const double items = static_cast<double>(window.items()) / static_cast<double>(phase.rtasks);
  phase.cost = cost_of(request, window, item, items, per_rtask);
  const std::string name = "depthwise<" + std::to_string(window.vector) + " channels, " +
                           (square ? std::to_string(window.kernel[0]) : std::string("any")) + ", " + item.text() + ", " +
                           std::to_string(phase.rtasks) + ">";
  return one_phase(name, {{"pixels", item.pixels}, {"parts", item.parts}, {"items_per_rtask", per_rtask}}, phase);
}

// --- strips (depthwise_strips.cuh) --------------------------------------------------------------------------------------

constexpr int64_t kStripTaps = 3;

struct Strips {
  int64_t pixels, rows;  // of an item
  int64_t stages;        // rows of the input that are on their way
};

// Whether the body for strips takes the window.
bool takes_strips(const Graph& graph, const ROperator& rop, const Window& w) {
  const Activation activation = rop.epilogue.activation;
  return is_square(w) && w.kernel[0] == kStripTaps && w.stride[0] == w.stride[1] && w.channels_innermost && w.channels % 4 == 0 &&
         has_aligned_pixels(graph, w) && !w.residual.valid() &&
         (activation == Activation::none || activation == Activation::relu || activation == Activation::clip ||
          activation == Activation::rounded);
}

// A group has at least a sector of memory, which is 32 bytes, and at most a vector for each lane of a warp.
int64_t strip_groups_of(const Window& w, DType in) {
  const int64_t vectors = w.channels / 4, sector = 32 / (4 * bytes_of(in));
  for (int64_t of_group = 32; of_group >= 4; of_group -= sector) {
    if (vectors % of_group == 0) return vectors / of_group;
  }
  return 1;
}

Window strip_window(const Graph& graph, const ROperator& rop, int64_t pixels, int64_t rows) {
  Window window = window_of(graph, rop);
  window.vector = 4;
  window.pixels = pixels;
  window.lines = rows;
  window.channel_groups = strip_groups_of(window, graph.tensor(window.in).dtype);
  return window;
}

int64_t strip_row_bytes(const Request& request, const Window& w, int64_t pixels) {
  return seen_columns(w, pixels) * request.vdevice.compute_threads * 4 * bytes_of(request.graph.tensor(w.in).dtype);
}

// A rTask's time without L2's: turns of all threads, each of which walks down a strip. A row takes its instructions, or its share of the
// wait for a row where few are on their way.
double strips_us(const Window& w, const ShapedVDevice& d, Strips strips, int64_t per_rtask) {
  const double turns = static_cast<double>(ceil_div(per_rtask, d.compute_threads));
  const double steps = static_cast<double>(strips.rows + (w.kernel[0] - 1) / w.stride[0]);
  const double row_us = d.cost("depthwise.strips.row_us") +
                        static_cast<double>(strips.pixels) * d.cost("depthwise.strips.pixel_us") / static_cast<double>(w.stride[0]);
  const double fetched_us = (d.cost("depthwise.strips.trip_us") + row_us) / static_cast<double>(strips.stages);
  const double step_us = static_cast<double>(w.stride[0]) * std::max(row_us, fetched_us);
  return turns * (d.cost("depthwise.strips.turn_us") + steps * step_us);
}

// The number of rows with which a rTask takes least time. Fewer rows than these would be read again by too many strips.
int64_t best_rows(const Request& request, Strips strips) {
  const ShapedVDevice& d = request.vdevice;
  const ROperator rop = depthwise_of(request.graph, request.rop).conv;
  const Window whole = strip_window(request.graph, rop, strips.pixels, 1);
  int64_t best = whole.out_height;
  double best_us = 0;
  for (int64_t count = 1; count <= ceil_div(whole.out_height, 4); ++count) {
    strips.rows = ceil_div(whole.out_height, count);
    const Window window = strip_window(request.graph, rop, strips.pixels, strips.rows);
    const double us = strips_us(window, d, strips, ceil_div(window.items(), d.veus()));
    if (count > 1 && us >= best_us) continue;
    best = strips.rows;
    best_us = us;
  }
  return best;
}

Cost strips_cost(const Request& request, const Window& window, Strips strips, int64_t per_rtask, int64_t rtasks) {
  const ShapedVDevice& d = request.vdevice;
  const double items = static_cast<double>(window.items()) / static_cast<double>(rtasks);
  const double outputs = items * static_cast<double>(4 * strips.pixels * strips.rows);
  const double begun = static_cast<double>(window.kernel[0] - window.stride[0]) / static_cast<double>(window.stride[0]);
  const double reads = static_cast<double>(window.stride[0] * window.stride[1]) * (1 + begun / static_cast<double>(strips.rows));
  Cost cost;
  cost.activation_bytes = outputs * (reads * static_cast<double>(bytes_of(request.graph.tensor(window.in).dtype)) +
                                     static_cast<double>(bytes_of(request.graph.tensor(window.out).dtype)));
  cost.weight_bytes = 4 * window.taps() * static_cast<double>(window.channels);
  cost.flops = outputs * (2 * window.taps() + 20);
  cost.efficiency = 1;  // its instructions are in strips_us
  const double veus = static_cast<double>(d.veus());
  const double busy_us = std::max(cost.activation_bytes / (d.l2_gb_per_s * 1e3 / veus), cost.flops / (d.fp32_tflops * 1e6 / veus));
  cost.latency_us = std::max(strips_us(window, d, strips, per_rtask) - busy_us, 0.0);
  return cost;
}

RKernel strips_rkernel(const Request& request, Strips strips) {
  const Depthwise of = depthwise_of(request.graph, request.rop);
  const ROperator& rop = of.conv;
  const Window window = strip_window(request.graph, rop, strips.pixels, strips.rows);
  const int64_t per_rtask = ceil_div(window.items(), request.vdevice.veus());
  const DType in = request.graph.tensor(window.in).dtype, stored = request.graph.tensor(window.out).dtype;
  Phase phase = early_phase("kernels/depthwise/depthwise_strips.cuh", "rk::depthwise_strips", "rk::DepthwiseStripsArgs");
  phase.template_args = {{"kTaps", std::to_string(window.kernel[0])},
                         {"kStride", std::to_string(window.stride[0])},
                         {"kPixels", std::to_string(strips.pixels)},
                         {"kStages", std::to_string(strips.stages)}};
  Epilogue epilogue = rop.epilogue;
  const bool rounds = epilogue.activation == Activation::rounded;
  add_types(phase, in, stored, rounds, of.table.valid());
  if (rounds) {
    phase.template_args.emplace_back("kRounds", "true");
    epilogue.activation = Activation::clip;
  }
  if (of.table.valid()) phase.template_args.emplace_back("kTable", "true");
  phase.args = {{"window", window_arg(window, per_rtask)},
                {"clip", clip_arg(epilogue, false)},
                {"bias", bias_arg(request.graph, rop, window)},
                {"weights", ArgValue{PackedArg{0}}},
                {"pitch", arg(pitch_of(window.channels))},
                {"out_height", arg(window.out_height)},
                {"strip", arg(strips.rows)},
                {"groups", divisor_arg(window.channel_groups)}};
  add_byte_args(request.graph, of, window, /*in_strips=*/true, phase);
  phase.rtasks = ceil_div(window.items(), per_rtask);
  phase.work_bytes = strips.stages * strip_row_bytes(request, window, strips.pixels);
  phase.cost = strips_cost(request, window, strips, per_rtask, phase.rtasks);
  const std::string name = "depthwise_strips<" + std::to_string(window.kernel[0]) + ", " + std::to_string(strips.pixels) + " pixels, " +
                           std::to_string(strips.rows) + " rows, " + std::to_string(phase.rtasks) + ">";
  return one_phase(name, {{"pixels", strips.pixels}, {"strip", strips.rows}, {"stages", strips.stages}, {"items_per_rtask", per_rtask}},
                   phase);
}

// Strips, where the body for rows makes more than two turns: with fewer, its short code and many threads win.
void offer_strips(const Request& request, std::vector<RKernel>& out) {
  const ShapedVDevice& d = request.vdevice;
  const ROperator rop = depthwise_of(request.graph, request.rop).conv;
  if (!takes_strips(request.graph, rop, window_of(request.graph, rop))) return;
  if (window_with(request.graph, rop, 4).items() <= kFewTurns * d.compute_threads * d.veus()) return;
  for (const int64_t pixels : {int64_t{4}, int64_t{5}}) {
    const Window window = strip_window(request.graph, rop, pixels, 1);
    if (pixels > 4 && (window.stride[1] == 2 || is_narrow(request.graph.tensor(window.in).dtype))) continue;  // registers
    const int64_t stages = std::min<int64_t>(d.work_bytes() / strip_row_bytes(request, window, pixels), 4);
    if (stages == 0) continue;
    Strips strips{pixels, 1, stages};
    strips.rows = best_rows(request, strips);
    out.push_back(strips_rkernel(request, strips));
  }
}

// --- all of the family --------------------------------------------------------------------------------------------------

// The input and the result may each have 16 bits, or be bytes. A result that is a byte is rounded, and its 0 is 0, if it is not of a table.
// A residual has the type of the result.
bool has_plain_values(const Graph& graph, const ROperator& rop, bool has_table) {
  const TensorId in = rop.inputs[0], out = rop.outputs[0], residual = rop.epilogue.residual;
  const auto is_value = [&](TensorId id) {
    return is_plain_values_or_bytes(graph.tensor(id)) && (low_of(graph, id) == 0 || id == in || (id == out && has_table));
  };
  for (const TensorId id : reads_of(rop)) {
    if (id == in || id == residual ? !is_value(id) : !is_plain_f32(graph.tensor(id))) return false;
  }
  if (is_whole_byte(graph.tensor(out).dtype) && rop.epilogue.activation != Activation::rounded) return false;
  return is_value(out) && (!residual.valid() || graph.tensor(residual).dtype == graph.tensor(out).dtype);
}

std::vector<RKernel> offers(const Request& request) {
  const auto& [graph, whole, vdevice, precision] = request;
  const Depthwise of = depthwise_of(graph, whole);
  const ROperator& rop = of.conv;
  const auto* const conv = std::get_if<Conv>(&rop.attrs);
  if (conv == nullptr || has_prologue(*conv) || !has_plain_values(graph, rop, of.table.valid())) return {};
  const Window window = window_of(graph, rop);
  if (window.groups != window.in_channels || window.channels != window.in_channels || window.groups == 1) return {};
  if (graph.tensor(rop.inputs[1]).role != Role::constant) return {};
  const int64_t veus = vdevice.veus();
  const bool plain = !of.table.valid() && low_of(graph, window.in) == 0;
  if (!plain && !(is_square(window) && has_aligned_pixels(graph, window))) return {};
  if (const auto again = requantised_of(graph, whole); again && again->row.valid()) return {};
  if (!is_square(window)) return {rkernel_of(request, {1, 1}, veus)};
  std::vector<DepthwiseItem> items = {{1, 1}, {4, 1}};
  if (has_aligned_pixels(graph, window)) items.push_back(window.kernel[0] <= 3 ? DepthwiseItem{4, 4} : DepthwiseItem{7, 8});
  std::vector<RKernel> out;
  for (const DepthwiseItem item : items) out.push_back(rkernel_of(request, item, veus));
  if (out.back().rtasks() > 8) out.push_back(rkernel_of(request, items.back(), std::max<int64_t>(1, veus / 4)));
  offer_strips(request, out);
  return out;
}

// w[c][0][ky][kx] -> [ky][kx][c], padded.
Bytes pack(const Graph& graph, const ROperator& whole, const RKernel&, int) {
  const Depthwise of = depthwise_of(graph, whole);
  const ROperator& rop = of.conv;
  const Tensor& weights = graph.tensor(rop.inputs[1]);
  const float* const from = f32_data(weights);
  const int64_t channels = weights.shape[0], taps = element_count(weights.shape) / std::max<int64_t>(channels, 1);
  std::vector<float> packed(static_cast<size_t>(pitch_of(channels) * taps));
  for (int64_t c = 0; c < channels; ++c) {
    for (int64_t t = 0; t < taps; ++t) packed[static_cast<size_t>(t * pitch_of(channels) + c)] = from[c * taps + t];
  }
  Bytes bytes = packed_bytes(packed);
  const int64_t low = low_of(graph, rop.inputs[0]);
  if (low == 0 && !of.table.valid()) return bytes;
  const Packed at = packed_of(window_of(graph, rop));
  bytes.resize(static_cast<size_t>(at.table) + (of.table.valid() ? rk::kTableNumbers * 4 : 0));
  const uint32_t no_input = no_input_of(graph, rop.inputs[0]);
  for (int64_t i = 0; i < 4; ++i) std::memcpy(bytes.data() + at.no_input + i * 4, &no_input, 4);
  const TensorId own_bias = rop.epilogue.bias;
  for (int64_t c = 0; c < channels; ++c) {
    double sum = own_bias.valid() ? f32_data(graph.tensor(own_bias))[c] : 0;
    for (int64_t t = 0; t < taps; ++t) sum += static_cast<double>(low) * from[c * taps + t];
    const auto bias = static_cast<float>(sum);
    std::memcpy(bytes.data() + at.bias + c * 4, &bias, 4);
  }
  if (!of.table.valid()) return bytes;
  const Tensor& table = graph.tensor(of.table);
  for (int64_t i = 0; i < element_count(table.shape); ++i) {
    const float number = f32_data(table)[i] - static_cast<float>(low_of(graph, rop.outputs[0]));
    std::memcpy(bytes.data() + at.table + i * 4, &number, 4);
  }
  return bytes;
}

void accesses(const Graph& graph, const ROperator& whole, const RKernel& rkernel, int, int64_t index, Accesses& out) {
  ROperator rop = depthwise_of(graph, whole).conv;
  if (low_of(graph, rop.inputs[0]) != 0) rop.epilogue.bias = TensorId();  // it is packed
  const int64_t pixels = rkernel.config_value("pixels"), per_rtask = rkernel.config_value("items_per_rtask");
  const bool strips = rkernel.phases[0].body == "rk::depthwise_strips";
  window_accesses(graph, rop, strips ? strip_window(graph, rop, pixels, rkernel.config_value("strip")) : window_with(graph, rop, pixels),
                  per_rtask, index, out);
}

}  // namespace

Family depthwise() {
  return {"depthwise", offers, pack, accesses, nullptr, Narrowed::computes, /*takes_sums=*/false, /*takes_bytes=*/true};
}

}  // namespace tamp::kernels
