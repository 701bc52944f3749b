// Host side of staged_conv.cuh: which tiles, boxes and splits there are, the packed weights, and what a rTask touches. rTask t
// of phase 0 is ((group * n_blocks + n_block) * splits + split) * tiles + tile, so that the rTasks of one ring block follow
// each other, as InputBoxes wants it too.
//
// Groups of fewer than 32 input channels are done several at once, as one group whose weights are zero where an output does
// not belong to an input: a box has 32 channels anyway, and the tensor cores have arithmetic to spare. (So an infinity in
// one such group makes NaN in its neighbours.)
#include "kernels/conv/staged_conv.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "compiler/support/error.h"
#include "kernels/conv/product_phases.h"
#include "kernels/narrow.h"

namespace tamp::kernels {
namespace {

constexpr int64_t kMostTaps = 64;
constexpr int64_t kMinChannels = 4;      // of a group; fewer are the business of other families
constexpr int64_t kMostSteps = 160;      // rk::kMostSteps
constexpr float kTf32Share = 3.384e-4F;  // rk::kTf32Share

// Template arguments of the body, and what follows from them.
struct Shape {
  int64_t mt, nt, warps_m, warps_n;
  double efficiency;
  // Cycles of a rTask: at least, for each step, and for each byte of the input (traces of five networks on one H200).
  double fixed, step, step_16_bits, input_byte;

  int64_t channels() const { return 16 * mt * warps_m; }
  int64_t pixels() const { return 8 * nt * warps_n; }
  int64_t warps_k() const { return 8 / (warps_m * warps_n); }
  int64_t sum_bytes() const { return pixels() * (channels() + 4) * 4 * warps_k(); }
};
constexpr Shape kShapes[] = {{1, 4, 1, 1, 0.30, 2960, 140, 150, 0.0307}, {2, 2, 1, 2, 0.35, 3230, 153, 160, 0.0146},
                             {1, 4, 1, 2, 0.35, 3560, 137, 160, 0.0198}, {2, 4, 1, 2, 0.50, 3720, 199, 240, 0.0179},
                             {2, 4, 2, 2, 0.55, 4430, 380, 220, 0.0146}, {2, 4, 2, 4, 0.60, 5320, 707, 420, 0.0150},
                             {1, 2, 1, 1, 0.25, 2960, 110, 120, 0.0400}, {2, 2, 1, 1, 0.30, 2960, 140, 150, 0.0307}};

// Everything that pack and accesses need; a RKernel's config holds it.
struct Config {
  int64_t precision = 0;  // Precision
  int64_t shape = 0, tile_w = 1, tile_h = 1, splits = 1, boxes_per_split = 0, boxes_per_chunk = 0, chunk_steps = 1, sum_rows = 0;
};

std::vector<std::pair<std::string, int64_t>> to_pairs(const Config& c) {
  return {{"precision", c.precision},
          {"shape", c.shape},
          {"tile_w", c.tile_w},
          {"tile_h", c.tile_h},
          {"splits", c.splits},
          {"boxes_per_split", c.boxes_per_split},
          {"boxes_per_chunk", c.boxes_per_chunk},
          {"chunk_steps", c.chunk_steps},
          {"sum_rows", c.sum_rows}};
}

Config config_of(const RKernel& rkernel) {
  const auto value = [&](const char* key) { return rkernel.config_value(key); };
  return {value("precision"),       value("shape"),           value("tile_w"),      value("tile_h"),  value("splits"),
          value("boxes_per_split"), value("boxes_per_chunk"), value("chunk_steps"), value("sum_rows")};
}

const Shape& shape_of(const Config& c) { return kShapes[c.shape]; }
bool is_tf32(const Config& c) { return static_cast<Precision>(c.precision) == Precision::tf32; }

// As rk::StagedProduct has them.
int64_t units_of_box(const Config& c) { return is_tf32(c) ? 4 : 2; }
int64_t teams_of(const Config& c) { return std::max<int64_t>(1, shape_of(c).warps_k() / units_of_box(c)); }
int64_t tile_bytes_of(const Config& c) { return is_tf32(c) ? 256 : 512; }  // weights of 16 channels and one mma's k
int64_t step_bytes_of(const Config& c) { return teams_of(c) * units_of_box(c) * shape_of(c).mt * shape_of(c).warps_m * tile_bytes_of(c); }

// --- the product as boxes see it ---------------------------------------------------------------------------------------

// Output pixels as the tiles divide them, and the tensor that boxes are cut from.
struct Grid {
  int64_t w = 1, h = 1, images = 1;
  std::array<int64_t, 4> extents{}, strides{};                                  // channel, w, h, image
  int64_t stride_w = 1, stride_h = 1;                                           // pixels of the tensor from an output pixel to the next
  std::array<int64_t, 4> out_strides{}, residual_strides{}, partial_strides{};  // image, channel, h, w

  Product with_grid_strides(Product p) const {
    p.residual_strides = residual_strides;
    return p;
  }
};

bool is_pointwise(const Product& p) { return p.taps() == 1 && p.pad[0] == 0 && p.pad[1] == 0; }

// Whether `count` steps of `inner` are one step of `outer`, in all four.
bool lie_evenly(const Grid& g, size_t box_inner, size_t box_outer, size_t inner, size_t outer, int64_t count) {
  if (g.strides[box_outer] != count * g.strides[box_inner]) return false;
  for (const auto* strides : {&g.out_strides, &g.residual_strides, &g.partial_strides}) {
    if ((*strides)[outer] != count * (*strides)[inner]) return false;
  }
  return true;
}

// With one tap and no padding, pixels that are not read are left out, and what lies evenly is one dimension.
Grid grid_of(const Product& p) {
  Grid g;
  const int64_t channels = p.groups * p.in_channels;
  g.w = p.pixels[2];
  g.h = p.pixels[1];
  g.images = p.pixels[0];
  g.out_strides = p.out_strides;
  g.residual_strides = p.residual_strides;
  g.partial_strides = partial_strides(p);
  if (!is_pointwise(p)) {
    g.extents = {channels, p.in_extent[1], p.in_extent[0], p.pixels[0]};
    g.strides = {1, p.in_strides[3], p.in_strides[2], p.in_strides[0]};
    g.stride_w = p.stride[1];
    g.stride_h = p.stride[0];
    return g;
  }
  g.strides = {1, p.in_strides[3] * p.stride[1], p.in_strides[2] * p.stride[0], p.in_strides[0]};
  if (g.w > 1 && g.h > 1 && lie_evenly(g, 1, 2, 3, 2, g.w)) {
    g.w *= g.h;
    g.h = 1;
  }
  if (g.w > 1 && g.h == 1 && g.images > 1 && lie_evenly(g, 1, 3, 3, 0, g.w)) {
    g.w *= g.images;
    g.images = 1;
  }
  g.extents = {channels, g.w, g.h, g.images};
  return g;
}

// Several groups as one.
struct Groups {
  int64_t merged = 1;  // groups in one
  int64_t count, in_channels, channels;
};
Groups groups_of(const Product& p) {
  int64_t merged = 1;
  while (p.groups % (2 * merged) == 0 && 2 * merged * p.in_channels <= kBoxChannels) merged *= 2;
  return {merged, p.groups / merged, p.in_channels * merged, p.channels * merged};
}

struct Blocks {
  int64_t tiles_w, tiles_h, n, boxes, steps_of_box, steps, chunks;  // steps and chunks: of a rTask
  int64_t tiles(const Grid& g) const { return tiles_w * tiles_h * g.images; }
};

// In a step each team takes a box if there is one tap, else a tap of the same box.
int64_t boxes_of_step(const Product& p, const Config& c) { return p.taps() == 1 ? teams_of(c) : 1; }
int64_t taps_of_step(const Product& p, const Config& c) { return p.taps() > 1 ? teams_of(c) : 1; }

Blocks blocks_of(const Product& p, const Config& c) {
  const Shape& s = shape_of(c);
  const Grid g = grid_of(p);
  const Groups groups = groups_of(p);
  const int64_t pair = boxes_of_step(p, c);
  Blocks b{};
  b.tiles_w = ceil_div(g.w, c.tile_w);
  b.tiles_h = ceil_div(g.h, c.tile_h);
  b.n = ceil_div(groups.channels, s.channels());
  b.boxes = ceil_div(ceil_div(groups.in_channels, kBoxChannels), pair) * pair;
  b.steps_of_box = ceil_div(p.taps(), taps_of_step(p, c));
  b.steps = c.boxes_per_split / pair * b.steps_of_box;
  b.chunks = ceil_div(b.steps, c.chunk_steps);
  return b;
}

int64_t box_extent(int64_t tile, int64_t stride, int64_t kernel, int64_t dilation) {
  return (tile - 1) * stride + (kernel - 1) * dilation + 1;
}

// See InputBoxes::boxes_per_copy.
bool in_one_copy(const Product& p) { return groups_of(p).in_channels % kBoxChannels == 0; }

InputBoxes boxes_of(const Product& p, const Config& c) {
  const Grid g = grid_of(p);
  const Groups groups = groups_of(p);
  const Blocks b = blocks_of(p, c);
  InputBoxes boxes;
  boxes.tensor = p.in;
  boxes.extents = g.extents;
  boxes.strides = g.strides;
  for (size_t d = 1; d < 4; ++d) {
    if (boxes.extents[d] == 1) boxes.strides[d] = ceil_div(boxes.extents[0], 4) * 4;  // never walked; the copy engine wants some
  }
  boxes.box_w = box_extent(c.tile_w, g.stride_w, p.kernel[1], p.dilation[1]);
  boxes.box_h = box_extent(c.tile_h, g.stride_h, p.kernel[0], p.dilation[0]);
  boxes.tiles_w = b.tiles_w;
  boxes.tiles_h = b.tiles_h;
  boxes.images = g.images;
  boxes.begin_w = -p.pad[1];
  boxes.begin_h = -p.pad[0];
  boxes.step_w = c.tile_w * g.stride_w;
  boxes.step_h = c.tile_h * g.stride_h;
  boxes.splits = c.splits;
  boxes.n_blocks = b.n;
  boxes.group_channels = groups.in_channels;
  boxes.boxes = b.boxes;
  boxes.boxes_per_split = c.boxes_per_split;
  boxes.boxes_per_chunk = c.boxes_per_chunk;
  boxes.boxes_per_copy = in_one_copy(p) ? c.boxes_per_chunk : 1;
  return boxes;
}

// --- packed data: ring blocks, bias ------------------------------------------------------------------------------------

int64_t ring_bytes(const Product& p, const Config& c) {
  const Blocks b = blocks_of(p, c);
  return groups_of(p).count * b.n * c.splits * b.chunks * c.chunk_steps * step_bytes_of(c);
}

// Weight of output channel n, input channel `channel` of merged group `group`.
float merged_weight(const float* data, const Product& p, const Groups& groups, int64_t group, int64_t n, int64_t tap, int64_t channel) {
  if (n >= groups.channels || channel >= groups.in_channels || tap >= p.taps()) return 0;
  if (n / p.channels != channel / p.in_channels) return 0;
  return weight_at(data, p, group * groups.merged + n / p.channels, n % p.channels, tap * p.in_channels + channel % p.in_channels);
}

uint32_t pair_of(const Config& c, float low, float high) {
  if (static_cast<Precision>(c.precision) == Precision::fp16) return half_of(low) | static_cast<uint32_t>(half_of(high)) << 16;
  return bfloat_of(low) | static_cast<uint32_t>(bfloat_of(high)) << 16;
}

// One step: [team][unit][warp on channels][lane][tile of 16 channels]{A[g][t], A[g + 8][t], A[g][t + 4], A[g + 8][t + 4]}, g = lane / 4,
// t = lane % 4, for tf32; else [team][unit][tile of 16 channels][lane] of pairs, {A[g][t], A[g][t + 4]}, ..., {A[g][t + 8], A[g][t + 12]},
// ... Rows g and g + 8 of the mt tiles of a warp are 2 mt neighbouring channels. `scale`: powers of two for the group's channels.
void pack_step(const float* data, const Product& p, const Config& c, const float* scale, int64_t group, int64_t first_n, int64_t box,
               int64_t step, std::byte* to) {
  const Shape& s = shape_of(c);
  const Groups groups = groups_of(p);
  const int64_t units = units_of_box(c), team_boxes = boxes_of_step(p, c), team_taps = taps_of_step(p, c);
  for (int64_t team = 0; team < teams_of(c); ++team) {
    const int64_t first_channel = (box + (team_boxes > 1 ? team : 0)) * kBoxChannels, tap = step * team_taps + (team_taps > 1 ? team : 0);
    for (int64_t unit = 0; unit < units; ++unit, to += s.channels() / 16 * tile_bytes_of(c)) {
      for (int64_t m = 0; m < s.channels() / 16; ++m) {
        for (int64_t i = 0; i < 128; ++i) {
          const int64_t lane = i / 4, t = lane % 4, n = first_n + m / s.mt * 16 * s.mt + (lane / 4 * s.mt + m % s.mt) * 2 + i % 2;
          const auto weight = [&](int64_t k) {
            return merged_weight(data, p, groups, group, n, tap, first_channel + unit * (kBoxChannels / units) + k);
          };
          if (is_tf32(c)) {
            const uint16_t half = n < groups.channels ? half_of(weight(t + i % 4 / 2 * 4) / scale[n]) : uint16_t{0};
            std::memcpy(to + (((m / s.mt * 32 + lane) * s.mt + m % s.mt) * 4 + i % 4) * 2, &half, 2);
          } else {
            const uint32_t pair = pair_of(c, weight(t + i % 4 / 2 * 8), weight(t + i % 4 / 2 * 8 + 4));
            std::memcpy(to + (m * 128 + i) * 4, &pair, 4);
          }
        }
      }
    }
  }
}

// Powers of two, [merged group][channel], that bring the weights of each output channel into the range of fp16. A weight down to
// 2^-28 of its channel's largest is then what rounding to tf32 makes of it, a smaller one is wrong by at most 2^-39 of that
// largest: less than an fp32 sum keeps.
std::vector<float> scales_of(const float* data, const Product& p) {
  std::vector<float> scales;
  for (int64_t n = 0; n < p.groups * p.channels; ++n) {
    float largest = 0;
    for (int64_t k = 0; k < p.k(); ++k) {
      const float w = std::abs(weight_at(data, p, n / p.channels, n % p.channels, k));
      if (std::isfinite(w)) largest = std::max(largest, w);
    }
    scales.push_back(std::ldexp(1.0F, half_exponent(largest)));
  }
  return scales;
}

void pack_ring(const float* data, const Product& p, const Config& c, const std::vector<float>& scales, std::byte* to) {
  const Shape& s = shape_of(c);
  const Blocks b = blocks_of(p, c);
  const Groups groups = groups_of(p);
  const int64_t pair = boxes_of_step(p, c);
  for (int64_t group = 0; group < groups.count; ++group) {
    for (int64_t n = 0; n < b.n; ++n) {
      for (int64_t split = 0; split < c.splits; ++split) {
        std::byte* step = to;
        const int64_t first = split * c.boxes_per_split, last = std::min(first + c.boxes_per_split, b.boxes);
        for (int64_t box = first; box < last; box += pair) {
          for (int64_t i = 0; i < b.steps_of_box; ++i, step += step_bytes_of(c))
            pack_step(data, p, c, scales.data() + group * groups.channels, group, n * s.channels(), box, i, step);
        }
        to += b.chunks * c.chunk_steps * step_bytes_of(c);
      }
    }
  }
}

int64_t padded_channels(const Product& p, const Config& c) { return blocks_of(p, c).n * shape_of(c).channels(); }  // of a group
int64_t scale_bytes(const Product& p, const Config& c) { return is_tf32(c) ? groups_of(p).count * padded_channels(p, c) * 4 : 0; }

// The ring, the scales of tf32, the bias.
Bytes pack(const Graph& graph, const ROperator& rop, const RKernel& rkernel, int phase) {
  const std::optional<Product> product = product_of(graph, rop);
  TAMP_CHECK(product.has_value(), "staged_conv of '" + rop.name + "'");
  const Product& p = *product;
  if (phase == 1) return pack_sum(graph, p);
  const Config c = config_of(rkernel);
  const float* const data = f32_data(graph.tensor(p.weights));
  std::vector<float> scales = scales_of(data, p), bias;
  if (has_bias(p) && c.splits == 1) bias = padded_by_group(bias_of(graph, p), groups_of(p).count, padded_channels(p, c));
  Bytes bytes(static_cast<size_t>(ring_bytes(p, c) + scale_bytes(p, c)) + bias.size() * 4);
  pack_ring(data, p, c, scales, bytes.data());
  for (float& scale : scales) scale *= 1 + kTf32Share;
  scales = padded_by_group(scales, groups_of(p).count, padded_channels(p, c));
  if (is_tf32(c)) std::memcpy(bytes.data() + ring_bytes(p, c), scales.data(), scales.size() * 4);
  if (!bias.empty()) std::memcpy(bytes.data() + ring_bytes(p, c) + scale_bytes(p, c), bias.data(), bias.size() * 4);
  return bytes;
}

// --- candidates --------------------------------------------------------------------------------------------------------

int64_t input_steps_of(const Product& p, const Config& c, int64_t boxes_per_chunk) {
  return boxes_per_chunk / boxes_of_step(p, c) * ceil_div(p.taps(), taps_of_step(p, c));
}

// rk::StagedConvArgs::step_row; tap 0 where there is no such tap.
ArgValue step_rows(const Product& p, const Config& c, const InputBoxes& boxes) {
  const int64_t taps = taps_of_step(p, c), pair = boxes_of_step(p, c);
  std::vector<int64_t> rows;
  for (int64_t team = 0; team < teams_of(c); ++team) {
    for (int64_t box = pair > 1 ? team : 0; box < c.boxes_per_chunk; box += pair) {
      for (int64_t step = 0; step < ceil_div(p.taps(), taps); ++step) {
        const int64_t at = step * taps + (taps > 1 ? team : 0), tap = at < p.taps() ? at : 0;
        const int64_t row = tap / p.kernel[1] * p.dilation[0] * boxes.box_w + tap % p.kernel[1] * p.dilation[1];
        rows.push_back((box * boxes.box_bytes() / 128 + row) * 16);
      }
    }
  }
  return array_arg(rows);  // the rest of the array is zero
}

std::vector<Arg> product_args(const Graph& graph, const ROperator& rop, const Product& p, const Config& c) {
  const Grid g = grid_of(p);
  const Groups groups = groups_of(p);
  const Blocks b = blocks_of(p, c);
  const InputBoxes boxes = boxes_of(p, c);
  const bool whole = c.splits == 1;
  return {
      {"out", whole ? arg(TensorArg{p.out}) : ArgValue{ScratchArg{0}}},
      {"scale", is_tf32(c) ? ArgValue{PackedArg{ring_bytes(p, c)}} : null_arg()},
      {"epilogue", product_epilogue(rop, g.with_grid_strides(p), whole, ring_bytes(p, c) + scale_bytes(p, c))},
      {"out_strides", array_arg(to_vector(whole ? g.out_strides : g.partial_strides))},
      {"split_stride", arg(whole ? int64_t{0} : p.rows() * partial_pitch(p))},
      {"channels", arg(groups.channels)},
      {"boxes", arg(b.boxes)},
      {"boxes_per_split", arg(c.boxes_per_split)},
      {"boxes_of_step", arg(boxes_of_step(p, c))},
      {"steps_of_box", arg(b.steps_of_box)},
      {"input_steps", arg(input_steps_of(p, c, c.boxes_per_chunk))},
      {"chunks", arg(b.chunks)},
      {"chunk_steps", arg(c.chunk_steps)},
      {"pixel_row_h", arg(g.stride_h * boxes.box_w)},
      {"pixel_row_w", arg(g.stride_w)},
      {"tile_h", arg(c.tile_h)},
      {"tile_w", arg(c.tile_w)},
      {"pixels", arg(c.tile_h * c.tile_w)},
      {"row_multiplier", arg(ceil_div(65536, c.tile_w))},
      {"grid_h", arg(g.h)},
      {"grid_w", arg(g.w)},
      {"vector_out", arg(whole ? vector_out(graph, p, groups.channels) : int64_t{groups.channels % 4 == 0})},
      {"vector_residual", arg(whole ? vector_residual(graph, p, groups.channels) : int64_t{0})},
      {"tiles", divisor_arg(b.tiles(g))},
      {"splits", divisor_arg(c.splits)},
      {"n_blocks", divisor_arg(b.n)},
      {"tiles_w", divisor_arg(b.tiles_w)},
      {"tiles_h", divisor_arg(b.tiles_h)},
      {"step_row", step_rows(p, c, boxes)},
  };
}

Phase product_phase(const Request& request, const Product& p, const Config& c) {
  const Shape& s = shape_of(c);
  const Grid g = grid_of(p);
  const Blocks b = blocks_of(p, c);
  const int64_t groups = groups_of(p).count;
  Phase phase;
  phase.header = "kernels/conv/staged_conv.cuh";
  phase.body = "rk::staged_conv";
  phase.template_args = {{"Math", is_tf32(c)                                               ? "rk::Tf32"
                                  : static_cast<Precision>(c.precision) == Precision::fp16 ? "rk::Fp16"
                                                                                           : "rk::Bf16"},
                         {"MT", std::to_string(s.mt)},
                         {"NT", std::to_string(s.nt)},
                         {"WARPS_M", std::to_string(s.warps_m)},
                         {"WARPS_N", std::to_string(s.warps_n)}};
  phase.args_type = "rk::StagedConvArgs";
  phase.args = product_args(request.graph, request.rop, p, c);
  phase.rtasks = groups * b.n * c.splits * b.tiles(g);
  phase.work_bytes = s.sum_bytes();
  phase.ring = {c.chunk_steps * step_bytes_of(c), b.chunks, b.tiles(g), groups * b.n * c.splits};
  phase.boxes = boxes_of(p, c);

  const double outputs = static_cast<double>(s.channels() * s.pixels());
  phase.cost.flops = 2 * outputs * static_cast<double>(b.steps * teams_of(c) * kBoxChannels);
  phase.cost.tensor_core = true;
  phase.cost.efficiency = s.efficiency;
  phase.cost.activation_bytes =
      static_cast<double>(c.boxes_per_split * phase.boxes->copied_bytes()) + 4 * outputs * (c.splits == 1 && p.residual.valid() ? 2 : 1);
  phase.cost.weight_bytes = static_cast<double>(b.steps * step_bytes_of(c));
  phase.cost.calibrated_cycles = s.fixed + (is_tf32(c) ? s.step : s.step_16_bits) * static_cast<double>(b.steps) +
                                 s.input_byte * static_cast<double>(c.boxes_per_split * phase.boxes->copied_bytes());
  return phase;
}

// The tile of at most `pixels` that makes the input to be copied least; nothing if a box does not fit a stage.
bool choose_tile(const VDevice& vdevice, const Product& p, Config& c) {
  constexpr int64_t kRowsOfTask = 64;  // what a rTask costs otherwise, in rows of a box
  constexpr int64_t kMostBox = 256;    // of the copy engine
  const Shape& s = shape_of(c);
  const Grid g = grid_of(p);
  int64_t best = 0;
  for (int64_t w = 1; w <= std::min(g.w, s.pixels()); ++w) {
    for (int64_t h = std::min(g.h, s.pixels() / w); h >= 1; --h) {
      const int64_t box_w = box_extent(w, g.stride_w, p.kernel[1], p.dilation[1]),
                    box_h = box_extent(h, g.stride_h, p.kernel[0], p.dilation[0]);
      const int64_t bytes = ceil_div(box_w * box_h * 128, 1024) * 1024 * boxes_of_step(p, c);
      if (box_w > kMostBox || box_h > kMostBox || bytes > vdevice.input_stage_bytes) continue;
      const int64_t cost = ceil_div(g.w, w) * ceil_div(g.h, h) * (box_w * box_h + kRowsOfTask);
      if (best != 0 && cost >= best) continue;
      best = cost;
      c.tile_w = w;
      c.tile_h = h;
    }
  }
  return best != 0;
}

// As many as a stage holds, but so that chunks of weights and of inputs end together where they can.
int64_t chunk_steps_of(int64_t steps, int64_t input_steps, int64_t most) {
  if (steps <= most) return steps;
  if (input_steps <= most) return most / input_steps * input_steps;
  const int64_t parts = ceil_div(input_steps, most);
  return ceil_div(input_steps, parts);
}

bool boxes_can_be_cut(const Graph& graph, const Product& p) {
  const Tensor& in = graph.tensor(p.in);
  if (in.role == Role::constant || graph.buffers[in.place.buffer.index()].kind != BufferKind::arena) return false;
  if (p.in_channels * p.groups > 1 && p.in_strides[1] != 1) return false;
  return in.place.offset % 4 == 0 && p.in_strides[0] % 4 == 0 && p.in_strides[2] % 4 == 0 && p.in_strides[3] % 4 == 0;
}

RKernel rkernel_of(const Request& request, const Product& p, const Config& c) {
  const Shape& s = shape_of(c);
  RKernel rkernel;
  rkernel.family = "staged_conv";
  rkernel.name = fmt::format("staged_conv_{}<{}x{}{}>", name_of(request.precision), s.channels(),
                             c.tile_h == 1 ? std::to_string(c.tile_w) : fmt::format("({}x{})", c.tile_h, c.tile_w),
                             c.splits > 1 ? fmt::format(", split {}", c.splits) : "");
  rkernel.config = to_pairs(c);
  rkernel.phases.push_back(product_phase(request, p, c));
  if (c.splits > 1) {
    rkernel.phases.push_back(sum_phase(request, p, c.splits, c.sum_rows));
    rkernel.scratch_elements = c.splits * p.rows() * partial_pitch(p);
  }
  return rkernel;
}

std::vector<RKernel> list_candidates(const Request& request) {
  const VDevice& vdevice = request.vdevice;
  if (request.precision == Precision::fp32 || !vdevice.tf32 || vdevice.input_stages == 0) return {};
  const std::optional<Product> p = product_of(request.graph, request.rop);
  if (!p || (p->rows() == 1 && p->taps() == 1 && p->groups == 1)) return {};  // gemv's
  if (p->in_channels < kMinChannels || p->taps() > kMostTaps || !boxes_can_be_cut(request.graph, *p)) return {};
  std::vector<RKernel> rkernels;
  for (int64_t shape = 0; shape < static_cast<int64_t>(std::size(kShapes)); ++shape) {
    const Shape& s = kShapes[shape];
    Config c;
    c.shape = shape;
    c.precision = static_cast<int64_t>(request.precision);
    c.sum_rows = sum_rows_of(vdevice, *p);
    if (s.sum_bytes() > vdevice.work_bytes() || step_bytes_of(c) > vdevice.weight_stage_bytes || !choose_tile(vdevice, *p, c)) continue;
    const int64_t pair = boxes_of_step(*p, c);
    const InputBoxes cut = boxes_of(*p, c);
    const int64_t boxes = blocks_of(*p, c).boxes, box_bytes = in_one_copy(*p) ? cut.copied_bytes() : cut.box_bytes();
    for (int64_t splits = 1; splits <= 32 && splits * pair <= boxes; splits *= 2) {
      c.boxes_per_split = ceil_div(ceil_div(boxes, splits), pair) * pair;
      c.splits = ceil_div(boxes, c.boxes_per_split);  // no empty one
      // All stages have a part of a short rTask, so that the first part is there early.
      const int64_t spread = ceil_div(ceil_div(c.boxes_per_split, vdevice.input_stages), pair) * pair;
      c.boxes_per_chunk = std::min(spread, vdevice.input_stage_bytes / box_bytes / pair * pair);
      while (input_steps_of(*p, c, c.boxes_per_chunk) * teams_of(c) > kMostSteps) c.boxes_per_chunk -= pair;
      const int64_t steps = blocks_of(*p, c).steps;
      c.chunk_steps = chunk_steps_of(steps, input_steps_of(*p, c, c.boxes_per_chunk), vdevice.weight_stage_bytes / step_bytes_of(c));
      if (c.splits * p->rows() * partial_pitch(*p) > INT32_MAX) break;  // the device's offsets
      rkernels.push_back(rkernel_of(request, *p, c));
      if (rkernels.back().phases[0].rtasks >= 2 * vdevice.veus()) break;
    }
  }
  return rkernels;
}

// --- accesses ----------------------------------------------------------------------------------------------------------

void product_accesses(const Graph& graph, const Product& p, const Config& c, int64_t index, Accesses& out) {
  const Shape& s = shape_of(c);
  const Grid g = grid_of(p);
  const Groups groups = groups_of(p);
  const Blocks b = blocks_of(p, c);
  const int64_t tile = index % b.tiles(g), block = index / b.tiles(g);
  const int64_t split = block % c.splits, n_block = block / c.splits % b.n, group = block / c.splits / b.n;
  const int64_t image = tile / b.tiles_w / b.tiles_h;
  const int64_t w = tile % b.tiles_w * c.tile_w, h = tile / b.tiles_w % b.tiles_h * c.tile_h;
  const int64_t last_w = std::min(w + c.tile_w, g.w), last_h = std::min(h + c.tile_h, g.h);
  const int64_t begin = group * groups.channels + n_block * s.channels(),
                end = std::min(begin + s.channels(), (group + 1) * groups.channels);
  const auto row = [&](int64_t at_h, int64_t at_w) { return (image * g.h + at_h) * g.w + at_w; };
  for (int64_t y = h; y < last_h; ++y) {
    if (c.splits == 1)
      add_stores(graph, p, row(y, w), row(y, last_w), begin, end, out);
    else
      out.writes.push_back(partial_rows(p, split, row(y, w), row(y, last_w), begin, end));
  }
  // Boxes may reach into the next groups' channels, with weights of zero.
  const int64_t all = p.groups * p.in_channels;
  const int64_t first = group * groups.in_channels + split * c.boxes_per_split * kBoxChannels;
  append_input(graph, p, row(h, w), row(last_h - 1, last_w - 1) + 1, std::min(first, all),
               std::min(first + c.boxes_per_split * kBoxChannels, all), out.reads);
}

void accesses(const Graph& graph, const ROperator& rop, const RKernel& rkernel, int phase, int64_t index, Accesses& out) {
  const std::optional<Product> p = product_of(graph, rop);
  TAMP_CHECK(p.has_value(), "staged_conv of '" + rop.name + "'");
  const Config c = config_of(rkernel);
  if (phase == 0)
    product_accesses(graph, *p, c, index, out);
  else
    sum_accesses(graph, *p, c.splits, c.sum_rows, index, out);
}

}  // namespace

const Family& staged_conv() {
  static const Family family = {"staged_conv", list_candidates, pack, accesses};
  return family;
}

}  // namespace tamp::kernels
