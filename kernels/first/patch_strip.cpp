// Host side of patch_strip.cuh: when there is such a rKernel, the tile of output pixels, the packed weights, and what a rTask touches.
// Tiles are numbered (image * tiles_h + tile_y) * tiles_w + tile_x; rTask t is block t / strips of channels and, with s = t % strips,
// tiles s * turns to (s + 1) * turns - 1. Example: 32 images of 49 tiles are 1568 tiles; on 132 vEUs a rTask takes 12 of them, and there
// are 131 rTasks, the last with 8 tiles.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include "compiler/ir/fused.h"
#include "compiler/support/error.h"
#include "kernels/args.h"
#include "kernels/family.h"
#include "kernels/first/numbers.cuh"
#include "kernels/first/patch_conv.h"
#include "kernels/first/patch_conv_plan.h"
#include "kernels/narrow.h"
#include "kernels/tile/product_phases.h"

namespace tamp::kernels {
namespace {

constexpr int64_t kMostChannels = 4;   // of the input, as in patch_conv
constexpr int64_t kMostGranules = 21;  // whose weights are in registers: 84 of them; 21 is a filter of 7 x 7 on 3 channels
constexpr int64_t kCellFloats = 4;

struct StripPlan {
  int64_t precision = 0, cell = 1, warps_n = 1, tile_h = 1, tile_w = 1, row_cells = 1, turns = 1;
  int64_t end = rk::kStripClamped;
  bool rounds() const { return end == rk::kStripRounded; }  // the sums have a scale for each channel
  bool narrow() const { return has_narrow_activations(static_cast<Precision>(precision)); }
  int64_t value_bytes() const { return narrow() ? 2 : 4; }
  int64_t warp_channels() const { return 8 * rk::strip_tiles(narrow()); }
  int64_t block() const { return warps_n * warp_channels(); }
};

constexpr ConfigField<StripPlan> kConfig[] = {
    {"precision", &StripPlan::precision}, {"cell", &StripPlan::cell},     {"warps_n", &StripPlan::warps_n},
    {"tile_h", &StripPlan::tile_h},       {"tile_w", &StripPlan::tile_w}, {"row_cells", &StripPlan::row_cells},
    {"turns", &StripPlan::turns},         {"end", &StripPlan::end, true},
};
StripPlan config_of(const RKernel& rkernel) { return from_config(rkernel, kConfig); }

// --- geometry ----------------------------------------------------------------------------------------------------------

int64_t lead_of(const Product& p) { return p.pad[1] % 2; }  // columns of the padded row ahead of the filter
int64_t columns_of(const Product& p) { return lead_of(p) + p.kernel[1] <= 4 ? 4 : 8; }
int64_t filter_rows(const Product& p) { return p.kernel[0] * p.in_channels; }
int64_t granules_of(const Product& p) { return rk::strip_granules(static_cast<int>(filter_rows(p)), static_cast<int>(columns_of(p))); }
int64_t patch_h(const Product& p, const StripPlan& c) { return (c.tile_h - 1) * p.stride[0] + p.kernel[0]; }
int64_t patch_rows(const Product& p, const StripPlan& c) { return patch_h(p, c) * p.in_channels; }
// Beside the padded rows of all pixels of a row there are up to 2 columns ahead.
int64_t row_cells(const Product& p, int64_t tile_w) { return ceil_div((tile_w - 1) * p.stride[1] + columns_of(p) + 2, kCellFloats); }
// A lane that has nothing to load in the last granule loads from the row behind the patch.
int64_t patch_bytes(const Product& p, const StripPlan& c) { return (patch_rows(p, c) + 1) * c.row_cells * kCellFloats * 4; }
// 16 bits: one patch of floats, two rounded; tf32: two patches. Then the bias, and the scales of sums that are rounded.
int64_t work_bytes(const Product& p, const StripPlan& c) { return 2 * patch_bytes(p, c) + 4 * c.block() * (c.rounds() ? 2 : 1); }

int64_t tiles_along(const Product& p, const StripPlan& c, size_t d) { return ceil_div(p.pixels[d + 1], d == 0 ? c.tile_h : c.tile_w); }
int64_t tiles_of(const Product& p, const StripPlan& c) { return p.pixels[0] * tiles_along(p, c, 0) * tiles_along(p, c, 1); }
int64_t blocks_of(const Product& p, const StripPlan& c) { return ceil_div(p.channels, c.block()); }
int64_t strips_of(const Product& p, const StripPlan& c) { return ceil_div(tiles_of(p, c), c.turns); }
int64_t turns_for(const ShapedVDevice& vdevice, const Product& p, const StripPlan& c) {
  return ceil_div(tiles_of(p, c), std::max<int64_t>(1, vdevice.veus() / blocks_of(p, c)));
}

// First row and column of the input in tile `tile` of the image's; the column is where a 16-byte copy begins.
struct Origin {
  int64_t image, oh, ow, y, x;
};
Origin origin_of(const Product& p, const StripPlan& c, int64_t tile) {
  const int64_t tiles_w = tiles_along(p, c, 1), tiles_h = tiles_along(p, c, 0);
  const int64_t oh = tile / tiles_w % tiles_h * c.tile_h, ow = tile % tiles_w * c.tile_w;
  return {tile / tiles_w / tiles_h, oh, ow, oh * p.stride[0] - p.pad[0], (ow * p.stride[1] - p.pad[1] - lead_of(p)) & ~(kCellFloats - 1)};
}

// --- packed data: weights, then bias ------------------------------------------------------------------------------------

int64_t weight_bytes(const Product& p, const StripPlan& c) { return blocks_of(p, c) * c.warps_n * granules_of(p) * 32 * 16; }

// The weight of slot `k` of granule `granule`; zero where the slot only pads.
float slot_weight(const float* data, const Product& p, int64_t channel, int64_t granule, int64_t k) {
  const int64_t at = granule * 8 + k, row = at / columns_of(p), w = at % columns_of(p) - lead_of(p);
  if (channel >= p.channels || row >= filter_rows(p) || w < 0 || w >= p.kernel[1]) return 0;
  const int64_t h = row / p.in_channels, in_channel = row % p.in_channels;
  return weight_at(data, p, 0, channel, (h * p.kernel[1] + w) * p.in_channels + in_channel);
}

// The 4 words of a lane and a granule (rk::StripProduct::weight). Column g of tile i is channel g / 2 * (2 tiles) + 2 i + g % 2. `scales`:
// what the weights of a channel are divided by.
std::array<uint32_t, 4> lane_words(const float* data, const Product& p, const StripPlan& c, const std::vector<float>& scales,
                                   int64_t first_channel, int64_t granule, int64_t lane) {
  const int64_t g = lane / 4, k = lane % 4 * 2;
  std::array<uint32_t, 4> words{};
  for (int64_t i = 0; i < rk::strip_tiles(c.narrow()); ++i) {
    const int64_t channel = first_channel + g / 2 * 2 * rk::strip_tiles(c.narrow()) + 2 * i + g % 2;
    const float per_scale = c.rounds() ? 1 / scales[static_cast<size_t>(channel)] : 1;
    const float low = slot_weight(data, p, channel, granule, k) * per_scale,
                high = slot_weight(data, p, channel, granule, k + 1) * per_scale;
    if (c.narrow()) {
      words[static_cast<size_t>(i)] = narrow_pair(static_cast<Precision>(c.precision), low, high);
    } else {
      const std::array<float, 2> values = {round_to_tf32(low), round_to_tf32(high)};
      std::memcpy(&words[static_cast<size_t>(2 * i)], values.data(), 8);
    }
  }
  return words;
}

std::optional<Product> strip_product_of(const Graph& graph, const ROperator& rop) {
  const std::optional<FusedView> quantised = quantised_patches_of(rop);
  return quantised ? product_of_quantised(graph, rop, *quantised) : product_of(graph, rop, Activations::bytes);
}
Product product_for(const Graph& graph, const ROperator& rop) { return known(strip_product_of(graph, rop), "patch_strip", rop); }
// The convolution's epilogue.
const Epilogue& epilogue_of(const ROperator& rop) {
  const std::optional<FusedView> quantised = quantised_patches_of(rop);
  return quantised ? quantised->step(1).epilogue : rop.epilogue;
}

// Of each block of channels the biases, and then the scales.
std::vector<float> by_blocks(const std::vector<float>& bias, const std::vector<float>& scales, size_t block) {
  std::vector<float> all;
  for (size_t first = 0; first < bias.size(); first += block) {
    for (const std::vector<float>* some : {&bias, &scales}) {
      const auto begin = some->begin() + static_cast<std::ptrdiff_t>(first);
      all.insert(all.end(), begin, begin + static_cast<std::ptrdiff_t>(block));
    }
  }
  return all;
}

Bytes pack(const Graph& graph, const ROperator& rop, const RKernel& rkernel, int) {
  const Product p = product_for(graph, rop);
  const StripPlan c = config_of(rkernel);
  const float* const data = f32_data(graph.tensor(p.weights));
  const auto padded = static_cast<size_t>(blocks_of(p, c) * c.block());
  std::vector<float> bias = bias_of(graph, p), scales = c.rounds() ? scales_of(data, p) : std::vector<float>();
  bias.resize(padded, 0.0F);
  if (c.rounds()) scales.resize(padded, 1.0F), bias = by_blocks(bias, scales, static_cast<size_t>(c.block()));
  Bytes bytes(static_cast<size_t>(weight_bytes(p, c)) + bias.size() * 4);
  std::byte* to = bytes.data();
  for (int64_t warp = 0; warp < blocks_of(p, c) * c.warps_n; ++warp) {
    for (int64_t granule = 0; granule < granules_of(p); ++granule) {
      for (int64_t lane = 0; lane < 32; ++lane, to += 16)
        std::memcpy(to, lane_words(data, p, c, scales, warp * c.warp_channels(), granule, lane).data(), 16);
    }
  }
  std::memcpy(to, bias.data(), bias.size() * 4);
  return bytes;
}

// --- the plan -----------------------------------------------------------------------------------------------------------

// Shared memory accesses that a warp's load of 8 pixels takes, on average: lanes that meet in a bank wait.
double accesses_per_load(const Product& p, const StripPlan& c) {
  int64_t accesses = 0, loads = 0;
  const int64_t lanes = c.narrow() ? 32 : 16;  // that are served at once: 4 or 8 bytes each
  for (int64_t first = 0; first < c.tile_h * c.tile_w; first += 8, ++loads) {
    for (int64_t begin = 0; begin < 32; begin += lanes) {
      std::array<std::vector<int64_t>, 32> banks;
      for (int64_t lane = begin; lane < begin + lanes; ++lane) {
        const int64_t pixel = std::min(first + lane / 4, c.tile_h * c.tile_w - 1), h = pixel / c.tile_w, w = pixel % c.tile_w;
        const int64_t t = lane % 4, row = columns_of(p) == 8 ? 0 : t / 2, column = t % (columns_of(p) / 2) * 2;
        const int64_t value = (h * p.stride[0] * p.in_channels + row) * c.row_cells * kCellFloats + w * p.stride[1] + column;
        for (int64_t word = value * c.value_bytes() / 4; word < (value + 2) * c.value_bytes() / 4; ++word) {
          std::vector<int64_t>& bank = banks[static_cast<size_t>(word % 32)];
          if (std::find(bank.begin(), bank.end(), word) == bank.end()) bank.push_back(word);
        }
      }
      size_t most = 0;
      for (const std::vector<int64_t>& bank : banks) most = std::max(most, bank.size());
      accesses += static_cast<int64_t>(most);
    }
  }
  return static_cast<double>(accesses) / static_cast<double>(loads);
}

int64_t products_of_tile(const Product& p, const StripPlan& c) {  // mma of 16 pixels by 8 channels
  return rk::kStripPixels / 16 * (c.block() / 8) * (c.narrow() ? ceil_div(granules_of(p), 2) : granules_of(p));
}
// Microseconds that a tile's products and their loads take.
double product_us(const ShapedVDevice& vdevice, const Product& p, const StripPlan& c) {
  const double loads = elements(rk::kStripPixels / 8 * c.warps_n, granules_of(p));
  const double cycles = vdevice.cost("patch_strip.product_cycles") * static_cast<double>(products_of_tile(p, c)) +
                        vdevice.cost("patch_strip.load_cycles") * loads * accesses_per_load(p, c);
  return cycles / (vdevice.clock_ghz * 1e3);
}
double l2_bytes_per_us(const ShapedVDevice& vdevice) { return vdevice.l2_gb_per_s * 1e3 / static_cast<double>(vdevice.veus()); }

// False if no tile fits.
bool choose_tile(const ShapedVDevice& vdevice, const Product& p, StripPlan& c) {
  double best = 0;
  StripPlan trial = c;
  for (int64_t w = 1; w <= std::min<int64_t>(p.pixels[2], rk::kStripPixels); ++w) {
    trial.tile_w = w;
    trial.tile_h = std::min(p.pixels[1], rk::kStripPixels / w);
    trial.row_cells = row_cells(p, w);
    while (trial.tile_h > 1 && work_bytes(p, trial) > vdevice.work_bytes()) --trial.tile_h;
    if (work_bytes(p, trial) > vdevice.work_bytes()) continue;
    trial.turns = turns_for(vdevice, p, trial);
    const double turn_us = vdevice.cost("patch_strip.turn_us") + static_cast<double>(patch_bytes(p, trial)) / l2_bytes_per_us(vdevice);
    const auto turns = static_cast<double>(trial.turns);
    if (best != 0 && turns * turn_us >= best) continue;
    const double us = turns * (turn_us + product_us(vdevice, p, trial));
    if (best == 0 || us < best) best = us, c = trial;
  }
  return best != 0;
}

// --- candidates ---------------------------------------------------------------------------------------------------------

bool is_smooth(Activation a) {
  return a == Activation::gelu || a == Activation::gelu_tanh || a == Activation::silu || a == Activation::hard_swish;
}

void set_args(const Request& request, const Product& p, const StripPlan& c, Phase& phase) {
  const Epilogue& e = epilogue_of(request.rop);
  const bool clips = e.activation == Activation::clip || e.activation == Activation::rounded;
  const float infinity = std::numeric_limits<float>::infinity();
  add_args(phase, {{"in", arg(TensorArg{p.in})},
                   {"out", arg(TensorArg{p.out})},
                   {"weights", ArgValue{PackedArg{0}}},
                   {"bias", ArgValue{PackedArg{weight_bytes(p, c)}}}});
  add_map_args(p, c.tile_h, c.tile_w, phase);
  add_args(phase, {{"kernel_w", arg(p.kernel[1])},
                   {"rows", arg(patch_rows(p, c))},
                   {"patch_bytes", arg(patch_bytes(p, c))},
                   {"tiles", arg(tiles_of(p, c))},
                   {"turns", arg(c.turns)},
                   {"activation", activation_arg(e.activation)},
                   {"low", float_arg(clips                              ? e.a
                                     : e.activation == Activation::relu ? 0
                                                                        : -infinity)},
                   {"high", float_arg(clips ? e.b : infinity)},
                   {"strips", divisor_arg(strips_of(p, c))},
                   {"tiles_w", divisor_arg(tiles_along(p, c, 1))},
                   {"tiles_h", divisor_arg(tiles_along(p, c, 0))},
                   {"columns", divisor_arg(c.tile_w)}});
  const std::optional<FusedView> quantised = quantised_patches_of(request.rop);
  if (!quantised) return;
  const ElementwiseStep& round = quantised->as<Elementwise>(0)->steps[1];
  add_args(phase, {{"in_step", float_arg(*f32_data(request.graph.tensor(quantised->input(0, 1))))},
                   {"in_low", float_arg(round.a)},
                   {"in_high", float_arg(round.b)}});
}

Cost cost_of(const ShapedVDevice& vdevice, const Product& p, const StripPlan& c, DType values) {
  const auto turns = static_cast<double>(c.turns);
  const double products = static_cast<double>(products_of_tile(p, c)), multiply_us = turns * product_us(vdevice, p, c);
  Cost cost;
  cost.flops = 2 * 16 * 8 * (c.narrow() ? 16 : 8) * products * turns;
  cost.tensor_core = true;
  // Such that the arithmetic takes multiply_us.
  const double tflops = vdevice.tf32_tflops > 0 ? vdevice.tf32_tflops : vdevice.fp32_tflops;
  cost.efficiency = cost.flops / (tflops * 1e6 / static_cast<double>(vdevice.veus()) * multiply_us);
  const double results = elements(c.tile_h * c.tile_w, std::min(c.block(), p.channels)) * static_cast<double>(bytes_of(values));
  cost.activation_bytes = turns * (static_cast<double>(patch_bytes(p, c)) + results);
  cost.latency_us = vdevice.cost("patch_strip.start_us") + turns * vdevice.cost("patch_strip.turn_us");
  return cost;
}

const char* math_of(const StripPlan& c) {
  if (!c.narrow()) return "float";
  return static_cast<Precision>(c.precision) == Precision::fp16 ? "rk::Half" : "rk::Bfloat";
}

RKernel rkernel_of(const Request& request, const Product& p, const StripPlan& c) {
  const DType values = request.graph.tensor(p.out).dtype;
  Phase phase = body_phase("kernels/first/patch_strip.cuh", "rk::patch_strip", "rk::PatchStripArgs");
  phase.template_args = {{"Math", math_of(c)},
                         {"ROWS", std::to_string(filter_rows(p))},
                         {"CHANNELS", std::to_string(p.in_channels)},
                         {"COLUMNS", std::to_string(columns_of(p))},
                         {"ROW_CELLS", std::to_string(c.row_cells)},
                         {"WARPS_N", std::to_string(c.warps_n)},
                         {"CELL", std::to_string(c.cell)},
                         {"END", c.rounds()                  ? "rk::kStripRounded"
                                 : c.end == rk::kStripSmooth ? "rk::kStripSmooth"
                                                             : "rk::kStripClamped"}};
  const bool quantises = quantised_patches_of(request.rop).has_value();
  if (is_whole_byte(values)) phase.header = "kernels/first/patch_strip_bytes.cuh";
  if (values != DType::f32 || quantises) phase.template_args.emplace_back("Out", value_type(values));
  if (quantises) phase.template_args.emplace_back("QUANTISES", "true");
  set_args(request, p, c, phase);
  phase.rtasks = blocks_of(p, c) * strips_of(p, c);
  phase.work_bytes = work_bytes(p, c);
  phase.cost = cost_of(request.vdevice, p, c, values);
  const std::string name =
      fmt::format("patch_strip_{}<{}x{} pixels, {} channels, {} tiles{}{}>", name_of(static_cast<Precision>(c.precision)), c.tile_h,
                  c.tile_w, c.block(), c.turns, quantises ? ", quantises" : "", c.rounds() ? ", rounded" : "");
  return one_phase(name, to_config(c, kConfig), phase);
}

bool can_compute(const ShapedVDevice& vdevice, Precision precision) {
  switch (precision) {
    case Precision::fp32: return false;
    case Precision::tf32: return vdevice.tf32;
    case Precision::fp16: return vdevice.tf32 && vdevice.fp16;  // a GPU with the mma of 16 bits that the body uses has tf32, too
    case Precision::bf16: return vdevice.bf16;
  }
  return false;
}

// Whether the body computes this convolution in the precision.
bool suits(const Request& request, const Product& p) {
  const Activation a = epilogue_of(request.rop).activation;
  const bool rounds = a == Activation::rounded,
             fast = a == Activation::none || a == Activation::relu || a == Activation::clip || is_smooth(a) || rounds;
  const Tensor& out = request.graph.tensor(p.out);
  const bool one_access = has_vector_channels(out, p.out_strides, p.channels, has_narrow_activations(request.precision) ? 8 : 4);
  const Tensor& weights = request.graph.tensor(p.weights);
  return p.groups == 1 && p.in_channels <= kMostChannels && request.graph.tensor(p.in).dtype == DType::f32 && !p.residual.valid() && fast &&
         (!is_whole_byte(out.dtype) || (rounds && low_of(request.graph, p.out) == 0)) && p.stride[1] % 2 == 0 && p.dilation[0] == 1 &&
         p.dilation[1] == 1 && lead_of(p) + p.kernel[1] <= 8 && granules_of(p) <= kMostGranules && one_access &&
         (request.precision != Precision::fp16 || rounds || halves_hold(weights.data, p.alpha));
}

std::vector<RKernel> list_candidates(const Request& request) {
  const bool quantises = quantised_patches_of(request.rop).has_value();
  if (!std::holds_alternative<Conv>(request.rop.attrs) && !quantises) return {};
  const ShapedVDevice& vdevice = request.vdevice;
  if (!can_compute(vdevice, request.precision) || (quantises && !has_narrow_activations(request.precision))) return {};
  const std::optional<Product> p = strip_product_of(request.graph, request.rop);
  if (!p || !suits(request, *p)) return {};
  StripPlan plan;
  plan.precision = static_cast<int64_t>(request.precision);
  const Activation activation = epilogue_of(request.rop).activation;
  plan.end = activation == Activation::rounded ? rk::kStripRounded : is_smooth(activation) ? rk::kStripSmooth : rk::kStripClamped;
  plan.cell = has_vector_rows(request.graph, *p) ? kCellFloats : 1;
  while (plan.block() < p->channels && plan.block() < 64) plan.warps_n *= 2;
  // With one tile a rTask there is nothing to copy ahead.
  if (!choose_tile(vdevice, *p, plan) || plan.turns < 2) return {};
  return {rkernel_of(request, *p, plan)};
}

// --- accesses -----------------------------------------------------------------------------------------------------------

void accesses(const Graph& graph, const ROperator& rop, const RKernel& rkernel, int, int64_t index, Accesses& out) {
  const Product p = product_for(graph, rop);
  const StripPlan c = config_of(rkernel);
  const int64_t block = index / strips_of(p, c), first = index % strips_of(p, c) * c.turns;
  for (int64_t tile = first; tile < std::min(first + c.turns, tiles_of(p, c)); ++tile) {
    const Origin o = origin_of(p, c, tile);
    append_pixels(graph, p.out, p.out_strides, {o.image, o.oh, o.ow, block * c.block()},
                  {o.image + 1, std::min(o.oh + c.tile_h, p.pixels[1]), std::min(o.ow + c.tile_w, p.pixels[2]),
                   std::min((block + 1) * c.block(), p.channels)},
                  out.writes);
    append_pixels(graph, p.in, p.in_strides, {o.image, std::max<int64_t>(o.y, 0), std::max<int64_t>(o.x, 0), 0},
                  {o.image + 1, std::min(o.y + patch_h(p, c), p.in_extent[0]), std::min(o.x + c.row_cells * kCellFloats, p.in_extent[1]),
                   p.in_channels},
                  out.reads);
  }
}

}  // namespace

Family patch_strip() {
  return {"patch_strip", list_candidates, pack, accesses, nullptr, Narrowed::computes, /*takes_sums=*/false, /*takes_bytes=*/true};
}

}  // namespace tamp::kernels
