// Host side of direct.cuh.
#include <fmt/format.h>

#include <algorithm>

#include "kernels/args.h"
#include "kernels/family.h"
#include "kernels/loop.h"
#include "kernels/window.h"

namespace tamp::kernels {
namespace {

struct Tile {
  int64_t outputs = 1, inputs = 1, pixels = 1;
};

Window window_with(const Graph& graph, const ROperator& rop, const Tile& tile) {
  Window window = window_of(graph, rop);
  window.vector = tile.outputs;
  window.pixels = tile.pixels;
  return window;
}

// Strides of the weights (output channel, channel within the group, row, column), packed or where the placed tensor lies.
std::vector<int64_t> weight_strides(const Graph& graph, const ROperator& rop, const Window& w) {
  const Tensor& weights = graph.tensor(rop.inputs[1]);
  const int64_t group_channels = w.in_channels / w.groups;
  if (weights.role == Role::constant) return {1, w.channels, w.kernel[1] * group_channels * w.channels, group_channels * w.channels};
  const std::vector<int64_t>& s = weights.place.strides;
  return s.size() == 3 ? std::vector<int64_t>{s[0], s[1], 0, s[2]} : s;
}

Phase phase_of(const Request& request, const Tile& tile, const Window& w, int64_t per_rtask) {
  const ROperator& rop = request.rop;
  const bool constant = request.graph.tensor(rop.inputs[1]).role == Role::constant;
  const double group_channels = static_cast<double>(w.in_channels / w.groups);
  Phase phase = body_phase("kernels/product/direct.cuh", "rk::direct", "rk::DirectArgs");
  phase.template_args = {
      {"kOutputs", std::to_string(tile.outputs)}, {"kInputs", std::to_string(tile.inputs)}, {"kPixels", std::to_string(tile.pixels)}};
  phase.args = {{"window", window_arg(w, per_rtask)},
                {"epilogue", epilogue_arg(rop, {w.residual_strides.begin(), w.residual_strides.end()})},
                {"weights", constant ? ArgValue{PackedArg{0}} : arg(TensorArg{rop.inputs[1]})},
                {"weight_strides", array_arg(weight_strides(request.graph, rop, w), 4)},
                {"weights_constant", arg(int64_t{constant})},
                {"group_channels", arg(w.in_channels / w.groups)},
                {"group_outputs", divisor_arg(w.channels / w.groups)}};
  phase.rtasks = std::max<int64_t>(1, ceil_div(w.items(), per_rtask));
  const double items = static_cast<double>(w.items()) / static_cast<double>(phase.rtasks);
  const double macs = items * static_cast<double>(tile.outputs * tile.pixels) * w.taps() * group_channels;
  // Lanes of one group that share a pixel read the same input elements with one request.
  const double sharing = std::clamp(static_cast<double>(w.channels / w.groups / tile.outputs), 1.0, w.channels_innermost ? 32.0 : 1.0);
  phase.cost.activation_bytes =
      4 * items * static_cast<double>(tile.pixels) * (w.taps() * group_channels / sharing + static_cast<double>(tile.outputs));
  phase.cost.weight_bytes = 4 * w.taps() * group_channels * static_cast<double>(w.channels);
  phase.cost.flops = 2 * macs + items * 60;
  phase.cost.efficiency = request.vdevice.cost(fmt::format("direct.{}x{}x{}.efficiency", tile.outputs, tile.inputs, tile.pixels));
  return phase;
}

RKernel rkernel_of(const Request& request, const Tile& tile, int64_t rtasks) {
  const Window window = window_with(request.graph, request.rop, tile);
  const int64_t per_rtask = items_per_rtask(window, request.vdevice, rtasks);
  const Phase phase = phase_of(request, tile, window, per_rtask);
  const std::string name = "direct<" + std::to_string(tile.outputs) + "x" + std::to_string(tile.inputs) + "x" +
                           std::to_string(tile.pixels) + ", " + std::to_string(phase.rtasks) + ">";
  return one_phase(name, {{"outputs", tile.outputs}, {"pixels", tile.pixels}, {"items_per_rtask", per_rtask}}, phase);
}

std::vector<RKernel> offers(const Request& request) {
  const auto& [graph, rop, vdevice, precision] = request;
  const auto* const conv = std::get_if<Conv>(&rop.attrs);
  if (conv == nullptr || has_prologue(*conv) || !all_plain_f32(graph, rop)) return {};
  const Window window = window_of(graph, rop);
  const int64_t group_outputs = window.channels / window.groups, group_channels = window.in_channels / window.groups;
  const int64_t veus = vdevice.veus();
  const bool constant = graph.tensor(rop.inputs[1]).role == Role::constant;
  if (!constant || group_outputs % 4 != 0 || !has_vector_outputs(graph, window)) return {rkernel_of(request, {1, 1, 1}, veus)};
  if (group_channels % 4 != 0 || !has_vector_inputs(graph, window)) return {rkernel_of(request, {4, 1, 4}, veus)};
  std::vector<RKernel> out = {rkernel_of(request, {4, 4, 2}, veus), rkernel_of(request, {4, 4, 4}, veus)};
  if (out[1].rtasks() > 8) out.push_back(rkernel_of(request, {4, 4, 4}, std::max<int64_t>(1, veus / 4)));
  return out;
}

// w[m][c][tap] -> [tap][c][m].
Bytes pack(const Graph& graph, const ROperator& rop, const RKernel&, int) {
  const Tensor& weights = graph.tensor(rop.inputs[1]);
  if (weights.role != Role::constant) return {};
  const float* from = f32_data(weights);
  const int64_t outputs = weights.shape[0], channels = weights.shape[1];
  const int64_t taps = element_count(weights.shape) / std::max<int64_t>(outputs * channels, 1);
  std::vector<float> packed(static_cast<size_t>(element_count(weights.shape)));
  for (int64_t m = 0; m < outputs; ++m) {
    for (int64_t c = 0; c < channels; ++c) {
      for (int64_t t = 0; t < taps; ++t) packed[static_cast<size_t>((t * channels + c) * outputs + m)] = *from++;
    }
  }
  return packed_bytes(packed);
}

void accesses(const Graph& graph, const ROperator& rop, const RKernel& rkernel, int, int64_t index, Accesses& out) {
  const Tile tile{rkernel.config_value("outputs"), 1, rkernel.config_value("pixels")};
  window_accesses(graph, rop, window_with(graph, rop, tile), rkernel.config_value("items_per_rtask"), index, out);
  if (graph.tensor(rop.inputs[1]).role != Role::constant) append_whole(graph, rop.inputs[1], out.reads);  // constant weights are packed
}

}  // namespace

Family direct() { return {"direct", offers, pack, accesses}; }

}  // namespace tamp::kernels
