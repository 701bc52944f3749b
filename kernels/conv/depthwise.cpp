// Host side of depthwise.cuh.
#include "kernels/conv/depthwise.h"

#include <algorithm>
#include <cstring>

#include "kernels/args.h"
#include "kernels/window.h"

namespace tamp::kernels {
namespace {

// Square filters of 3, 5 or 7 with stride 1 or 2 have a body of their own.
bool is_square(const Window& w) {
  const int64_t taps = w.kernel[0];
  return w.kernel[1] == taps && (taps == 3 || taps == 5 || taps == 7) && (w.stride[1] == 1 || w.stride[1] == 2) && w.dilation[0] == 1 &&
         w.dilation[1] == 1;
}

Window window_with(const Graph& graph, const ROperator& rop, int64_t pixels) {
  Window window = window_of(graph, rop);
  if (has_aligned_pixels(graph, window)) window.vector = 4;
  window.pixels = pixels;
  return window;
}

// Of the weights of a tap: whole vectors.
int64_t pitch_of(int64_t channels) { return ceil_div(channels, 4) * 4; }

RKernel rkernel_of(const Request& request, int64_t pixels, int64_t rtasks) {
  const ROperator& rop = request.rop;
  const Window window = window_with(request.graph, rop, pixels);
  const int64_t per_rtask = items_per_rtask(window, request.vdevice, rtasks);
  const bool square = is_square(window);
  Phase phase;
  phase.header = "kernels/conv/depthwise.cuh";
  phase.body = square ? "rk::depthwise" : "rk::depthwise_any";
  phase.template_args = {{"kVector", std::to_string(window.vector)}};
  if (square) {
    phase.template_args.insert(
        phase.template_args.end(),
        {{"kTaps", std::to_string(window.kernel[0])}, {"kStride", std::to_string(window.stride[1])}, {"kPixels", std::to_string(pixels)}});
  }
  const DType in = request.graph.tensor(window.in).dtype, stored = request.graph.tensor(window.out).dtype;
  if (is_narrow(in) || is_narrow(stored)) phase.template_args.emplace_back("In", value_type(in));
  if (is_narrow(stored)) phase.template_args.emplace_back("Out", value_type(stored));
  phase.args_type = "rk::DepthwiseArgs";
  phase.args = {{"window", window_arg(window, per_rtask)},
                {"epilogue", epilogue_arg(rop, {window.residual_strides.begin(), window.residual_strides.end()})},
                {"weights", ArgValue{PackedArg{0}}},
                {"channels", arg(window.channels)},
                {"pitch", arg(pitch_of(window.channels))}};
  phase.rtasks = std::max<int64_t>(1, ceil_div(window.items(), per_rtask));
  const double items = static_cast<double>(window.items()) / static_cast<double>(phase.rtasks);
  // Pixels of an item share the columns that they load.
  const double columns = square ? static_cast<double>((pixels - 1) * window.stride[1] + window.kernel[1]) / static_cast<double>(pixels)
                                : static_cast<double>(window.kernel[1]);
  phase.cost.activation_bytes = window_bytes(window, items, static_cast<double>(window.kernel[0]) * columns, in, stored);
  phase.cost.weight_bytes = 4 * window.taps() * static_cast<double>(window.channels);
  phase.cost.flops = items * static_cast<double>(window.vector * pixels) * (2 * window.taps() + 20);
  phase.cost.efficiency = request.vdevice.cost(window.vector == 4 ? "depthwise.vector_efficiency" : "depthwise.scalar_efficiency");
  RKernel rkernel;
  rkernel.family = "depthwise";
  rkernel.name = "depthwise<" + std::to_string(window.vector) + " channels, " +
                 (square ? std::to_string(window.kernel[0]) : std::string("any")) + ", " + std::to_string(pixels) + " pixels, " +
                 std::to_string(phase.rtasks) + ">";
  rkernel.config = {{"pixels", pixels}, {"items_per_rtask", per_rtask}};
  rkernel.phases = {phase};
  return rkernel;
}

// Each of the input and the result may be of 16 bits; a residual is like the result.
bool has_plain_values(const Graph& graph, const ROperator& rop) {
  const TensorId in = rop.inputs[0], out = rop.outputs[0], residual = rop.epilogue.residual;
  for (const TensorId id : reads_of(rop)) {
    if (id == in || id == residual ? !is_plain_values(graph.tensor(id)) : !is_plain_f32(graph.tensor(id))) return false;
  }
  return is_plain_values(graph.tensor(out)) && (!residual.valid() || graph.tensor(residual).dtype == graph.tensor(out).dtype);
}

std::vector<RKernel> offers(const Request& request) {
  const ROperator& rop = request.rop;
  const Graph& graph = request.graph;
  const auto* const conv = std::get_if<Conv>(&rop.attrs);
  if (conv == nullptr || has_prologue(*conv) || !has_plain_values(graph, rop)) return {};
  const Window window = window_of(graph, rop);
  if (window.groups != window.in_channels || window.channels != window.in_channels || window.groups == 1) return {};
  if (graph.tensor(rop.inputs[1]).role != Role::constant) return {};
  const int64_t veus = request.vdevice.veus();
  if (!is_square(window)) return {rkernel_of(request, 1, veus)};
  std::vector<RKernel> out = {rkernel_of(request, 1, veus), rkernel_of(request, 4, veus)};
  if (out[1].rtasks() > 8) out.push_back(rkernel_of(request, 4, std::max<int64_t>(1, veus / 4)));
  return out;
}

// w[c][0][ky][kx] -> [ky][kx][c], padded.
Bytes pack(const Graph& graph, const ROperator& rop, const RKernel&, int) {
  const Tensor& weights = graph.tensor(rop.inputs[1]);
  const float* const from = f32_data(weights);
  const int64_t channels = weights.shape[0], taps = element_count(weights.shape) / std::max<int64_t>(channels, 1);
  std::vector<float> packed(static_cast<size_t>(pitch_of(channels) * taps));
  for (int64_t c = 0; c < channels; ++c) {
    for (int64_t t = 0; t < taps; ++t) packed[static_cast<size_t>(t * pitch_of(channels) + c)] = from[c * taps + t];
  }
  Bytes bytes(packed.size() * sizeof(float));
  std::memcpy(bytes.data(), packed.data(), bytes.size());
  return bytes;
}

void accesses(const Graph& graph, const ROperator& rop, const RKernel& rkernel, int, int64_t index, Accesses& out) {
  window_accesses(graph, rop, window_with(graph, rop, rkernel.config_value("pixels")), rkernel.config_value("items_per_rtask"), index, out);
}

}  // namespace

const Family& depthwise() {
  static const Family family{"depthwise", offers, pack, accesses};
  return family;
}

}  // namespace tamp::kernels
