// Host side of separable_conv.cuh, and of separable_narrow.cuh for inputs of 16 bits: which tiles there are, the packed weights, and what
// a rTask touches. rTask t is n_block * tiles + tile, so that the rTasks of one ring block follow each other, as InputBoxes also wants.
//
// A prologue that is only an activation is treated as a depthwise convolution of a single tap with a weight of one.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "compiler/support/error.h"
#include "kernels/depthwise/numbers.cuh"
#include "kernels/family.h"
#include "kernels/loop.h"
#include "kernels/narrow.h"
#include "kernels/tile/numbers.cuh"
#include "kernels/tile/product_phases.h"
#include "kernels/vectors.h"

namespace tamp::kernels {
namespace {

constexpr int64_t kTileW = rk::kSeparableTileW;
constexpr int64_t kWarps = rk::kComputeWarps;
constexpr int64_t kMostElements = int64_t{1} << 26;  // of a tensor, so that 32-bit offsets suffice wherever the tensor lies
constexpr float kInfinity = std::numeric_limits<float>::infinity();

// What the rOperator is, without regard to where its tensors lie.
struct Separable {
  int64_t taps = 1, stride = 1, pad_h = 0, pad_w = 0;
  bool relu = false;  // of the input
  bool residual = false;
  bool rounds = false;  // what the filter makes, to whole numbers
  float low = -kInfinity, high = kInfinity;
  int64_t images = 1, channels = 1, height = 1, width = 1, out_channels = 1, out_height = 1, out_width = 1;
  DType in = DType::f32;

  bool narrow() const { return is_narrow(in); }
  int64_t column_values() const { return taps + 1; }  // values of a column of the filter, as packed for inputs of f32
  int64_t values() const { return taps * column_values(); }
  int64_t box_channels() const { return narrow() ? 2 * kBoxChannels : kBoxChannels; }
  int64_t warp_channels() const { return box_channels() / 4; }  // channels that a warp owns in a step
  int64_t boxes() const { return ceil_div(channels, box_channels()); }
};

// Reads the activation as a clip; false if it cannot be one.
bool read_clip(const ActivationCall& call, Separable& s) {
  if (call.kind == Activation::relu) s.low = 0;
  const bool clips = call.kind == Activation::clip || call.kind == Activation::rounded;
  s.rounds = call.kind == Activation::rounded;
  if (clips) s.low = call.a, s.high = call.b;
  return call.kind == Activation::none || call.kind == Activation::relu || (clips && call.a <= call.b);
}

bool read_filter(const DepthwisePrologue& filter, Separable& s) {
  s.taps = filter.kernel[0];
  s.stride = filter.strides[0];
  s.pad_h = filter.pads_begin[0];
  s.pad_w = filter.pads_begin[1];
  if (filter.kernel[1] != s.taps || (s.taps != 3 && s.taps != 5 && s.taps != 7)) return false;
  if (filter.strides[1] != s.stride || s.stride > 2 || filter.dilations[0] != 1 || filter.dilations[1] != 1) return false;
  return read_clip(filter.activation, s);
}

// Nothing where the body cannot compute the rOperator.
std::optional<Separable> separable_of(const Graph& graph, const ROperator& rop) {
  const auto* conv = std::get_if<Conv>(&rop.attrs);
  if (conv == nullptr || !has_prologue(*conv) || !is_pointwise(*conv) || conv->kernel.size() != 2) return std::nullopt;
  const Tensor &in = graph.tensor(rop.inputs[0]), &out = graph.tensor(rop.outputs[0]);
  const auto is_value = [](DType dtype) { return dtype == DType::f32 || is_narrow(dtype); };
  const bool types = is_value(in.dtype) && is_value(out.dtype) && (!is_narrow(in.dtype) || !is_narrow(out.dtype) || in.dtype == out.dtype);
  if (!types || in.role == Role::constant || element_count(out.shape) == 0) return std::nullopt;
  if (element_count(in.shape) > kMostElements || element_count(out.shape) > kMostElements) return std::nullopt;
  if (!are_f32_constants(graph, {rop.inputs[1], operand(rop, kDepthwiseWeights), operand(rop, kDepthwiseBias)})) return std::nullopt;
  Separable s;
  s.in = in.dtype;
  s.images = in.shape[0];
  s.channels = in.shape[1];
  s.height = in.shape[2];
  s.width = in.shape[3];
  s.out_channels = out.shape[1];
  s.out_height = out.shape[2];
  s.out_width = out.shape[3];
  s.residual = rop.epilogue.residual.valid();
  s.relu = conv->input_activation.kind == Activation::relu;
  if (!s.relu && conv->input_activation.kind != Activation::none) return std::nullopt;
  if (conv->depthwise && !read_filter(*conv->depthwise, s)) return std::nullopt;
  if (s.channels % 4 != 0 && s.channels < kPaddedChannels) return std::nullopt;
  if (s.rounds && !rop.epilogue.bias.valid()) return std::nullopt;  // its scales lie behind the bias
  if (rop.epilogue.sum && (!s.rounds || rop.epilogue.activation != Activation::rounded)) return std::nullopt;
  return s;
}

// Template arguments of the body, and what follows from them.
struct Tile {
  int64_t mt, nt, warps_n;

  int64_t channels() const { return 16 * mt; }
  int64_t height() const { return nt * warps_n; }
  int64_t warps_k() const { return kWarps / warps_n; }
  int64_t teams() const { return warps_k() / 4; }
  int64_t warp_bytes(const Separable& s) const {  // weights of what a warp owns in a step
    return mt * 512 + (s.narrow() ? rk::separable_filter_bytes(static_cast<int>(s.taps)) : s.values() * 32);
  }
  int64_t step_bytes(const Separable& s) const { return warps_k() * warp_bytes(s); }
  int64_t outputs() const { return ceil_div(kTileW * height() * channels() / 4, kWarps * 32); }  // of a thread
  // The sums of the warps, and the residuals of all threads.
  int64_t work_bytes(bool residual) const {
    return warps_k() * kTileW * height() * (channels() + rk::kSumPad) * 4 + (residual ? outputs() * kWarps * 32 * 16 : 0);
  }
};
constexpr Tile kTiles[] = {{1, 1, 1}, {1, 2, 1}, {2, 2, 1}, {2, 4, 1}, {1, 1, 2}, {2, 2, 2}, {2, 4, 2}, {1, 7, 2}, {1, 2, 2}, {1, 4, 2}};

// Whether the body of the input's type has the tile.
bool has_tile(const Separable& s, const Tile& t) {
  if (s.narrow()) return t.nt <= 4;
  if (s.taps == 7 && t.nt > 2) return false;  // out of registers
  return t.mt == 2 || t.warps_n == 1 || (t.nt != 2 && t.nt != 4);
}

// What pack and accesses need; a RKernel's config holds it.
struct Config {
  int64_t tile = 0, chunk_steps = 1, boxes_per_chunk = 1;
};

Config config_of(const RKernel& rkernel) {
  return {rkernel.config_value("tile"), rkernel.config_value("chunk_steps"), rkernel.config_value("boxes_per_chunk")};
}

struct Blocks {
  int64_t tiles_w, tiles_h, tiles, n, steps, chunks;
};
Blocks blocks_of(const Separable& s, const Config& c) {
  const Tile& t = kTiles[c.tile];
  Blocks b{};
  b.tiles_w = ceil_div(s.out_width, kTileW);
  b.tiles_h = ceil_div(s.out_height, t.height());
  b.tiles = s.images * b.tiles_h * b.tiles_w;
  b.n = ceil_div(s.out_channels, t.channels());
  b.steps = ceil_div(s.boxes(), t.teams());
  b.chunks = ceil_div(b.steps, c.chunk_steps);
  return b;
}

InputBoxes boxes_of(const Separable& s, const Config& c) {
  const Tile& t = kTiles[c.tile];
  const Blocks b = blocks_of(s, c);
  InputBoxes boxes;
  boxes.extents = {s.channels, s.width, s.height, s.images};
  boxes.box_w = (kTileW - 1) * s.stride + s.taps;
  boxes.box_h = (t.height() - 1) * s.stride + s.taps;
  boxes.tiles_w = b.tiles_w;
  boxes.tiles_h = b.tiles_h;
  boxes.images = s.images;
  boxes.begin_w = -s.pad_w;
  boxes.begin_h = -s.pad_h;
  boxes.step_w = kTileW * s.stride;
  boxes.step_h = t.height() * s.stride;
  boxes.n_blocks = b.n;
  boxes.group_channels = s.channels;
  boxes.boxes = boxes.boxes_per_split = s.boxes();
  boxes.boxes_per_chunk = c.boxes_per_chunk;
  boxes.boxes_per_copy = s.channels % s.box_channels() == 0 ? c.boxes_per_chunk : 1;
  boxes.value_bytes = bytes_of(s.in);
  return boxes;
}

// The tile's configuration on the vDevice; nothing where a box, a step of weights or the sums do not fit.
std::optional<Config> config_for(const ShapedVDevice& vdevice, const Separable& s, int64_t tile) {
  const Tile& t = kTiles[tile];
  if (t.work_bytes(s.residual) > vdevice.work_beside_inputs() || t.step_bytes(s) > vdevice.weight_stage_bytes) return std::nullopt;
  if (!has_tile(s, t)) return std::nullopt;
  Config c;
  c.tile = tile;
  const InputBoxes one = boxes_of(s, c);
  const int64_t fitting = vdevice.input_stage_bytes / (s.channels % s.box_channels() == 0 ? one.copied_bytes() : one.box_bytes());
  if (fitting < t.teams()) return std::nullopt;
  // A short rTask is spread over all stages, so that its first part is there early.
  const int64_t spread = ceil_div(ceil_div(s.boxes(), vdevice.input_stages), t.teams()) * t.teams();
  c.boxes_per_chunk = std::min(spread, fitting / t.teams() * t.teams());
  c.chunk_steps = std::min(blocks_of(s, c).steps, vdevice.weight_stage_bytes / t.step_bytes(s));
  return c;
}

// cycles_of where inputs have 16 bits. Loads of 4 times 8 cells are most of what shared memory delivers; with a stride of 2 the 8 pixels
// meet two by two in the same banks.
double narrow_cycles_of(const ShapedVDevice& vdevice, const Separable& s, const Config& c) {
  const Tile& t = kTiles[c.tile];
  const int64_t words = rk::separable_words(static_cast<int>(s.taps));
  int64_t loads = ceil_div(t.nt, 2), weights = 4 * t.mt;
  if (s.taps > 1) {
    loads = s.taps * (t.nt == 1 ? words : s.stride == 2 ? 2 * (words + t.nt - 2) : t.nt == 4 ? 2 * words : (s.taps + 1) / 2);
    weights += 2 * s.taps * words + 8;
  }
  const int64_t delivered = kWarps * (4 * loads * s.stride + weights);
  const double steps = static_cast<double>(blocks_of(s, c).steps), bytes = static_cast<double>(s.boxes() * boxes_of(s, c).copied_bytes());
  const auto cost = [&](const char* name) { return vdevice.cost(std::string("separable_conv.narrow.") + name); };
  return cost("fixed_cycles") + steps * (cost("step_cycles") + cost("loop_factor") * static_cast<double>(delivered)) +
         cost("input_byte_cycles") * bytes;
}

// Cycles of a rTask once its inputs are there. A step takes the longer of two times: that in which shared memory delivers to the lanes
// (128 bytes a cycle), and that in which a scheduler issues for its two warps.
double cycles_of(const ShapedVDevice& vdevice, const Separable& s, const Config& c) {
  const Tile& t = kTiles[c.tile];
  if (s.narrow()) return narrow_cycles_of(vdevice, s, c);
  const int64_t reads = ((t.nt - 1) * s.stride + s.taps) * s.taps;
  const int64_t delivered = kWarps * (2 * reads + 2 * s.values() + 4 * t.mt);
  const int64_t issued = 2 * (reads * 4 + 2 * s.taps * s.taps * t.nt + s.values() / 2 + t.nt * (7 + 2 * t.mt) + 60);
  const double steps = static_cast<double>(blocks_of(s, c).steps), bytes = static_cast<double>(s.boxes() * boxes_of(s, c).copied_bytes());
  const auto cost = [&](const char* name) { return vdevice.cost(std::string("separable_conv.") + name); };
  return cost("fixed_cycles") + cost("loop_factor") * steps * static_cast<double>(std::max(delivered, issued)) +
         cost("input_byte_cycles") * bytes;
}

// --- packed data: ring blocks, bias ------------------------------------------------------------------------------------

int64_t ring_bytes(const Separable& s, const Config& c) {
  const Blocks b = blocks_of(s, c);
  return b.n * b.chunks * c.chunk_steps * kTiles[c.tile].step_bytes(s);
}

struct Weights {
  const float *pointwise, *filter, *bias;  // filter and bias may be null

  // Value v of the packed filter: column by column, the taps of a column and one value more, which in the first column is the bias.
  float value(const Separable& s, int64_t channel, int64_t v) const {
    const int64_t kx = v / s.column_values(), ky = v % s.column_values();
    if (ky == s.taps) return kx != 0 || bias == nullptr ? 0.0F : bias[channel];
    return filter == nullptr ? 1.0F : filter[(channel * s.taps + ky) * s.taps + kx];
  }
};

// The weights of 8 channels from `channel` on, as separable_conv.cuh wants them. `scales`: of output channels, where there are any.
void pack_octet(const Weights& weights, const Separable& s, const Tile& t, const std::vector<float>& scales, int64_t first_n,
                int64_t channel, float* to) {
  for (int64_t i = 0; i < t.mt * 128; ++i, ++to) {
    const int64_t lane = i / 4 % 32, row = first_n + rk::dealt_channel(t.mt, i / 128, i % 2 * 8 + lane / 4),
                  c = channel + lane % 4 * 2 + i % 4 / 2;
    if (row >= s.out_channels || c >= s.channels) continue;
    const float weight = weights.pointwise[row * s.channels + c];
    *to = round_to_tf32(s.rounds ? weight / scales[static_cast<size_t>(row)] : weight);
  }
  for (int64_t i = 0; i < s.values() * 8; ++i, ++to) {
    const int64_t c = channel + i / 4 % 4 * 2 + i % 2, v = i / 16 * 2 + i % 4 / 2;
    if (c < s.channels) *to = weights.value(s, c, v);
  }
}

uint32_t narrow_of(const Separable& s, float x) { return s.in == DType::f16 ? half_of(x) : bfloat_of(x); }

// The filter's weights of a channel, and the power of two that they are divided by.
std::vector<float> scaled_filter(const Weights& weights, const Separable& s, int64_t channel, float& scale) {
  std::vector<float> filter(weights.filter + channel * s.taps * s.taps, weights.filter + (channel + 1) * s.taps * s.taps);
  scale = s.in == DType::f16 ? half_scale(filter) : 1.0F;
  for (float& w : filter) w /= scale;
  return filter;
}

// The weights of 16 channels from `channel` on, as separable_narrow.cuh wants them. `scales`: of output channels, where there are any.
void pack_narrow(const Weights& weights, const Separable& s, const Tile& t, const std::vector<float>& scales, int64_t first_n,
                 int64_t channel, uint32_t* to) {
  for (int64_t i = 0; i < t.mt * 128; ++i, ++to) {
    const int64_t lane = i / 4 % 32, row = first_n + rk::dealt_channel(t.mt, i / 128, i % 2 * 8 + lane / 4),
                  c = channel + lane % 4 * 2 + i % 4 / 2 * 8;
    if (row >= s.out_channels) continue;
    for (int64_t k = 0; k < std::min<int64_t>(2, s.channels - c); ++k) {
      const float weight = weights.pointwise[row * s.channels + c + k];
      *to |= narrow_of(s, s.rounds ? weight / scales[static_cast<size_t>(row)] : weight) << 16 * k;
    }
  }
  if (s.taps == 1) return;
  const auto taps = static_cast<int>(s.taps), words = rk::separable_words(taps);
  const int distance = rk::separable_tap_distance(static_cast<int>(s.stride), static_cast<int>(t.nt));
  uint32_t* const floats = to + rk::separable_word_bytes(taps) / 4;
  for (int64_t i = 0; i < std::min<int64_t>(16, s.channels - channel); ++i) {
    float scale = 1;
    const std::vector<float> filter = scaled_filter(weights, s, channel + i, scale);
    for (int word = 0; word < taps * words; ++word) {
      for (int half = 0; half < 2; ++half) {
        const int ky = rk::separable_tap(distance, word % words, half != 0), kx = word / words;
        if (ky < taps) to[word * 16 + i % 8 * 2 + i / 8] |= narrow_of(s, filter[static_cast<size_t>(ky * taps + kx)]) << 16 * half;
      }
    }
    const float bias = weights.bias == nullptr ? 0.0F : weights.bias[channel + i];
    const int64_t at = i % 8 / 2 * 4 + i / 8 * 2 + i % 2;
    std::memcpy(floats + at, &scale, 4);
    std::memcpy(floats + 16 + at, &bias, 4);
  }
}

Bytes pack(const Graph& graph, const ROperator& rop, const RKernel& rkernel, int) {
  const Separable s = *separable_of(graph, rop);
  const Config c = config_of(rkernel);
  const Tile& t = kTiles[c.tile];
  const Blocks b = blocks_of(s, c);
  const Product p = *product_with_prologue(graph, rop, Activations::narrow);
  const auto data = [&](size_t i) { return f32_data_or_null(graph, operand(rop, i)); };
  const Weights weights = {data(1), data(kDepthwiseWeights), data(kDepthwiseBias)};
  std::vector<float> bias;
  if (has_bias(p)) bias = padded_bias(graph, p, 1, b.n * t.channels());
  std::vector<float> scales;
  if (s.rounds) {
    scales = scales_of(weights.pointwise, p);
    scales.resize(static_cast<size_t>(b.n * t.channels()), 1.0F);
    bias.insert(bias.end(), scales.begin(), scales.end());
  }
  const int64_t parts = b.chunks * c.chunk_steps * t.warps_k();
  Bytes bytes(static_cast<size_t>(ring_bytes(s, c)) + bias.size() * 4);
  for (int64_t i = 0; i < b.n * parts; ++i) {
    std::vector<uint32_t> words(static_cast<size_t>(t.warp_bytes(s) / 4));
    const int64_t first_n = i / parts * t.channels(), channel = i % parts * s.warp_channels();
    if (s.narrow())
      pack_narrow(weights, s, t, scales, first_n, channel, words.data());
    else
      pack_octet(weights, s, t, scales, first_n, channel, reinterpret_cast<float*>(words.data()));
    std::memcpy(bytes.data() + i * t.warp_bytes(s), words.data(), static_cast<size_t>(t.warp_bytes(s)));
  }
  if (!bias.empty()) std::memcpy(bytes.data() + ring_bytes(s, c), bias.data(), bias.size() * 4);
  return bytes;
}

// --- candidates --------------------------------------------------------------------------------------------------------

std::vector<Arg> args_of(const Graph& graph, const ROperator& rop, const Separable& s, const Config& c) {
  const Product p = *product_with_prologue(graph, rop, Activations::narrow);
  const Blocks b = blocks_of(s, c);
  return {
      {"out", arg(TensorArg{p.out})},
      {"epilogue", product_epilogue(rop, p, true, ring_bytes(s, c))},
      {"clip", clip_arg(rop.epilogue, p.residual_after_activation)},
      {"out_strides", array_arg(to_vector(p.out_strides))},
      {"channels", arg(s.out_channels)},
      {"boxes", arg(s.boxes())},
      {"box_bytes", arg(boxes_of(s, c).box_bytes())},
      {"input_steps", arg(c.boxes_per_chunk / kTiles[c.tile].teams())},
      {"chunk_steps", arg(c.chunk_steps)},
      {"relu", arg(int64_t{s.relu})},
      {"low", float_arg(s.low)},
      {"high", float_arg(s.high)},
      {"grid_h", arg(s.out_height)},
      {"grid_w", arg(s.out_width)},
      {"vector_out", arg(vector_out(graph, p, 4))},
      {"vector_residual", arg(int64_t{loads_residual_vectors(graph, p)})},
      {"tiles", divisor_arg(b.tiles)},
      {"tiles_w", divisor_arg(b.tiles_w)},
      {"tiles_h", divisor_arg(b.tiles_h)},
  };
}

InputBoxes placed_boxes(const Graph& graph, const ROperator& rop, const Separable& s, const Config& c) {
  InputBoxes boxes = boxes_of(s, c);
  boxes.tensor = rop.inputs[0];
  const std::vector<int64_t>& strides = graph.tensor(boxes.tensor).place.strides;
  boxes.strides = {1, strides[3], strides[2], strides[0]};
  for (size_t d = 1; d < 4; ++d) {
    if (boxes.extents[d] == 1) boxes.strides[d] = ceil_div(s.channels, 8) * 8;  // never used; the copy engine wants a valid stride
  }
  return boxes;
}

Phase phase_of(const Request& request, const Separable& s, const Config& c) {
  const Tile& t = kTiles[c.tile];
  const Blocks b = blocks_of(s, c);
  Phase phase = body_phase(s.narrow() ? "kernels/depthwise/separable_narrow.cuh" : "kernels/depthwise/separable_conv.cuh",
                           s.narrow() ? "rk::separable_narrow" : "rk::separable_conv", "rk::SeparableConvArgs");
  const DType stored = request.graph.tensor(request.rop.outputs[0]).dtype;
  if (s.narrow()) phase.template_args = {{"In", value_type(s.in)}, {"Out", value_type(stored)}};
  const std::pair<const char*, int64_t> numbers[] = {
      {"TAPS", s.taps}, {"STRIDE", s.stride}, {"MT", t.mt}, {"NT", t.nt}, {"WARPS_N", t.warps_n}};
  for (const auto& [name, value] : numbers) phase.template_args.emplace_back(name, std::to_string(value));
  if (!s.narrow() && (is_narrow(stored) || s.rounds)) phase.template_args.emplace_back("Out", value_type(stored));
  if (s.rounds) phase.template_args.emplace_back("ROUNDS", "true");
  phase.args = args_of(request.graph, request.rop, s, c);
  phase.rtasks = b.tiles * b.n;
  phase.work_bytes = t.work_bytes(s.residual);
  phase.ring = {c.chunk_steps * t.step_bytes(s), b.chunks, b.tiles, b.n};
  phase.boxes = placed_boxes(request.graph, request.rop, s, c);

  const double outputs = static_cast<double>(kTileW * t.height() * t.channels());
  phase.cost.flops =
      2 * outputs * static_cast<double>(s.channels) + 2 * static_cast<double>(kTileW * t.height() * s.channels * s.taps * s.taps);
  phase.cost.tensor_core = true;
  phase.cost.calibrated_cycles = cycles_of(request.vdevice, s, c);
  phase.cost.activation_bytes =
      static_cast<double>(s.boxes() * phase.boxes->copied_bytes()) + static_cast<double>(bytes_of(stored)) * outputs * (s.residual ? 2 : 1);
  phase.cost.weight_bytes = static_cast<double>(b.steps * t.step_bytes(s));
  return phase;
}

RKernel rkernel_of(const Request& request, const Separable& s, const Config& c) {
  const Tile& t = kTiles[c.tile];
  const std::string name =
      fmt::format("separable_conv<{}{}/{}, {}x({}x{})>", s.relu ? "relu, " : "", s.taps, s.stride, t.channels(), t.height(), kTileW);
  return one_phase(name, {{"tile", c.tile}, {"chunk_steps", c.chunk_steps}, {"boxes_per_chunk", c.boxes_per_chunk}},
                   phase_of(request, s, c));
}

bool has_boxes(const ShapedVDevice& vdevice, Precision precision) {
  return precision != Precision::fp32 && vdevice.tf32 && vdevice.input_stages > 0;
}

std::vector<RKernel> list_candidates(const Request& request) {
  if (!has_boxes(request.vdevice, request.precision)) return {};
  const std::optional<Separable> s = separable_of(request.graph, request.rop);
  const std::optional<Product> p = product_with_prologue(request.graph, request.rop, Activations::narrow);
  if (s && s->narrow() && !has_narrow_activations(request.precision)) return {};
  if (!s || !p || *std::min_element(p->out_strides.begin(), p->out_strides.end()) < 0) return {};
  const Tensor& in = request.graph.tensor(request.rop.inputs[0]);
  if (request.graph.buffers[in.place.buffer.index()].kind != BufferKind::arena || !lies_for_boxes(in)) return {};
  std::vector<RKernel> rkernels;
  for (int64_t tile = 0; tile < static_cast<int64_t>(std::size(kTiles)); ++tile) {
    const std::optional<Config> c = config_for(request.vdevice, *s, tile);
    if (c) rkernels.push_back(rkernel_of(request, *s, *c));
  }
  return rkernels;
}

// --- accesses ----------------------------------------------------------------------------------------------------------

void accesses(const Graph& graph, const ROperator& rop, const RKernel& rkernel, int, int64_t index, Accesses& out) {
  const Separable s = *separable_of(graph, rop);
  const Config c = config_of(rkernel);
  const Tile& t = kTiles[c.tile];
  const Blocks b = blocks_of(s, c);
  const InputBoxes boxes = boxes_of(s, c);
  const int64_t tile = index % b.tiles, n = index / b.tiles * t.channels();
  const int64_t image = tile / b.tiles_w / b.tiles_h, tile_h = tile / b.tiles_w % b.tiles_h, tile_w = tile % b.tiles_w;
  const std::vector<int64_t> low = {image, n, tile_h * t.height(), tile_w * kTileW};
  const std::vector<int64_t> high = {image + 1, std::min(n + t.channels(), s.out_channels), std::min(low[2] + t.height(), s.out_height),
                                     std::min(low[3] + kTileW, s.out_width)};
  append_box(graph, rop.outputs[0], low, high, out.writes);
  const TensorId residual = rop.epilogue.residual;
  std::vector<int64_t> read = high;
  if (loads_residual_vectors(graph, *product_with_prologue(graph, rop, Activations::narrow))) read[1] = whole_vectors(read[1]);
  if (residual.valid()) append_box(graph, residual, low, read, out.reads);

  const int64_t h = boxes.begin_h + tile_h * boxes.step_h, w = boxes.begin_w + tile_w * boxes.step_w;
  append_box(graph, rop.inputs[0], {image, 0, std::clamp<int64_t>(h, 0, s.height), std::clamp<int64_t>(w, 0, s.width)},
             {image + 1, s.channels, std::clamp<int64_t>(h + boxes.box_h, 0, s.height), std::clamp<int64_t>(w + boxes.box_w, 0, s.width)},
             out.reads);
}

// --- before tensors have places ----------------------------------------------------------------------------------------

// A promise that there will be a rKernel: passes/assign_layout puts the input where boxes can be cut from (lies_for_boxes). None where
// the rOperators that the fused one replaces would be as fast.
std::optional<Estimate> estimate_unplaced(const Request& request) {
  const ShapedVDevice& vdevice = request.vdevice;
  if (!has_boxes(vdevice, request.precision)) return std::nullopt;
  const std::optional<Separable> s = separable_of(request.graph, request.rop);
  if (!s) return std::nullopt;
  double least_cycles = std::numeric_limits<double>::infinity();
  for (int64_t tile = 0; tile < static_cast<int64_t>(std::size(kTiles)); ++tile) {
    const std::optional<Config> c = config_for(vdevice, *s, tile);
    if (!c) continue;
    const Blocks b = blocks_of(*s, *c);
    const double rounds = static_cast<double>(ceil_div(b.tiles * b.n, vdevice.veus()));
    least_cycles = std::min(least_cycles, rounds * cycles_of(vdevice, *s, *c));
  }
  if (!(least_cycles <= vdevice.cost("separable_conv.two_roperators_us") * vdevice.clock_ghz * 1e3)) return std::nullopt;
  return Estimate{least_cycles / (vdevice.clock_ghz * 1e3)};
}

}  // namespace

Family separable_conv() {
  return {"separable_conv", list_candidates, pack, accesses, estimate_unplaced, Narrowed::computes, /*takes_sums=*/true};
}

}  // namespace tamp::kernels
