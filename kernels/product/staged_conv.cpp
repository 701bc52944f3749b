// Host side of staged_conv.cuh: the candidates, the packed weights, and what a rTask touches (staged_conv_plan.h has the rest). rTask t
// of phase 0 is ((group * n_blocks + n_block) * splits + split) * tiles + tile, so that the rTasks of one ring block follow each other,
// as InputBoxes also wants.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "compiler/ir/products.h"
#include "compiler/support/error.h"
#include "kernels/family.h"
#include "kernels/half_columns.h"
#include "kernels/loop.h"
#include "kernels/narrow.h"
#include "kernels/product/narrow_product.h"
#include "kernels/product/split_k_normalize.h"
#include "kernels/product/staged_conv_cluster.h"
#include "kernels/product/staged_conv_moments.h"
#include "kernels/product/staged_conv_pack.h"
#include "kernels/product/staged_conv_tiles.h"
#include "kernels/tile/product_phases.h"
#include "kernels/tile/requantised.h"

namespace tamp::kernels {
namespace {

using namespace staged;

constexpr int64_t kMostTaps = 64;
constexpr int64_t kMinChannels = 4;  // of a group; convolutions of fewer are left to other families
constexpr int64_t kMostSteps = rk::kMostSteps;

// --- candidates --------------------------------------------------------------------------------------------------------

// rk::StagedConvArgs::step_row; tap 0 where there is no such tap, the first step where there is no such step.
ArgValue step_rows(const Product& p, const Config& c, const InputBoxes& boxes) {
  const int64_t taps = taps_of_step(c), pair = boxes_of_step(c);
  std::vector<int64_t> rows;
  for (int64_t team = 0; team < teams_of(c); ++team) {
    const auto first = static_cast<int64_t>(rows.size());
    for (int64_t box = pair > 1 ? team : 0; box < c.boxes_per_chunk; box += pair) {
      for (int64_t step = 0; step < ceil_div(p.taps(), taps); ++step) {
        const int64_t at = step * taps + (taps > 1 ? team : 0), tap = at < p.taps() ? at : 0;
        const int64_t row = tap / p.kernel[1] * p.dilation[0] * boxes.box_w + tap % p.kernel[1] * p.dilation[1];
        rows.push_back((box * boxes.box_bytes() / 128 + row) * 16);
      }
    }
    while (static_cast<int64_t>(rows.size()) < first + input_steps_of(p, c)) rows.push_back(rows[static_cast<size_t>(first)]);
  }
  return array_arg(rows);  // the rest of the array is zero
}

// Whether the residual of a tile's pixel lies as far behind that of its first pixel as the results do.
bool residual_lies_as_results(const Grid& g, const Config& c) {
  return g.residual_strides[3] == g.out_strides[3] && (c.tile_h == 1 || g.residual_strides[2] == g.out_strides[2]);
}

// Whether the body rounds its results to whole numbers.
bool rounds(const Config& c) { return c.whole >= rk::kWholeResults && !c.has_second_phase(); }

// The clamp of results; where the body rounds them, that of rounded numbers.
ArgValue results_clip(const ROperator& rop, const Product& p, const Config& c) {
  if (c.has_second_phase()) return clip_arg({}, p.residual_after_activation);
  Epilogue epilogue = rop.epilogue;
  if (rounds(c)) epilogue.activation = Activation::clip, epilogue.sum.reset();  // the body knows
  return clip_arg(epilogue, p.residual_after_activation);
}

// `wide`: whether the body multiplies by wgmma.
rk::ResultsWay way_of(const Graph& graph, const ROperator& rop, const Product& p, const Config& c, bool wide) {
  if (c.has_second_phase()) return groups_of(p, c).channels % 4 == 0 ? rk::kPlainWay : rk::kAnyWay;
  const int64_t channels = groups_of(p, c).channels;
  const bool vectors = vector_of(graph, p.out, p.out_strides, channels) > 0;
  const Activation activation = rop.epilogue.activation;
  const bool clamps = rounds(c) || activation == Activation::none || activation == Activation::relu || activation == Activation::clip;
  if (clamps && vectors && !p.residual.valid()) return rk::kPlainWay;
  if (clamps && vectors && vector_of(graph, p.residual, p.residual_strides, channels) > 0 && !p.residual_after_activation &&
      residual_lies_as_results(grid_of(p), c))
    return rk::kAddedWay;
  const bool smooth = activation == Activation::gelu || activation == Activation::gelu_tanh || activation == Activation::silu ||
                      activation == Activation::hard_swish;
  if (!wide || !vectors || p.residual.valid() || !smooth) return rk::kAnyWay;
  const Shape& s = shape_of(c);
  const bool at_once = rk::staged_rounds(static_cast<int>(s.channels()), static_cast<int>(s.pixels())) == 1;
  const bool halves = graph.tensor(p.out).dtype == DType::f16;
  return at_once && halves && activation == Activation::gelu ? rk::kGeluWay : rk::kSmoothWay;
}

std::vector<Arg> product_args(const Graph& graph, const ROperator& rop, const Product& p, const Config& c, bool wide) {
  const Grid g = grid_of(p);
  const Groups groups = groups_of(p, c);
  const Blocks b = blocks_of(p, c);
  const InputBoxes boxes = boxes_of(p, c);
  const bool whole = !c.has_second_phase();
  return {
      {"out", whole ? arg(TensorArg{p.out}) : ArgValue{ScratchArg{0}}},
      {"scale", has_scales(c) ? ArgValue{PackedArg{ring_bytes(p, c)}} : null_arg()},
      {"epilogue", product_epilogue(rop, g.with_grid_strides(p), whole, ring_bytes(p, c) + scale_bytes(p, c))},
      {"clip", results_clip(rop, p, c)},
      {"out_strides", array_arg(to_vector(whole ? g.out_strides : g.partial_strides))},
      {"split_stride", arg(whole ? int64_t{0} : p.rows() * partial_pitch(p))},
      {"channels", arg(groups.channels)},
      {"steps", arg(b.steps)},
      {"last_steps", arg(b.last_steps)},
      {"input_steps", arg(input_steps_of(p, c))},
      {"chunks", arg(b.chunks)},
      {"chunk_steps", arg(c.chunk_steps)},
      {"pixel_row_h", arg(g.stride_h * boxes.box_w)},
      {"pixel_row_w", arg(g.stride_w)},
      {"eight_rows", arg(eight_rows(p, c))},
      {"tile_h", arg(c.tile_h)},
      {"tile_w", arg(c.tile_w)},
      {"pixels", arg(c.tile_h * c.tile_w)},
      {"row_multiplier", arg(ceil_div(65536, c.tile_w))},
      {"grid_h", arg(g.h)},
      {"grid_w", arg(g.w)},
      {"vector_out", arg(whole ? vector_of(graph, p.out, p.out_strides, groups.channels) : int64_t{groups.channels % 4 == 0 ? 4 : 0})},
      {"vector_residual",
       arg(whole && p.residual.valid() ? vector_of(graph, p.residual, p.residual_strides, groups.channels) : int64_t{0})},
      {"way", enumerator_arg(way_of(graph, rop, p, c, wide), {"kPlainWay", "kAddedWay", "kGeluWay", "kSmoothWay", "kAnyWay"})},
      {"tiles", divisor_arg(b.tiles(g))},
      {"splits", divisor_arg(c.splits)},
      {"n_blocks", divisor_arg(b.n)},
      {"tiles_w", divisor_arg(b.tiles_w)},
      {"tiles_h", divisor_arg(b.tiles_h)},
      {"step_row", step_rows(p, c, boxes)},
  };
}

void add_lows(const Graph& graph, const Product& p, bool whole, std::vector<Arg>& args) {
  const int64_t out = whole ? low_of(graph, p.out) : 0, residual = whole && p.residual.valid() ? low_of(graph, p.residual) : 0;
  if (out != 0) args.push_back({"out_low", float_arg(static_cast<float>(out))});
  if (residual != 0) args.push_back({"residual_low", float_arg(static_cast<float>(residual))});
}

// Makes the phase one whose results become other whole numbers.
void add_again(const Graph& graph, const Requantised& again, const Product& p, const Config& c, Phase& phase) {
  const bool lies_in_bytes = is_whole_byte(graph.tensor(p.out).dtype);
  if (!lies_in_bytes) phase.args.push_back({"out_low", float_arg(static_cast<float>(again.results.low))});
  const int64_t row = ring_bytes(p, c) + scale_bytes(p, c) + bias_bytes(p, c);
  phase.args_type = "rk::AgainConvArgs";
  phase.args = {{"conv", struct_arg(std::move(phase.args))},
                {"again", struct_arg({{"row", again.row.valid() ? ArgValue{PackedArg{row}} : null_arg()},
                                      {"table", again.table.valid() ? ArgValue{PackedArg{row + row_bytes(p, c)}} : null_arg()},
                                      {"scale", float_arg(again.scale)},
                                      {"low", float_arg(again.low)},
                                      {"high", float_arg(again.high)},
                                      {"table_low", float_arg(static_cast<float>(again.table_low))}})}};
}

// The body's Math. `out`: the type that the body stores.
std::string math_of(const Graph& graph, const Product& p, const Config& c, DType out) {
  const int64_t whole = c.whole != 0 && !rounds(c) ? int64_t{rk::kWholeOperands} : c.whole;
  if (whole != 0 || has_bytes(graph, p) || p.narrow_in || is_narrow(out)) return narrow_math(graph, p, whole, out);
  if (is_tf32(c)) return "rk::Tf32";
  return static_cast<Precision>(c.precision) == Precision::fp16 ? "rk::Fp16" : "rk::Bf16";
}

// From the sums of a tile to those of the next; images follow each other.
int64_t part_stride(const Tensor& sums) { return sums.place.strides[sums.shape[2] > 1 ? 2 : 0]; }

bool takes_sums(const Tensor& sums) {
  const std::vector<int64_t>& s = sums.place.strides;
  const bool in_a_row = sums.shape[0] == 1 || sums.shape[2] == 1 || s[0] == sums.shape[2] * s[2];
  return is_plain_f32(sums) && (s[1] == 1 || sums.shape[1] == 1) && in_a_row;
}

// How many groups a body of the shape takes together: no more than a box has input channels for, in whole vectors of output channels.
int64_t merged_for(const Product& p, const Shape& shape) {
  int64_t merged = std::min({shape.channels() / p.channels, channels_of_box(p) / p.in_channels, p.groups});
  while (merged > 1 && merged * p.channels % 4 != 0) --merged;
  return std::max<int64_t>(merged, 1);
}

// Of products that fill the vEUs. Measured, not derived: batches of 32 are 1 to 4 % faster so (docs/log/2026-11-24.md, "Attention by
// wgmma, and the order of rTasks"). Copies alone are not.
constexpr int64_t kBlocksBeside = 6;

// Makes the phase of a convolution one that stores sums as well.
void add_sums(const Request& request, const Product& p, const Shape& shape, Phase& phase) {
  const TensorId sums = request.rop.outputs[1];
  set_body(phase, "kernels/product/summed_conv.cuh", "rk::summed_conv", "rk::SummedConvArgs");
  if (p.residual.valid()) phase.template_args.emplace_back("ADDS", "true");
  phase.args = {{"conv", struct_arg(std::move(phase.args))},
                {"sums", arg(TensorArg{sums})},
                {"part_stride", arg(part_stride(request.graph.tensor(sums)))},
                {"channels", arg(request.graph.tensor(sums).shape[1])}};
  phase.work_bytes += rk::summed_work_bytes(static_cast<int>(shape.channels()));
  phase.cost.calibrated_cycles += request.vdevice.cost("staged_conv.sums_cycles");
}

Phase product_phase(const Request& request, const Product& p, const Config& c) {
  const bool whole = !c.has_second_phase();
  const Shape& s = shape_of(c);
  const Grid g = grid_of(p);
  const Blocks b = blocks_of(p, c);
  const int64_t groups = groups_of(p, c).count;
  const std::optional<Requantised> again = requantised_of(request.graph, request.rop);
  const bool bytes = has_bytes(request.graph, p) || again;
  Phase phase =
      body_phase(bytes ? "kernels/product/staged_bytes.cuh" : "kernels/product/staged_conv.cuh", "rk::staged_conv", "rk::StagedConvArgs");
  const std::string math = math_of(request.graph, p, c, whole ? request.graph.tensor(p.out).dtype : DType::f32);
  phase.template_args = {{"Math", is_wide(request.vdevice, p, c) ? "rk::Wide<" + math + ">" : math},
                         {"MT", std::to_string(s.mt)},
                         {"NT", std::to_string(s.nt)},
                         {"WARPS_M", std::to_string(s.warps_m)},
                         {"WARPS_N", std::to_string(s.warps_n)}};
  if (c.stage_steps != 0) phase.template_args.emplace_back("STAGE_STEPS", std::to_string(c.stage_steps));
  phase.args = product_args(request.graph, plain_product(request.graph, request.rop), p, c, is_wide(request.vdevice, p, c));
  if (bytes) add_lows(request.graph, p, whole, phase.args);
  if (again) add_again(request.graph, *again, p, c, phase);
  phase.rtasks = groups * b.n * c.splits * b.tiles(g);
  phase.work_bytes = c.whole >= rk::kWholeRow ? s.byte_bytes() + rk::kTableBytes : s.sum_bytes();
  phase.many_registers = s.only_deep() && (is_tf32(c) || s.many_registers());
  phase.ring = {c.chunk_steps * step_bytes_of(c), b.chunks, b.tiles(g), groups * b.n * c.splits};
  phase.boxes = boxes_of(p, c);
  if (s.only_deep() && p.taps() == 1 && groups == 1 && whole && phase.rtasks >= request.vdevice.veus())
    phase.boxes->blocks_beside = kBlocksBeside;

  const double outputs = static_cast<double>(s.channels() * s.pixels());
  phase.cost.flops = 2 * outputs * static_cast<double>(b.steps * teams_of(c) * channels_of_box(p));
  phase.cost.tensor_core = true;
  phase.cost.kernel_factor = request.vdevice.cost("staged_conv.kernel_factor");
  const ShapeCosts costs = costs_of(request.vdevice, c);
  phase.cost.efficiency = costs.efficiency;
  phase.cost.activation_bytes =
      static_cast<double>(c.boxes_per_split * phase.boxes->copied_bytes()) +
      outputs * (!whole ? 4 : static_cast<double>(bytes_of(request.graph.tensor(p.out).dtype)) * (p.residual.valid() ? 2 : 1));
  phase.cost.weight_bytes = static_cast<double>(b.steps * step_bytes_of(c));
  if (c.deep != 0 && 2 * b.tiles(g) >= request.vdevice.veus()) phase.cost.weight_bytes /= request.vdevice.cost("staged_conv.shared_reads");
  const double even = c.stage_steps != 0 ? request.vdevice.cost("staged_conv.even_step_factor") : 1;
  phase.cost.calibrated_cycles =
      costs.fixed_cycles + even * (costs.step_cycles * static_cast<double>(b.steps) +
                                   costs.input_byte_cycles * static_cast<double>(c.boxes_per_split * phase.boxes->copied_bytes()));
  if (c.sums != 0) add_sums(request, p, s, phase);
  if (request.vdevice.products_over_inputs) lie_over_inputs(request.vdevice, c, phase);
  if (c.cluster != 0)
    share_in_cluster(request, p, c, phase);
  else if (const std::optional<MomentSteps> moments = moment_steps(request.rop))
    add_moments(request, *moments, p, c, phase);
  return phase;
}

bool boxes_can_be_cut(const Graph& graph, const Product& p) {
  const Tensor& in = graph.tensor(p.in);
  if (in.role == Role::constant || graph.buffers[in.place.buffer.index()].kind != BufferKind::arena) return false;
  if (p.in_channels * p.groups > 1 && p.in_strides[1] != 1) return false;
  const int64_t cell = 16 / bytes_of(in.dtype);
  return in.place.offset % cell == 0 && p.in_strides[0] % cell == 0 && p.in_strides[2] % cell == 0 && p.in_strides[3] % cell == 0;
}

// Whether each group begins at a multiple of 16 bytes, as the copy engine asks. Example: of 13 groups of 8 channels none can be taken
// together, and in bytes every second one begins 8 bytes behind a multiple of 16.
bool groups_can_be_cut(const Graph& graph, const Product& p, const Config& c) {
  const Groups groups = groups_of(p, c);
  return groups.count == 1 || groups.in_channels * bytes_of(graph.tensor(p.in).dtype) % 16 == 0;
}

// None where there is no second phase for so many splits.
std::optional<RKernel> rkernel_of(const Request& request, const Product& p, const Config& c) {
  const Shape& s = shape_of(c);
  const std::string name =
      fmt::format("staged_conv_{}<{}x{}{}{}{}{}{}{}>", name_of(static_cast<Precision>(c.precision)), s.channels(),
                  c.tile_h == 1 ? std::to_string(c.tile_w) : fmt::format("({}x{})", c.tile_h, c.tile_w), c.pairs != 0 ? ", pairs" : "",
                  c.cluster != 0 ? ", cluster"
                  : c.splits > 1 ? fmt::format(", split {}", c.splits)
                                 : "",
                  c.normalized != 0 ? ", normalized" : "", c.parts != 0 ? ", by moments" : "", c.moments != 0 ? ", moments" : "",
                  keeps_rounded(request.rop) ? ", rounded"
                  : c.whole >= rk::kWholeRow ? ", whole again"
                  : c.whole != 0             ? ", whole"
                                             : "");
  RKernel rkernel = one_phase(name, to_config(c), product_phase(request, p, c));
  if (c.has_second_phase()) {
    std::optional<Phase> second = c.normalized != 0 ? normalize_phase(request, p, c.splits) : sum_phase(request, p, c.splits, c.sum_rows);
    if (!second) return std::nullopt;
    rkernel.phases.push_back(*std::move(second));
    rkernel.scratch_elements = c.splits * p.rows() * partial_pitch(p);
  }
  return rkernel;
}

// Whether teams take boxes and not taps. If taps are no multiple of the teams, some teams are idle in the last step of every box; with
// boxes they are not, where there are enough boxes.
bool teams_take_boxes(const ShapedVDevice& vdevice, const Product& p, Config c, int64_t splits) {
  c.team_boxes = 0;
  const int64_t teams = teams_of(c), boxes = ceil_div(all_boxes(p, c), splits);
  const bool fits = teams * bytes_of_box(p, c) <= vdevice.input_stage_bytes && (p.taps() + batch_of(c)) * teams <= kMostSteps;
  return p.taps() % teams != 0 && boxes % teams == 0 && fits;
}

// Whether the warpgroups of a wgmma body share k. Then no thread has whole sums.
bool shares_k(const Shape& s) {
  return s.channels() == 64 && !rk::groups_share_pixels(static_cast<int>(s.channels()), static_cast<int>(s.pixels()));
}

constexpr int64_t kMostTilesToAdd = 3;

// In how many shares the input channels of a shape with its tile may be, ascending. Where rows are normalised as well, the number of rTasks
// matters more than elsewhere: with a second phase in any case, one more share costs little. So there are also those numbers with which the
// rTasks just fit the vEUs, once or twice. Example: 24 tiles on 132 vEUs in 2, 4, 5, 8, 11 and 16 shares.
std::vector<int64_t> splits_of(const ShapedVDevice& vdevice, const Product& p, const Config& c) {
  if (c.sums != 0 || c.parts != 0 || c.moments != 0 || c.whole >= rk::kWholeRow) return {1};
  std::vector<int64_t> splits;
  for (int64_t s = c.normalized != 0 ? 2 : 1; s <= (c.normalized != 0 ? kMostNormalizedSplits : 32); s *= 2) splits.push_back(s);
  if (c.normalized == 0) return splits;
  const Grid g = grid_of(p);
  const int64_t tiles = ceil_div(p.channels, shape_of(c).channels()) * ceil_div(g.w, c.tile_w) * ceil_div(g.h, c.tile_h) * g.images;
  for (const int64_t rounds : {1, 2}) {
    if (const int64_t s = rounds * vdevice.veus() / tiles; s > 1 && s <= kMostNormalizedSplits) splits.push_back(s);
  }
  std::sort(splits.begin(), splits.end());
  return splits;
}

// The rKernels of a shape with its tile: with the input channels in one, two, .. shares.
void append_splits(const Request& request, const Product& p, Config c, std::vector<RKernel>& rkernels) {
  const ShapedVDevice& vdevice = request.vdevice;
  for (const int64_t splits : splits_of(vdevice, p, c)) {
    const int64_t last = c.splits;
    if (splits > 1 && c.normalized == 0 && adds_narrow(request.graph, p)) return;  // split_k_sum has one type for both
    if (splits > 1 && request.rop.epilogue.sum) return;                            // and no scaled sums
    if (splits > 1 && p.residual.valid() && has_bytes(request.graph, p)) return;
    if (p.taps() > 1) c.team_boxes = teams_take_boxes(vdevice, p, c, splits);
    const int64_t pair = boxes_of_step(c), boxes = all_boxes(p, c);
    if (splits * pair > boxes) return;
    c.boxes_per_split = ceil_div(ceil_div(boxes, splits), pair) * pair;
    c.splits = ceil_div(boxes, c.boxes_per_split);  // no split is empty
    if (c.normalized != 0 && c.splits == last) continue;
    choose_chunks(vdevice, p, c);
    if (c.splits * p.rows() * partial_pitch(p) > INT32_MAX) return;  // the device's offsets have 32 bits
    std::optional<RKernel> rkernel = rkernel_of(request, p, c);
    if (!rkernel) return;
    rkernels.push_back(*std::move(rkernel));
    if (rkernels.back().phases[0].rtasks >= 2 * vdevice.veus()) return;
  }
}

// The rKernel of a shape with its tile whose splits are the members of a cluster, if there can be one.
void append_cluster(const Request& request, const Product& p, Config c, std::vector<RKernel>& rkernels) {
  const ShapedVDevice& vdevice = request.vdevice;
  if (c.whole != 0 || has_bytes(request.graph, p) || !may_share_in_cluster(vdevice, p, c)) return;
  c.cluster = 1;
  const rk::ResultsWay way = way_of(request.graph, plain_product(request.graph, request.rop), p, c, /*wide=*/true);
  if (way != rk::kPlainWay && way != rk::kAddedWay) return;
  const int64_t boxes = all_boxes(p, c);
  c.boxes_per_split = ceil_div(boxes, int64_t{rk::kClusterMembers});
  c.splits = ceil_div(boxes, c.boxes_per_split);
  if (c.splits != rk::kClusterMembers) return;
  choose_chunks(vdevice, p, c);
  if (std::optional<RKernel> rkernel = rkernel_of(request, p, c)) rkernels.push_back(*std::move(rkernel));
}

// The rKernels of a shape.
void append_shape(const Request& request, const Product& p, Config c, std::vector<RKernel>& rkernels) {
  const ShapedVDevice& vdevice = request.vdevice;
  c.team_boxes = p.taps() == 1;
  const std::optional<MomentSteps> moments = moment_steps(request.rop);
  if (moments && !take_moments(request.graph, *moments, shape_of(c), c)) return;
  const TileSums* const summed = sums_of(request.rop);
  const int64_t work_bytes =
      shape_of(c).sum_bytes() + (summed != nullptr ? rk::summed_work_bytes(static_cast<int>(shape_of(c).channels())) : 0);
  if (work_bytes > room_of_sums(vdevice) || step_bytes_of(c) > vdevice.weight_stage_bytes) return;
  if (summed != nullptr ? !take_tile(vdevice, *summed, p, c) : !choose_tile(vdevice, p, c)) return;
  append_splits(request, p, c, rkernels);
  append_cluster(request, p, c, rkernels);
  // Of few rows one more tile may fit the vEUs better. Example: 128 rows in tiles of 43 instead of 64, where other products of the same
  // level leave 36 vEUs for 12 blocks of channels.
  const Grid g = grid_of(p);
  const int64_t tiles = ceil_div(g.w, c.tile_w);
  if (c.deep == 0 || c.narrow == 0 || p.taps() > 1 || g.h * g.images > 1 || tiles > kMostTilesToAdd) return;
  c.tile_w = ceil_div(g.w, tiles + 1);
  append_splits(request, p, c, rkernels);
  append_cluster(request, p, c, rkernels);
}

std::vector<RKernel> list_candidates(const Request& request) {
  const ShapedVDevice& vdevice = request.vdevice;
  if (request.precision == Precision::fp32 || !vdevice.tf32 || vdevice.input_stages == 0) return {};
  const std::optional<Product> p = staged_product(request.graph, request.rop);
  if (!p || (p->rows() == 1 && p->taps() == 1 && p->groups == 1)) return {};  // gemv computes it
  if (p->in_channels < kMinChannels || p->taps() > kMostTaps || !boxes_can_be_cut(request.graph, *p)) return {};
  const bool sums = sums_of(request.rop) != nullptr;
  if (sums && !takes_sums(request.graph.tensor(request.rop.outputs[1]))) return {};
  const std::optional<MomentSteps> moments = moment_steps(request.rop);
  if (moments && !takes_moments(request, *moments, *p)) return {};
  const bool normalized = normalized_product_steps(request.rop).has_value();
  if (normalized && !takes_normalize(request)) return {};
  const Precision precision = precision_of(request, *p);
  if (precision == Precision::tf32 && (p->narrow_in || p->narrow_out)) return {};
  const bool is_plain = !sums && !moments && !normalized && !adds_narrow(request.graph, *p), bytes = has_bytes(request.graph, *p);
  if (bytes && !(is_plain && takes_bytes(request, *p))) return {};
  const int64_t whole = is_plain ? whole_of(request, *p, precision) : int64_t{rk::kNotWhole};
  if (request.rop.epilogue.sum && whole != rk::kWholeSums) return {};
  const bool again = requantised_of(request.graph, request.rop).has_value();
  if (again && whole < rk::kWholeRow) return {};
  std::vector<RKernel> rkernels;
  for (int64_t shape = 0; shape < static_cast<int64_t>(shapes().size()); ++shape) {
    const Shape& s = shapes()[static_cast<size_t>(shape)];
    const bool may_be_of_one_tap = vdevice.more_tiles || (vdevice.even_stages && !s.is_of_large_products());
    if (s.is_of_one_tap() && (p->taps() > 1 || !may_be_of_one_tap)) continue;
    Config c;
    c.shape = shape;
    c.precision = static_cast<int64_t>(precision);
    c.sum_rows = normalized ? normalized_rows_of(vdevice, *p) : sum_rows_of(vdevice, *p);
    c.normalized = normalized ? 1 : 0;
    c.narrow = p->byte_in ? kNarrowBytes : p->narrow_in ? 1 : 0;
    c.whole = whole;
    c.sums = sums ? merged_for(*p, s) : 0;
    if (!groups_can_be_cut(request.graph, *p, c)) continue;
    // In tf32 64 x 64 and 64 x 128 are for one tap (is_wide), and of the tiles of 128 channels those two that a program has registers for.
    const bool deep_type = p->narrow_in || (precision == Precision::tf32 && s.only_deep() && s.pixels() % 64 == 0 && s.pixels() > 64);
    const bool may_deep = !sums && deep_type && vdevice.wide_products && s.is_deep();
    if (may_deep && !(again && shares_k(s))) {
      c.deep = 1;
      append_shape(request, *p, c, rkernels);
      if (const std::optional<Product> pairs = by_pairs(*p); pairs && boxes_can_be_cut(request.graph, *pairs)) {
        c.pairs = 1;
        append_shape(request, *pairs, c, rkernels);
        c.pairs = 0;
      }
    }
    // Without wgmma as well, but only with several taps: there a tile whose pixels lie 8 by 8 may cost more to copy.
    if ((may_deep && p->taps() == 1) || s.only_deep() || (again && s.warps_k() > 1)) continue;
    c.deep = 0;
    append_shape(request, *p, c, rkernels);
  }
  return rkernels;
}

// --- accesses ----------------------------------------------------------------------------------------------------------

// The pixels that the output pixels of a tile want, of channels [begin, end). Where the map ends within the tile, it is taken to go on.
void append_tile_input(const Graph& graph, const Product& p, const Grid& g, const Config& c, const std::array<int64_t, 3>& place,
                       int64_t begin, int64_t end, std::vector<Region>& regions) {
  const auto [image, h, w] = place;
  Tensor map;
  map.shape = {g.extents[3], g.extents[2], g.extents[1], end};
  map.place = {BufferId(), graph.tensor(p.in).place.offset, {g.strides[3], g.strides[2], g.strides[1], g.strides[0]}};
  const std::array<int64_t, 2> first{h * g.stride_h - p.pad[0], w * g.stride_w - p.pad[1]};
  const std::array<int64_t, 2> steps{(c.tile_h - 1) * g.stride_h, (c.tile_w - 1) * g.stride_w};
  std::array<int64_t, 2> low{}, high{};
  for (size_t d = 0; d < 2; ++d) {
    low[d] = std::clamp<int64_t>(first[d], 0, map.shape[d + 1]);
    high[d] = std::clamp<int64_t>(first[d] + steps[d] + (p.kernel[d] - 1) * p.dilation[d] + 1, 0, map.shape[d + 1]);
  }
  for (const Run& run : box_runs(map, {image, low[0], low[1], begin}, {image + 1, high[0], high[1], end})) regions.push_back({p.in, run});
}

void product_accesses(const Graph& graph, const Product& p, const Config& c, int64_t index, Accesses& out) {
  const Shape& s = shape_of(c);
  const Grid g = grid_of(p);
  const Groups groups = groups_of(p, c);
  const Blocks b = blocks_of(p, c);
  const int64_t tile = index % b.tiles(g), block = index / b.tiles(g);
  const int64_t split = block % c.splits, n_block = block / c.splits % b.n, group = block / c.splits / b.n;
  const int64_t image = tile / b.tiles_w / b.tiles_h;
  const int64_t w = tile % b.tiles_w * c.tile_w, h = tile / b.tiles_w % b.tiles_h * c.tile_h;
  const int64_t last_w = std::min(w + c.tile_w, g.w), last_h = std::min(h + c.tile_h, g.h);
  const int64_t begin = group * groups.channels + n_block * s.channels(),
                end = std::min({begin + s.channels(), (group + 1) * groups.channels, p.groups * p.channels});
  const auto row = [&](int64_t at_h, int64_t at_w) { return (image * g.h + at_h) * g.w + at_w; };
  if (c.cluster != 0) {  // one row of pixels
    for (const auto& [from, to] : kept_rows(c, split, w, last_w)) add_stores(graph, p, from, to, begin, end, out);
  }
  for (int64_t y = h; y < last_h && c.cluster == 0; ++y) {
    if (c.splits == 1)
      add_stores(graph, p, row(y, w), row(y, last_w), begin, end, out);
    else
      out.writes.push_back(partial_rows(p, split, row(y, w), row(y, last_w), begin, end));
  }
  // Boxes may reach into the next groups' channels, with weights of zero. Where a copy brings a whole chunk, the last one may reach into
  // the next split's channels, which are not used (InputBoxes::boxes_per_copy).
  const int64_t all = p.groups * p.in_channels, whole = in_one_copy(p, c) ? c.boxes_per_chunk : 1;
  const int64_t first = group * groups.in_channels + split * c.boxes_per_split * channels_of_box(p);
  const int64_t left = std::min(c.boxes_per_split, all_boxes(p, c) - split * c.boxes_per_split);
  append_tile_input(graph, p, g, c, {image, h, w}, std::min(first, all),
                    std::min(first + ceil_div(left, whole) * whole * channels_of_box(p), all), out.reads);
}

void accesses(const Graph& graph, const ROperator& rop, const RKernel& rkernel, int phase, int64_t index, Accesses& out) {
  const Config c = config_of(rkernel);
  const Product p = product_for(graph, rop, c);
  if (phase != 0 && c.normalized != 0) return normalize_accesses(graph, rop, p, c.splits, c.sum_rows, index, out);
  if (phase != 0) return sum_accesses(graph, p, c.splits, c.sum_rows, index, out);
  product_accesses(graph, p, c, index, out);
  if (const std::optional<MomentSteps> moments = moment_steps(rop)) moment_accesses(graph, *moments, p, c, index, out);
  if (c.sums == 0) return;
  const Groups groups = groups_of(p, c);
  const Blocks b = blocks_of(p, c);
  const int64_t tiles = b.tiles(grid_of(p)), tile = index % tiles, block = index / tiles, parts = b.tiles_w * b.tiles_h;
  const int64_t group = block / b.n * groups.channels, begin = group + block % b.n * shape_of(c).channels(),
                end = std::min({begin + shape_of(c).channels(), group + groups.channels, p.groups * p.channels});
  append_box(graph, rop.outputs[1], {tile / parts, begin, tile % parts}, {tile / parts + 1, end, tile % parts + 1}, out.writes);
}

// --- before tensors have places ----------------------------------------------------------------------------------------

// The rOperator alone, its tensors where passes/assign_layout will put them.
Graph placed_alone(const Graph& graph, ROperator& rop) {
  Graph alone;
  const auto take = [&](TensorId& id) {
    if (!id.valid()) return;
    Tensor tensor = graph.tensor(id);
    int64_t elements = element_count(tensor.shape);
    if (tensor.role != Role::constant) {
      const int64_t has = tensor.shape[1], channels = has >= kPaddedChannels ? (has + 3) / 4 * 4 : has, pixels = elements / has;
      tensor.place.strides = {channels * pixels / tensor.shape[0], 1};
      if (tensor.shape.size() == 4) tensor.place.strides.push_back(channels * tensor.shape[3]);
      tensor.place.strides.push_back(channels);
      elements = channels * pixels;
    }
    tensor.place.buffer = BufferId(static_cast<int64_t>(alone.buffers.size()));
    alone.buffers.push_back({tensor.role == Role::constant ? BufferKind::constant : BufferKind::arena, elements, tensor.dtype, -1, {}});
    if (tensor.role != Role::constant) tensor.role = Role::activation;
    id = add_tensor(alone, std::move(tensor));
  };
  for (TensorId& id : rop.inputs) take(id);
  for (TensorId& id : rop.outputs) take(id);
  return alone;
}

double least_us(const Request& request) {
  const ShapedVDevice& d = request.vdevice;
  double least = std::numeric_limits<double>::infinity();
  for (const RKernel& rkernel : list_candidates(request)) {
    double us = 0;
    for (const Phase& phase : rkernel.phases) {
      const double rounds = static_cast<double>(ceil_div(phase.rtasks, d.veus()));
      us += d.edge_us + rounds * std::max(d.rtask_us, phase.cost.calibrated_cycles / (d.clock_ghz * 1e3));
    }
    least = std::min(least, us);
  }
  return least;
}

// A promise that there will be a rKernel: passes/assign_layout puts the input where boxes can be cut from. None where the sums cost much,
// as where the channels would be split without them.
std::optional<Estimate> estimate_unplaced(const Request& request) {
  if (!sums_of(request.rop) || !request.graph.tensor(request.rop.inputs[1]).data) return std::nullopt;
  for (const TensorId id : {request.rop.inputs[0], request.rop.outputs[0]}) {
    const Tensor& tensor = request.graph.tensor(id);
    if (tensor.shape.size() != 4 || element_count(tensor.shape) == 0 || tensor.dtype != DType::f32) return std::nullopt;
  }
  const ShapedVDevice& d = request.vdevice;
  ROperator rop = request.rop;
  const Graph alone = placed_alone(request.graph, rop);
  const double us = least_us({alone, rop, d, request.precision}),
               without_us = least_us({alone, plain_product(alone, rop), d, request.precision});
  if (std::isinf(us) || !(us <= without_us + d.cost("staged_conv.sums_most_us"))) return std::nullopt;
  return Estimate{us};
}

}  // namespace

Family staged_conv() {
  return {"staged_conv", list_candidates, pack, accesses, estimate_unplaced, Narrowed::computes, /*takes_sums=*/true, /*takes_bytes=*/true};
}

}  // namespace tamp::kernels
