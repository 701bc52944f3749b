// Host side of streamed_conv.cuh: which products it takes, the chunks of the ring, and what a rTask touches. rTask t is block * parts +
// part: a block of output channels of the pixels [part, part + 1) * pixels_per_rtask.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "compiler/ir/products.h"
#include "kernels/args.h"
#include "kernels/family.h"
#include "kernels/narrow.h"
#include "kernels/product/narrow_product.h"
#include "kernels/product/split_k_normalize.h"
#include "kernels/product/staged_conv_moments.h"
#include "kernels/product/staged_conv_pack.h"
#include "kernels/product/streamed_numbers.cuh"
#include "kernels/tile/product_phases.h"
#include "kernels/tile/requantised.h"

namespace tamp::kernels {
namespace {

// Fewer pixels for each vEU are no stream: its loads would not overlap.
constexpr int64_t kLeastPixels = 64;
// Registers of a lane for pixels (two turns) and sums, roughly; beside them stand addresses and what results need.
constexpr int64_t kMostWords = 100;

struct Config {
  int64_t precision = 0;  // Precision
  int64_t whole = 0;      // rk::Whole
  int64_t steps = 1;      // of 32 bytes of a pixel
  int64_t wide = 0;       // 1: accesses of 16 bytes
  int64_t tiles = 4;      // of 8 channels, in a group
  int64_t groups = 1;     // of a block
  int64_t rows = 1;       // blocks of 16 pixels that a warp has at a time
  int64_t pixels_per_rtask = 0;

  int64_t group_channels() const { return 8 * tiles; }
  int64_t block_channels() const { return groups * group_channels(); }
  int64_t chunk_bytes() const { return rk::streamed_chunk_bytes(static_cast<int>(steps), static_cast<int>(block_channels())); }
};
constexpr ConfigField<Config> kConfig[] = {{"precision", &Config::precision}, {"whole", &Config::whole},
                                           {"steps", &Config::steps},         {"wide", &Config::wide},
                                           {"tiles", &Config::tiles},         {"groups", &Config::groups},
                                           {"rows", &Config::rows},           {"pixels_per_rtask", &Config::pixels_per_rtask}};

int64_t parts_of(const Product& p, const Config& c) { return ceil_div(p.rows(), c.pixels_per_rtask); }
int64_t blocks_of(const Product& p, const Config& c) { return ceil_div(p.channels, c.block_channels()); }

bool is_clamp(Activation a) { return a == Activation::none || a == Activation::relu || a == Activation::clip; }
bool is_smooth(Activation a) {
  return a == Activation::gelu || a == Activation::gelu_tanh || a == Activation::silu || a == Activation::hard_swish;
}
bool rounds(const Config& c) { return c.whole >= rk::kWholeResults; }
int64_t value_bytes(const Graph& graph, TensorId id) { return bytes_of(graph.tensor(id).dtype); }

// --- packed data -------------------------------------------------------------------------------------------------------

// Four bytes of weights for what the lanes' words hold: input channels from `channel` on. `step`: what one unit of a weight is worth.
uint32_t word_of(const Product& p, const Config& c, const WeightRow& row, int64_t channel, float step) {
  const auto weight = [&](int64_t k) { return k < p.in_channels ? row[k] / step : 0.0F; };
  if (!p.byte_in) return narrow_pair(static_cast<Precision>(c.precision), weight(channel), weight(channel + 1));
  uint32_t word = 0;
  for (int64_t i = 0; i < 4; ++i) word |= (static_cast<uint32_t>(std::lrint(weight(channel + i))) & 0xffU) << 8 * i;
  return word;
}

// The weights of a block: [group][step][two tiles][lane]{first tile, second tile}{word 0, word 1}.
void pack_weights(const Graph& graph, const Product& p, const Config& c, int64_t block, const std::vector<float>& steps, std::byte* to) {
  const float* const data = f32_data(graph.tensor(p.weights));
  const int64_t of_word = 4 / value_bytes(graph, p.in);
  const int all = static_cast<int>(c.steps), tiles = static_cast<int>(c.tiles);
  for (int64_t i = 0; i < c.block_channels() * c.steps * 8; ++i, to += 4) {
    const int word = static_cast<int>(i % 2), lane = static_cast<int>(i / 4 % 32);
    const int64_t two = i / 128 % (c.tiles / 2), step = i / 128 / (c.tiles / 2) % c.steps, group = i / 128 / (c.tiles / 2) / c.steps;
    const int tile = static_cast<int>(two * 2 + i / 2 % 2);
    const int64_t n = (block * c.groups + group) * c.group_channels() + rk::streamed_channel(tiles, tile, lane / 4);
    if (n >= p.channels) continue;
    const int byte = rk::streamed_byte(all, c.wide != 0, static_cast<int>(step), lane % 4, word);
    const uint32_t value = word_of(p, c, WeightRow(data, p, 0, n, 0), byte / 4 * of_word, steps[static_cast<size_t>(n)]);
    std::memcpy(to, &value, 4);
  }
}

// What the channels of a block have of `values`, zeros behind them.
void pack_row(const Product& p, const Config& c, int64_t block, const std::vector<float>& values, std::byte* to) {
  const int64_t first = block * c.block_channels(), count = std::min(c.block_channels(), p.channels - first);
  if (!values.empty()) std::memcpy(to, values.data() + first, static_cast<size_t>(count) * 4);
}

void pack_table(const Graph& graph, const Product& p, const Requantised& again, std::byte* to) {
  const Tensor& table = graph.tensor(again.table);
  const int64_t low = is_whole_byte(graph.tensor(p.out).dtype) ? low_of(graph, p.out) : again.results.low;
  for (int64_t i = 0; i < element_count(table.shape); ++i)
    to[i] = static_cast<std::byte>(static_cast<uint8_t>(static_cast<int64_t>(f32_data(table)[i]) - low));
}

std::optional<Product> streamed_product(const Graph& graph, const ROperator& rop) {
  if (normalized_product_steps(rop) || staged::moment_steps(rop) || staged::sums_of(rop) != nullptr) return std::nullopt;
  return staged::staged_product(graph, rop);
}
Product product_for(const Graph& graph, const ROperator& rop) { return known(streamed_product(graph, rop), "streamed_conv", rop); }

Bytes pack(const Graph& graph, const ROperator& rop, const RKernel& rkernel, int) {
  const Config c = from_config(rkernel, kConfig);
  const Product p = product_for(graph, rop);
  const float* const data = f32_data(graph.tensor(p.weights));
  std::vector<float> scales(static_cast<size_t>(p.channels), 1.0F), bias, row;
  if (c.whole != 0) scales = p.byte_in ? known(byte_scales_of(data, p), "steps of the weights", rop) : scales_of(data, p);
  if (has_bias(p)) bias = bias_of(graph, p);
  const std::optional<Requantised> again = requantised_of(graph, rop);
  if (again && again->row.valid()) {
    const float* const first = f32_data(graph.tensor(again->row));
    row.assign(first, first + p.channels);
  }
  const int64_t blocks = blocks_of(p, c), each = rk::streamed_row_bytes(static_cast<int>(c.block_channels()));
  Bytes bytes(static_cast<size_t>(blocks * c.chunk_bytes()));
  for (int64_t block = 0; block < blocks; ++block) {
    std::byte* to = bytes.data() + block * c.chunk_bytes();
    pack_weights(graph, p, c, block, scales, to);
    to += rk::streamed_weight_bytes(static_cast<int>(c.steps), static_cast<int>(c.block_channels()));
    pack_row(p, c, block, scales, to);
    pack_row(p, c, block, bias, to + each);
    pack_row(p, c, block, row, to + 2 * each);
    if (again && again->table.valid()) pack_table(graph, p, *again, to + 3 * each);
  }
  return bytes;
}

// --- candidates --------------------------------------------------------------------------------------------------------

// From a pixel to the next where all pixels of all images lie evenly, in the input, the output and the residual.
struct Flat {
  int64_t in = 0, out = 0, residual = 0;
};
std::optional<Flat> flat_of(const Product& p) {
  if (!staged::is_pointwise(p) || p.groups != 1 || p.stride[0] != 1 || p.stride[1] != 1 || p.pairs || p.depthwise) return std::nullopt;
  const staged::Grid g = staged::grid_of(p);
  if (g.w != p.rows() || g.stride_w != 1 || g.stride_h != 1) return std::nullopt;
  return Flat{g.strides[1], g.out_strides[3], g.residual_strides[3]};
}

// Whether `width` elements of each pixel are one aligned access, wherever they begin.
bool is_aligned(const Graph& graph, TensorId id, int64_t stride, int64_t width) {
  return stride % width == 0 && graph.tensor(id).place.offset % width == 0;
}

std::vector<Arg> args_of(const Graph& graph, const ROperator& rop, const Product& p, const Config& c, const Flat& flat) {
  const ROperator plain = staged::plain_product(graph, rop);
  Epilogue clip = plain.epilogue;
  if (rounds(c)) clip.activation = Activation::clip, clip.sum.reset();  // the body knows
  const std::optional<Requantised> again = requantised_of(graph, rop);
  const int64_t bytes = value_bytes(graph, p.in), wide = 16 / value_bytes(graph, p.out);
  const bool in_bytes = is_whole_byte(graph.tensor(p.out).dtype), adds = p.residual.valid();
  const int64_t out_low = in_bytes ? low_of(graph, p.out) : again ? again->results.low : 0;
  const auto number = [](double value) { return float_arg(static_cast<float>(value)); };
  return {{"in", arg(TensorArg{p.in})},
          {"out", arg(TensorArg{p.out})},
          {"epilogue",
           epilogue_arg(plain.epilogue, null_arg(), tensor_arg(p.residual), to_vector(p.residual_strides), p.residual_after_activation)},
          {"clip", clip_arg(clip, p.residual_after_activation)},
          {"pixels", arg(p.rows())},
          {"pixels_per_rtask", arg(c.pixels_per_rtask)},
          {"in_stride", arg(flat.in * bytes)},
          {"in_bytes", arg(p.in_channels * bytes)},
          {"out_stride", arg(flat.out)},
          {"residual_stride", arg(adds ? flat.residual : int64_t{0})},
          {"channels", arg(p.channels)},
          {"groups", arg(c.groups)},
          {"wide_out", arg(int64_t{is_aligned(graph, p.out, flat.out, wide)})},
          {"parts", divisor_arg(parts_of(p, c))},
          {"out_low", number(static_cast<double>(out_low))},
          {"residual_low", number(adds ? static_cast<double>(low_of(graph, p.residual)) : 0)},
          {"again_scale", number(again ? again->scale : 1)},
          {"again_low", number(again ? again->low : 0)},
          {"again_high", number(again ? again->high : 0)},
          {"table_low", number(again ? static_cast<double>(again->table_low) : 0)}};
}

void add_cost(const Request& request, const Product& p, const Config& c, Phase& phase) {
  const auto cost = [&](const char* name) { return request.vdevice.cost(fmt::format("streamed_conv.{}", name)); };
  const Graph& graph = request.graph;
  const Activation activation = staged::plain_product(graph, request.rop).epilogue.activation;
  const bool clamps = rounds(c) || is_clamp(activation);
  const double pixels = static_cast<double>(c.pixels_per_rtask), values = static_cast<double>(c.block_channels());
  const double kept = static_cast<double>(std::min(c.block_channels(), p.channels));
  double bytes = static_cast<double>(p.in_channels * value_bytes(graph, p.in)) + kept * static_cast<double>(value_bytes(graph, p.out));
  if (p.residual.valid()) bytes += kept * static_cast<double>(value_bytes(graph, p.residual));
  phase.cost.flops = 2 * pixels * values * static_cast<double>(p.in_channels);
  phase.cost.tensor_core = true;
  phase.cost.activation_bytes = pixels * bytes;
  phase.cost.weight_bytes = static_cast<double>(c.chunk_bytes());
  const double value_cycles = cost(rk::has_table(static_cast<int>(c.whole)) ? "table_cycles" : clamps ? "value_cycles" : "smooth_cycles");
  phase.cost.calibrated_cycles = cost("fixed_cycles") + pixels * (bytes * cost("byte_cycles") + values * value_cycles);
}

RKernel rkernel_of(const Request& request, const Product& p, const Config& c, const Flat& flat) {
  const bool bytes = has_bytes(request.graph, p) || rounds(c);
  Phase phase = early_phase(bytes ? "kernels/product/streamed_bytes.cuh" : "kernels/product/streamed_conv.cuh", "rk::streamed_conv",
                            "rk::StreamedConvArgs");
  const ROperator plain = staged::plain_product(request.graph, request.rop);
  const char* const adds = !p.residual.valid()           ? "rk::kStreamedNoResidual"
                           : p.residual_after_activation ? "rk::kStreamedAfter"
                                                         : "rk::kStreamedBefore";
  phase.template_args = {{"Math", narrow_math(request.graph, p, c.whole, request.graph.tensor(p.out).dtype)},
                         {"STEPS", std::to_string(c.steps)},
                         {"WIDE", c.wide != 0 ? "true" : "false"},
                         {"TILES", std::to_string(c.tiles)},
                         {"ROWS", std::to_string(c.rows)},
                         {"ADDS", adds},
                         {"SMOOTH", !rounds(c) && is_smooth(plain.epilogue.activation) ? "true" : "false"}};
  phase.args = args_of(request.graph, request.rop, p, c, flat);
  phase.rtasks = blocks_of(p, c) * parts_of(p, c);
  phase.ring = {c.chunk_bytes(), 1, parts_of(p, c), blocks_of(p, c)};
  add_cost(request, p, c, phase);
  const std::string name = fmt::format("streamed_conv_{}<{} channels, {} pixels{}>", name_of(static_cast<Precision>(c.precision)),
                                       c.block_channels(), c.pixels_per_rtask,
                                       c.whole >= rk::kWholeRow ? ", whole again"
                                       : c.whole != 0           ? ", whole"
                                                                : "");
  return one_phase(name, to_config(c, kConfig), phase);
}

// How many tiles of 8 channels are a group: those whose stores are longest, unless they leave much empty.
int64_t tiles_of(const Product& p, int64_t out_bytes) {
  const auto padded = [&](int64_t tiles) { return ceil_div(p.channels, 8 * tiles) * 8 * tiles; };
  const int64_t most = out_bytes == 1 ? 8 : 4;
  for (int64_t tiles = most; tiles > 2; tiles /= 2) {
    if (4 * padded(tiles) <= 5 * padded(tiles / 2)) return tiles;
  }
  return 2;
}

// Steps are template arguments: of the higher numbers only the even ones, so that there are fewer bodies.
int64_t steps_of(int64_t bytes) {
  const int64_t steps = ceil_div(bytes, rk::kStreamedStepBytes);
  return steps > 4 ? ceil_div(steps, 2) * 2 : steps;
}

// The largest blocks of channels that fit a stage, all about equal; 0: not even a group does.
int64_t groups_of(const ShapedVDevice& vdevice, const Product& p, Config c) {
  const int64_t all = ceil_div(p.channels, c.group_channels());
  for (int64_t blocks = 1; blocks <= all; ++blocks) {
    c.groups = ceil_div(all, blocks);
    if (c.chunk_bytes() <= vdevice.weight_stage_bytes) return c.groups;
  }
  return 0;
}

bool can_be_loaded(const Graph& graph, const Product& p, const Flat& flat) {
  const int64_t bytes = value_bytes(graph, p.in);
  if (p.in_strides[1] != 1 || p.in_channels * bytes % 8 != 0 || !is_aligned(graph, p.in, flat.in, 8 / bytes)) return false;
  for (const TensorId id : {p.out, p.residual}) {
    if (!id.valid()) continue;
    const auto& strides = id == p.out ? p.out_strides : p.residual_strides;
    if (strides[1] != 1 || !is_aligned(graph, id, id == p.out ? flat.out : flat.residual, 8)) return false;
  }
  return p.channels % 8 == 0;
}

std::vector<RKernel> list_candidates(const Request& request) {
  const ShapedVDevice& vdevice = request.vdevice;
  const Graph& graph = request.graph;
  if (!has_narrow_activations(request.precision) || !vdevice.tf32) return {};
  const std::optional<Product> p = streamed_product(graph, request.rop);
  if (!p || !p->narrow_in || p->rows() < kLeastPixels * vdevice.veus() || adds_narrow(graph, *p)) return {};
  const std::optional<Flat> flat = flat_of(*p);
  const int64_t bytes = p->in_channels * value_bytes(graph, p->in);
  if (!flat || bytes > rk::kStreamedMostSteps * rk::kStreamedStepBytes || !can_be_loaded(graph, *p, *flat)) return {};
  if (graph.tensor(p->in).role == Role::constant || p->rows() * std::max(flat->in, flat->out) > INT32_MAX) return {};
  const Precision precision = precision_of(request, *p);
  if (precision != request.precision || (has_bytes(graph, *p) && !takes_bytes(request, *p))) return {};
  const int64_t whole = whole_of(request, *p, precision);
  if (request.rop.epilogue.sum && whole != rk::kWholeSums) return {};
  // Bytes may begin at another number than 0, which only results that are scaled sums add.
  if (p->residual.valid() && is_whole_byte(graph.tensor(p->residual).dtype) && whole != rk::kWholeSums) return {};
  if (requantised_of(graph, request.rop) && whole < rk::kWholeRow) return {};
  const Activation activation = staged::plain_product(graph, request.rop).epilogue.activation;
  if (whole < rk::kWholeResults && !is_clamp(activation) && !is_smooth(activation)) return {};

  Config c;
  c.precision = static_cast<int64_t>(precision);
  c.whole = whole;
  c.steps = steps_of(bytes);
  c.wide = bytes % 16 == 0 && is_aligned(graph, p->in, flat->in, 16 / value_bytes(graph, p->in)) ? 1 : 0;
  c.tiles = tiles_of(*p, value_bytes(graph, p->out));
  c.groups = groups_of(vdevice, *p, c);
  if (c.groups == 0) return {};
  while (c.rows < 4 && 2 * c.rows * (8 * c.steps + 4 * c.tiles) <= kMostWords) c.rows *= 2;
  const int64_t blocks = blocks_of(*p, c), turn = rk::kStreamedRows * c.rows;
  const int64_t parts = std::max<int64_t>(vdevice.veus() / blocks, 1);
  c.pixels_per_rtask = ceil_div(ceil_div(p->rows(), parts), turn) * turn;
  return {rkernel_of(request, *p, c, *flat)};
}

void accesses(const Graph& graph, const ROperator& rop, const RKernel& rkernel, int, int64_t index, Accesses& out) {
  const Config c = from_config(rkernel, kConfig);
  const Product p = product_for(graph, rop);
  const int64_t part = index % parts_of(p, c), block = index / parts_of(p, c);
  const int64_t first = part * c.pixels_per_rtask, last = std::min(first + c.pixels_per_rtask, p.rows());
  append_input(graph, p, first, last, 0, p.in_channels, out.reads);
  add_stores(graph, p, first, last, block * c.block_channels(), std::min((block + 1) * c.block_channels(), p.channels), out);
}

}  // namespace

Family streamed_conv() {
  return {"streamed_conv", list_candidates, pack, accesses, nullptr, Narrowed::computes, /*takes_sums=*/true, /*takes_bytes=*/true};
}

}  // namespace tamp::kernels
