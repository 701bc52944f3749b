#include "kernels/product/staged_conv_plan.h"

#include <fmt/format.h>

#include <tuple>

#include "kernels/args.h"
#include "kernels/tile/product_phases.h"

namespace tamp::kernels::staged {
namespace {

constexpr Shape kShapes[] = {{1, 4, 1, 1},  {2, 2, 1, 2}, {1, 4, 1, 2}, {2, 4, 1, 2}, {2, 4, 2, 2},  {2, 4, 2, 4},
                             {1, 2, 1, 1},  {2, 2, 1, 1}, {2, 4, 2, 1}, {2, 2, 2, 1}, {2, 4, 4, 2},  {2, 8, 4, 2},
                             {2, 12, 4, 2}, {2, 9, 4, 2}, {2, 3, 2, 4}, {2, 5, 2, 4}, {2, 14, 4, 2}, {2, 5, 2, 2}};

const rk::StagedUnits& numbers_of(const Config& c) {
  return is_tf32(c) ? rk::kStagedTf32 : c.narrow != 0 ? rk::kStagedNarrow : rk::kStaged16Bits;
}

// Whether `count` steps along `inner` are one step along `outer`: in the boxes' tensor, output, residual and partial sums.
bool lie_evenly(const Grid& g, size_t box_inner, size_t box_outer, size_t inner, size_t outer, int64_t count) {
  if (g.strides[box_outer] != count * g.strides[box_inner]) return false;
  for (const auto* strides : {&g.out_strides, &g.residual_strides, &g.partial_strides}) {
    if ((*strides)[outer] != count * (*strides)[inner]) return false;
  }
  return true;
}

constexpr ConfigField<Config> kConfig[] = {{"precision", &Config::precision},
                                           {"shape", &Config::shape},
                                           {"tile_w", &Config::tile_w},
                                           {"tile_h", &Config::tile_h},
                                           {"splits", &Config::splits},
                                           {"boxes_per_split", &Config::boxes_per_split},
                                           {"boxes_per_chunk", &Config::boxes_per_chunk},
                                           {"chunk_steps", &Config::chunk_steps},
                                           {"sum_rows", &Config::sum_rows},
                                           {"team_boxes", &Config::team_boxes},
                                           {"narrow", &Config::narrow, true},
                                           {"deep", &Config::deep, true},
                                           {"stage_steps", &Config::stage_steps, true},
                                           {"pairs", &Config::pairs, true},
                                           {"sums", &Config::sums, true},
                                           {"normalized", &Config::normalized, true},
                                           {"parts", &Config::parts, true},
                                           {"moments", &Config::moments, true},
                                           {"cluster", &Config::cluster, true},
                                           {"whole", &Config::whole, true}};

}  // namespace

std::span<const Shape> shapes() { return kShapes; }

bool is_pointwise(const Product& p) {
  const auto reaches_behind = [&](size_t d) { return (p.pixels[d + 1] - 1) * p.stride[d] >= p.in_extent[d]; };
  return p.taps() == 1 && p.pad[0] == 0 && p.pad[1] == 0 && !reaches_behind(0) && !reaches_behind(1);
}

decltype(RKernel::config) to_config(const Config& c) { return kernels::to_config(c, kConfig); }
Config config_of(const RKernel& rkernel) { return from_config(rkernel, kConfig); }

const Shape& shape_of(const Config& c) { return kShapes[c.shape]; }
bool is_tf32(const Config& c) { return static_cast<Precision>(c.precision) == Precision::tf32; }
bool has_scales(const Config& c) { return is_tf32(c) || c.whole != 0; }

namespace {

ShapeCosts table_costs(const ShapedVDevice& vdevice, const Config& c, int64_t pixels) {
  const std::string prefix = fmt::format("staged_conv.{}x{}.", shape_of(c).channels(), pixels);
  const double efficiency = vdevice.cost(prefix + "efficiency");
  if (c.narrow != 0 || c.deep != 0) {
    const std::string narrow = prefix + (c.narrow == 0 ? "wide." : c.deep != 0 ? "deep." : "narrow.");
    return {efficiency, vdevice.cost(narrow + "fixed_cycles"), vdevice.cost(narrow + "step_cycles"),
            vdevice.cost(narrow + "input_byte_cycles")};
  }
  return {efficiency, vdevice.cost(prefix + "fixed_cycles"), vdevice.cost(prefix + (is_tf32(c) ? "step_tf32_cycles" : "step_16bit_cycles")),
          vdevice.cost(prefix + "input_byte_cycles")};
}

}  // namespace

// The vDevice knows tiles of 128 channels with 64, 128 and 192 pixels; others of 128 channels lie on the line through the last two. Of
// tiles of 64 channels and more than 64 pixels it knows those of multiples of 32; others lie in the middle between two.
ShapeCosts costs_of(const ShapedVDevice& vdevice, const Config& c) {
  const Shape& s = shape_of(c);
  const bool is_between = s.channels() == 128 ? s.pixels() % 64 != 0 : s.pixels() > 64 && s.pixels() % 32 != 0;
  if (!is_between) return table_costs(vdevice, c, s.pixels());
  const int64_t low = s.channels() == 128 ? 128 : s.pixels() / 32 * 32, high = s.channels() == 128 ? 192 : low + 32;
  const ShapeCosts a = table_costs(vdevice, c, low), b = table_costs(vdevice, c, high);
  const double share = static_cast<double>(s.pixels() - low) / static_cast<double>(high - low);
  const auto between = [&](double at_low, double at_high) { return at_low + share * (at_high - at_low); };
  return {a.efficiency, between(a.fixed_cycles, b.fixed_cycles), between(a.step_cycles, b.step_cycles),
          between(a.input_byte_cycles, b.input_byte_cycles)};
}

int64_t channels_of_box(const Product& p) { return (p.byte_in ? 4 : p.narrow_in ? 2 : 1) * kBoxChannels; }
int64_t units_of_box(const Config& c) { return numbers_of(c).units; }
int64_t teams_of(const Config& c) { return rk::staged_teams(static_cast<int>(shape_of(c).warps_k()), numbers_of(c).units); }
int64_t tile_bytes_of(const Config& c) { return rk::kWarp * numbers_of(c).words * 4; }
int64_t batch_of(const Config& c) {
  if (c.deep != 0) return 1;
  const Shape& s = shape_of(c);
  const int64_t units = units_of_box(c) * teams_of(c) / s.warps_k(), operands = units * (s.mt + ceil_div(s.nt, 2) * numbers_of(c).loads);
  return rk::staged_batch(static_cast<int>(operands));
}
int64_t step_bytes_of(const Config& c) { return teams_of(c) * units_of_box(c) * shape_of(c).mt * shape_of(c).warps_m * tile_bytes_of(c); }

std::optional<Product> by_pairs(const Product& p) {
  if (p.stride[1] != 2 || p.kernel[1] < 2 || p.dilation[1] != 1 || p.groups != 1 || p.in_extent[1] % 2 != 0) return std::nullopt;
  if (p.in_strides[1] != 1 || p.in_strides[3] != p.in_channels) return std::nullopt;
  Product q = p;
  q.pairs = true;
  q.pad[1] = ceil_div(p.pad[1], 2);
  q.pair_tap = p.pad[1] - 2 * q.pad[1];
  q.pair_kernel = p.kernel[1];
  q.kernel[1] = ceil_div(p.kernel[1] - q.pair_tap, 2);
  q.stride[1] = 1;
  q.in_extent[1] /= 2;
  q.in_channels *= 2;
  q.in_strides[3] *= 2;
  return q;
}

Grid grid_of(const Product& p) {
  Grid g;
  const int64_t channels = p.groups * p.in_channels;
  g.w = p.pixels[2];
  g.h = p.pixels[1];
  g.images = p.pixels[0];
  g.out_strides = p.out_strides;
  g.residual_strides = p.residual_strides;
  g.partial_strides = partial_strides(p);
  if (!is_pointwise(p) || p.keeps_tiles) {
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

Groups groups_of(const Product& p, const Config& c) {
  if (c.sums > 0) return {c.sums, ceil_div(p.groups, c.sums), p.in_channels * c.sums, p.channels * c.sums};
  const int64_t cell = channels_of_box(p) / 8;  // channels in 16 bytes
  const auto rank = [&](int64_t all) {
    const bool begins_aligned = all == p.groups || all * p.in_channels % cell == 0;
    return std::tuple(begins_aligned, all * p.channels % 4 == 0, all);
  };
  int64_t merged = 1;
  for (int64_t all = 2; all <= p.groups && all * p.in_channels <= channels_of_box(p); ++all) {
    if (p.groups % all == 0 && rank(all) > rank(merged)) merged = all;
  }
  return {merged, p.groups / merged, p.in_channels * merged, p.channels * merged};
}

int64_t boxes_of_step(const Config& c) { return c.team_boxes != 0 ? teams_of(c) : 1; }
int64_t taps_of_step(const Config& c) { return c.team_boxes != 0 ? 1 : teams_of(c); }

int64_t all_boxes(const Product& p, const Config& c) {
  const int64_t pair = boxes_of_step(c);
  return ceil_div(ceil_div(groups_of(p, c).in_channels, channels_of_box(p)), pair) * pair;
}

int64_t vector_of(const Graph& graph, TensorId id, const std::array<int64_t, 4>& strides, int64_t channels) {
  const Tensor& tensor = graph.tensor(id);
  if (is_whole_byte(tensor.dtype) && has_vector_channels(tensor, strides, channels, 16)) return 16;
  if (tensor.dtype != DType::f32 && has_vector_channels(tensor, strides, channels, 8)) return 8;
  return has_vector_channels(tensor, strides, channels) ? 4 : 0;
}

Blocks blocks_of(const Product& p, const Config& c) {
  const Shape& s = shape_of(c);
  const Grid g = grid_of(p);
  const Groups groups = groups_of(p, c);
  Blocks b{};
  b.tiles_w = ceil_div(g.w, c.tile_w);
  b.tiles_h = ceil_div(g.h, c.tile_h);
  b.n = ceil_div(groups.channels, s.channels());
  b.boxes = all_boxes(p, c);
  b.steps = steps_of_split(p, c, c.boxes_per_split);
  b.last_steps = steps_of_split(p, c, b.boxes - (c.splits - 1) * c.boxes_per_split);
  b.chunks = ceil_div(b.steps, c.chunk_steps);
  return b;
}

int64_t box_extent(int64_t tile, int64_t stride, int64_t kernel, int64_t dilation) {
  return (tile - 1) * stride + (kernel - 1) * dilation + 1;
}

int64_t eight_rows(const Product& p, const Config& c) {
  const Grid g = grid_of(p);
  const bool w_follow = g.stride_w == 1, h_follow = box_extent(c.tile_h, g.stride_h, p.kernel[0], p.dilation[0]) == c.tile_h;
  const int64_t box_w = box_extent(c.tile_w, g.stride_w, p.kernel[1], p.dilation[1]);
  if (w_follow && c.tile_h == 1) return 8;
  if (w_follow && h_follow && box_w == c.tile_w) return 8;
  return w_follow && c.tile_w == 8 ? g.stride_h * box_w : 0;
}

bool is_wide(const ShapedVDevice& vdevice, const Product& p, const Config& c) {
  if (c.sums != 0) return false;
  if (c.narrow != 0 || c.deep != 0) return c.deep != 0;
  const Shape& s = shape_of(c);
  const Grid g = grid_of(p);
  return vdevice.wide_products && is_tf32(c) && s.channels() == 64 && s.nt == 4 && s.warps_n >= 2 && p.taps() == 1 &&
         box_extent(c.tile_w, g.stride_w, 1, 1) == c.tile_w && box_extent(c.tile_h, g.stride_h, 1, 1) == c.tile_h;
}

bool in_one_copy(const Product& p, const Config& c) {
  const Groups groups = groups_of(p, c);
  return groups.in_channels % channels_of_box(p) == 0 && p.groups % groups.merged == 0;
}

int64_t bytes_of_box(const Product& p, const Config& c) {
  const Grid g = grid_of(p);
  const int64_t bytes = box_extent(c.tile_w, g.stride_w, p.kernel[1], p.dilation[1]) *
                        box_extent(c.tile_h, g.stride_h, p.kernel[0], p.dilation[0]) * InputBoxes::kBoxRowBytes;
  return in_one_copy(p, c) ? bytes : ceil_div(bytes, 1024) * 1024;
}

InputBoxes boxes_of(const Product& p, const Config& c) {
  const Grid g = grid_of(p);
  const Groups groups = groups_of(p, c);
  const Blocks b = blocks_of(p, c);
  InputBoxes boxes;
  boxes.tensor = p.in;
  boxes.value_bytes = kBoxChannels * 4 / channels_of_box(p);
  boxes.extents = g.extents;
  boxes.strides = g.strides;
  const int64_t cell = p.byte_in ? 16 : 8;
  for (size_t d = 1; d < 4; ++d) {
    if (boxes.extents[d] == 1)
      boxes.strides[d] = ceil_div(boxes.extents[0], cell) * cell;  // never used; the copy engine wants a valid stride
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
  boxes.boxes_per_copy = in_one_copy(p, c) ? c.boxes_per_chunk : 1;
  return boxes;
}

int64_t steps_of_boxes(const Product& p, const Config& c, int64_t boxes) {
  return boxes / boxes_of_step(c) * ceil_div(p.taps(), taps_of_step(c));
}

int64_t input_steps_of(const Product& p, const Config& c) {
  const int64_t steps = steps_of_boxes(p, c, c.boxes_per_chunk), batch = batch_of(c);
  return steps % batch > batch / 2 ? ceil_div(steps, batch) * batch : steps;
}

int64_t steps_of_split(const Product& p, const Config& c, int64_t boxes) {
  return boxes / c.boxes_per_chunk * input_steps_of(p, c) + steps_of_boxes(p, c, boxes % c.boxes_per_chunk);
}

}  // namespace tamp::kernels::staged
