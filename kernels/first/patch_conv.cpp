// Host side of patch_conv.cuh, patch_normalize.cuh and patch_quantised.cuh: the packed weights, what the candidates cost, and what a rTask
// touches. rTask t is
// ((n_block * images + image) * tiles_h + tile_y) * tiles_w + tile_x, so that the rTasks of one ring block follow each other.
#include "kernels/first/patch_conv.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "compiler/ir/fused.h"
#include "compiler/support/error.h"
#include "kernels/args.h"
#include "kernels/first/patch_conv_plan.h"
#include "kernels/tile/product_phases.h"
#include "kernels/vectors.h"

namespace tamp::kernels {
namespace {

constexpr int64_t kMostChannels = 4;  // of the input; with more channels implicit_gemm, which gathers vectors of channels, is better

constexpr ConfigField<PatchPlan> kConfig[] = {{"m_tiles", &PatchPlan::m_tiles},
                                              {"n_tiles", &PatchPlan::n_tiles},
                                              {"warps_m", &PatchPlan::warps_m},
                                              {"warps_k", &PatchPlan::warps_k},
                                              {"cell", &PatchPlan::cell},
                                              {"plain", &PatchPlan::plain},
                                              {"tile_h", &PatchPlan::tile_h},
                                              {"tile_w", &PatchPlan::tile_w},
                                              {"pitch", &PatchPlan::pitch},
                                              {"chunk_steps", &PatchPlan::chunk_steps},
                                              {"part_pixels", &PatchPlan::part_pixels}};
PatchPlan config_of(const RKernel& rkernel) { return from_config(rkernel, kConfig); }

// The steps of a convolution whose pixels are normalised along their channels: Conv, Transpose to rows, and Normalize, or, with the pixels
// in another order, Conv, Transpose, Reshapes to a matrix, and Normalize of rows by a table. Else none.
std::optional<FusedView> normalised_pixels(const ROperator& rop) {
  const std::optional<FusedView> steps = FusedView::of(rop);
  if (!steps || steps->count() < 3 || !steps->as<Conv>(0) || !steps->as<Transpose>(1)) return std::nullopt;
  const size_t last = steps->count() - 1;
  for (size_t i = 1; i <= last; ++i) {
    if (!steps->feeds(i - 1, i) || (i > 1 && i < last && !steps->as<Reshape>(i))) return std::nullopt;
  }
  const Epilogue& epilogue = steps->step(0).epilogue;
  const Graph& body = steps->body();
  const Shape &map = body.tensor(steps->step(0).outputs[0]).shape, &rows = body.tensor(body.outputs[0]).shape;
  const Normalize* const normalize = steps->as<Normalize>(last);
  const bool is_plain = !epilogue.residual.valid() && epilogue.activation == Activation::none;
  const bool is_by_table = steps->input(last, kNormalizeRows).valid();
  if (!normalize || !is_plain || map.size() != 4 || rows.size() != (is_by_table ? 2 : 4)) return std::nullopt;
  const bool is_of_pixels = steps->as<Transpose>(1)->perm == std::vector<int64_t>{0, 2, 3, 1} && rows.back() == map[1] &&
                            element_count(rows) == element_count(map) &&
                            normalize->axes == std::vector<int64_t>{static_cast<int64_t>(rows.size()) - 1};
  return is_of_pixels ? steps : std::nullopt;
}

// The Conv without the normalisation behind it, or the quantisation in front of it; else the rOperator.
ROperator plain_conv(const Graph& graph, const ROperator& rop) {
  if (const std::optional<QuantisedPatches> quantised = any_quantised_patches_of(graph, rop)) return quantised->steps.alone(1);
  const std::optional<FusedView> steps = normalised_pixels(rop);
  return steps ? steps->alone(0) : rop;
}

// Of normalised pixels: the convolution into the rows, which are a map whose channels lie side by side.
std::optional<Product> patch_product_of(const Graph& graph, const ROperator& rop) {
  if (const std::optional<QuantisedPatches> quantised = any_quantised_patches_of(graph, rop))
    return product_of_quantised(graph, rop, quantised->steps);
  const std::optional<FusedView> steps = normalised_pixels(rop);
  if (!steps) return product_of(graph, rop, Activations::narrow);
  Graph alone = steps->body();
  const ROperator& conv = alone.rops[0];
  for (const TensorId id : reads_of(conv)) alone.tensor(id) = graph.tensor(steps->outside(id));
  const Tensor& rows = graph.tensor(rop.outputs[0]);
  Tensor& map = alone.tensor(conv.outputs[0]);
  map.dtype = rows.dtype;
  map.place = rows.place;
  std::vector<int64_t> strides = rows.place.strides;
  if (strides.size() == 2) strides = {map.shape[2] * map.shape[3] * strides[0], map.shape[3] * strides[0], strides[0], strides[1]};
  if (strides.size() == 4) map.place.strides = {strides[0], strides[3], strides[1], strides[2]};
  std::optional<Product> p = product_of(alone, conv, Activations::narrow);
  if (!p) return std::nullopt;
  p->in = steps->outside(p->in);
  p->weights = steps->outside(p->weights);
  p->epilogue_bias = steps->outside(p->epilogue_bias);
  p->out = rop.outputs[0];
  return p;
}

int64_t tiles_of_image(const Product& p, const PatchPlan& c) { return patch_tiles(p, c, 0) * patch_tiles(p, c, 1); }

// --- the order of pixels ------------------------------------------------------------------------------------------------

// The table by which pixels are put into another order; none where they are not.
TensorId order_of(const ROperator& rop) {
  const std::optional<FusedView> steps = normalised_pixels(rop);
  return steps ? steps->input(steps->count() - 1, kNormalizeRows) : TensorId();
}

// What the digits of h and those of w add to a pixel's place in its image (rk::place_of_digits), in pixels.
struct PixelSteps {
  std::array<int64_t, 4> h{}, w{};
  static int64_t sum(int64_t v, const std::array<int64_t, 4>& steps) {
    return (v & 1) * steps[0] + (v >> 1 & 1) * steps[1] + (v >> 2 & 1) * steps[2] + (v >> 3) * steps[3];
  }
  int64_t place(int64_t at_h, int64_t at_w) const { return sum(at_h, h) + sum(at_w, w); }
};

// None where the order is another one.
std::optional<PixelSteps> steps_of_order(const Graph& graph, const ROperator& rop, const Product& p) {
  const int64_t height = p.pixels[1], width = p.pixels[2], of_image = height * width, count = p.pixels[0] * of_image;
  const Tensor& pixels = graph.tensor(order_of(rop));
  if (pixels.role != Role::constant) return std::nullopt;
  const int64_t* const order = i64_data(pixels);
  std::vector<int64_t> places(static_cast<size_t>(count), -1);
  for (int64_t i = 0; i < count; ++i) {
    const int64_t from = order[i];
    if (from < 0 || from >= count) return std::nullopt;
    places[static_cast<size_t>(from)] = i;
  }
  PixelSteps steps;
  for (size_t digit = 0; digit < steps.h.size(); ++digit) {
    const int64_t at = int64_t{1} << digit;
    if (at < height) steps.h[digit] = places[static_cast<size_t>(at * width)];
    if (at < width) steps.w[digit] = places[static_cast<size_t>(at)];
  }
  for (int64_t i = 0; i < count; ++i) {
    const int64_t image = i / of_image, of_its = i % of_image;
    if (places[static_cast<size_t>(i)] != image * of_image + steps.place(of_its / width, of_its % width)) return std::nullopt;
  }
  return steps;
}

// Numbers of the rKernel, since they are found by a walk over all pixels, and each rTask's accesses ask for them.
void add_steps(const PixelSteps& steps, RKernel& rkernel) {
  for (size_t digit = 0; digit < steps.h.size(); ++digit) {
    rkernel.config.emplace_back(fmt::format("step_h{}", digit), steps.h[digit]);
    rkernel.config.emplace_back(fmt::format("step_w{}", digit), steps.w[digit]);
  }
}
PixelSteps steps_of(const RKernel& rkernel) {
  PixelSteps steps;
  for (size_t digit = 0; digit < steps.h.size(); ++digit) {
    steps.h[digit] = rkernel.config_value(fmt::format("step_h{}", digit));
    steps.w[digit] = rkernel.config_value(fmt::format("step_w{}", digit));
  }
  return steps;
}

bool lie_in_rows(const Product& p) {
  return p.out_strides[2] == p.pixels[2] * p.out_strides[3] && (p.pixels[0] == 1 || p.out_strides[0] == p.pixels[1] * p.out_strides[2]);
}

// --- packed data: table and weights of every step, bias -----------------------------------------------------------------

// What one k stands for: a tap of one channel, and which share of the tap's weight it has.
struct Slot {
  int64_t channel = 0, h = 0, w = 0;
  float share = 1;
  bool is_tap_of(const Slot& s) const { return channel == s.channel && h == s.h && w == s.w; }
};

// Padding of a row of the filter repeats the row's last column; padding of the last step repeats the 4 slots before. A tap that comes
// twice or more often shares its weight by powers of two, so that the shares are exact: a row of 3 columns is slots 0, 1, 2, 2 with
// shares 1, 1, 1/2, 1/2.
std::vector<Slot> slots_of(const Product& p) {
  std::vector<Slot> slots;
  for (int64_t channel = 0; channel < p.in_channels; ++channel) {
    for (int64_t h = 0; h < p.kernel[0]; ++h) {
      for (int64_t w = 0; w < ceil_div(p.kernel[1], kPatchGranule) * kPatchGranule; ++w)
        slots.push_back({channel, h, std::min(w, p.kernel[1] - 1)});
    }
  }
  while (slots.size() % kPatchStepK != 0) {
    const Slot before = slots[slots.size() - kPatchGranule];
    slots.push_back(before);
  }
  // Copies of a tap are at most 8 slots apart.
  for (size_t i = 0; i < slots.size(); ++i) {
    for (size_t j = i + 1; j < std::min(slots.size(), i + kPatchStepK); ++j) {
      if (!slots[j].is_tap_of(slots[i])) continue;
      slots[i].share /= 2;
      slots[j].share = slots[i].share;
      break;
    }
  }
  return slots;
}

// Where the weight of channel `m` of a block for k of a step is in the step's image: operand A of mma_tf32, lane by lane.
int64_t index_in_step(const PatchPlan& c, int64_t m, int64_t k) {
  const int64_t warp = m / (16 * c.m_tiles), in_warp = m % (16 * c.m_tiles), pair = in_warp / 32;
  const bool half = pair == c.m_tiles / 2;  // rk::PatchProduct::store
  const int64_t in_pair = in_warp % 32, row = half ? in_pair / 2 : in_pair / 4;
  const int64_t tile = 2 * pair + (half ? 0 : in_pair % 4 / 2), upper = in_pair % 2;
  return ((warp * c.m_tiles + tile) * 32 + row * 4 + k % 4) * 4 + k / 4 * 2 + upper;
}

// `scales`: what the channels' weights are divided by; none where they are not.
void pack_step(const float* data, const Product& p, const PatchPlan& c, int64_t block, const Slot* slots, const std::vector<float>& scales,
               std::byte* table, float* weights) {
  for (int64_t k = 0; k < kPatchStepK; ++k) {
    const Slot& slot = slots[k];
    const int64_t row = slot.channel * patch_extent(p, 0, c.tile_h) + slot.h * p.dilation[0];
    const auto bytes = static_cast<int32_t>((row * c.pitch + slot.w * p.dilation[1]) * 4);
    std::memcpy(table + k % 4 * 8 + k / 4 * 4, &bytes, 4);
    for (int64_t m = 0; m < std::min(c.block(), p.channels - block * c.block()); ++m) {
      const int64_t at = (slot.h * p.kernel[1] + slot.w) * p.in_channels + slot.channel;
      const float weight = weight_at(data, p, 0, block * c.block() + m, at);
      const float whole = scales.empty() ? weight : std::rint(weight / scales[static_cast<size_t>(block * c.block() + m)]);
      weights[index_in_step(c, m, k)] = round_to_tf32(whole) * slot.share;
    }
  }
}

int64_t ring_bytes(const Product& p, const PatchPlan& c) {
  return patch_blocks(p, c) * patch_chunks(p, c) * c.chunk_steps * c.step_bytes();
}

int64_t bias_bytes(const Product& p, const PatchPlan& c) { return patch_blocks(p, c) * c.block() * 4; }

// The steps of which the weights of a quantised convolution are whole multiples; none of others.
std::vector<float> whole_scales(const Graph& graph, const ROperator& rop, const Product& p) {
  if (!any_quantised_patches_of(graph, rop)) return {};
  return known(byte_scales_of(f32_data(graph.tensor(p.weights)), p), "steps of the weights", rop);
}

// The bias, and behind it the steps of whole weights, or what a normalisation multiplies by and adds: one of each for every channel, padded
// to whole blocks.
std::vector<float> channel_values(const Graph& graph, const ROperator& rop, const Product& p, const PatchPlan& c) {
  const auto padded = static_cast<size_t>(bias_bytes(p, c) / 4);
  std::vector<float> values = bias_of(graph, p);
  values.resize(padded, 0.0F);
  const std::vector<float> scales = whole_scales(graph, rop, p);
  values.insert(values.end(), scales.begin(), scales.end());
  values.resize(values.size() + (scales.empty() ? 0 : padded - scales.size()), 0.0F);
  const std::optional<FusedView> steps = normalised_pixels(rop);
  if (!steps) return values;
  for (const size_t factor : {1, 2}) {
    std::vector<float> of_channels(padded, factor == 1 ? 1.0F : 0.0F);
    const TensorId id = steps->input(steps->count() - 1, factor);
    if (id.valid()) std::copy_n(f32_data(graph.tensor(id)), p.channels, of_channels.begin());
    values.insert(values.end(), of_channels.begin(), of_channels.end());
  }
  return values;
}

// The numbers of a table behind, as they are stored.
std::vector<float> table_of(const Graph& graph, const ROperator& rop, const Product& p) {
  const std::optional<QuantisedPatches> quantised = any_quantised_patches_of(graph, rop);
  if (!quantised || !quantised->lookup.table.valid()) return {};
  const Tensor& table = graph.tensor(quantised->lookup.table);
  std::vector<float> numbers(f32_data(table), f32_data(table) + element_count(table.shape));
  for (float& number : numbers) number -= static_cast<float>(low_of(graph, p.out));
  return numbers;
}

Bytes pack(const Graph& graph, const ROperator& rop, const RKernel& rkernel, int) {
  const Product p = known(patch_product_of(graph, rop), "patch_conv", rop);
  const PatchPlan c = config_of(rkernel);
  const std::vector<Slot> slots = slots_of(p);
  const float* const data = f32_data(graph.tensor(p.weights));
  const std::vector<float> of_channels = channel_values(graph, rop, p, c);
  const std::vector<float> scales = whole_scales(graph, rop, p), table = table_of(graph, rop, p);
  Bytes bytes(static_cast<size_t>(ring_bytes(p, c)) + (of_channels.size() + table.size()) * 4);
  for (int64_t block = 0; block < patch_blocks(p, c); ++block) {
    for (int64_t s = 0; s < patch_steps(p); ++s) {
      std::byte* const chunk = bytes.data() + (block * patch_chunks(p, c) + s / c.chunk_steps) * c.chunk_steps * c.step_bytes();
      const int64_t in_chunk = s % c.chunk_steps;
      std::byte* const weights = chunk + c.chunk_steps * kPatchTableBytes + in_chunk * (c.step_bytes() - kPatchTableBytes);
      pack_step(data, p, c, block, &slots[static_cast<size_t>(s * kPatchStepK)], scales, chunk + in_chunk * kPatchTableBytes,
                reinterpret_cast<float*>(weights));
    }
  }
  std::memcpy(bytes.data() + ring_bytes(p, c), of_channels.data(), of_channels.size() * 4);
  if (!table.empty()) std::memcpy(bytes.data() + bytes.size() - table.size() * 4, table.data(), table.size() * 4);
  return bytes;
}

// --- candidates --------------------------------------------------------------------------------------------------------

// Whether 4 channels of the output are one aligned access, apart from the last ones if channels are no multiple of 4.
bool has_vector_outputs(const Graph& graph, const Product& p) { return has_vector_channels(graph.tensor(p.out), p.out_strides, 4); }

// Whether the short epilogue (PLAIN) will do.
bool is_plain(const Graph& graph, const ROperator& rop, const Product& p) {
  const Activation a = rop.epilogue.activation;
  return !p.residual.valid() && (a == Activation::none || a == Activation::relu || a == Activation::clip) && has_vector_outputs(graph, p);
}

ArgValue epilogue(const ROperator& rop, const Product& p, const PatchPlan& c) {
  Epilogue e = rop.epilogue;
  if (c.plain != 0 && e.activation != Activation::clip) {
    e.a = e.activation == Activation::relu ? 0 : -std::numeric_limits<float>::infinity();
    e.b = std::numeric_limits<float>::infinity();
  }
  return epilogue_arg(e, ArgValue{PackedArg{ring_bytes(p, c)}}, tensor_arg(p.residual), to_vector(p.residual_strides),
                      p.residual_after_activation);
}

void set_args(const Request& request, const ROperator& conv, const Product& p, const PatchPlan& c, Phase& phase) {
  add_args(phase, {{"in", arg(TensorArg{p.in})}, {"out", arg(TensorArg{p.out})}, {"epilogue", epilogue(conv, p, c)}});
  add_map_args(p, c.tile_h, c.tile_w, phase);
  add_args(phase, {{"rows", arg(patch_rows(p, c))},
                   {"patch_h", arg(patch_extent(p, 0, c.tile_h))},
                   {"pitch", arg(c.pitch)},
                   {"columns_copied", arg(patch_cells(p, c) * c.cell)},
                   {"pass_rows", arg(request.vdevice.compute_threads >> patch_row_shift(p, c))},
                   {"row_shift", arg(patch_row_shift(p, c))},
                   {"part_pixels", arg(c.part_pixels)},
                   {"steps", arg(patch_steps(p))},
                   {"chunk_steps", arg(c.chunk_steps)},
                   {"vector_out", arg(int64_t{has_vector_outputs(request.graph, p)})},
                   {"vector_residual", arg(int64_t{loads_residual_vectors(request.graph, p)})},
                   {"tiles_w", divisor_arg(patch_tiles(p, c, 1))},
                   {"tiles_h", divisor_arg(patch_tiles(p, c, 0))},
                   {"images", divisor_arg(p.pixels[0])},
                   {"columns", divisor_arg(c.tile_w)}});
}

// `values`: the type of the results and the residual.
Cost cost_of(const ShapedVDevice& vdevice, const Product& p, const PatchPlan& c, DType values) {
  const double products = elements(patch_steps(p), c.warps_m * c.m_tiles * c.warps_n() * c.n_tiles);
  Cost cost;
  cost.flops = 2 * 16 * 8 * 8 * products;
  cost.tensor_core = true;
  cost.efficiency = patch_efficiency(vdevice, p, c);
  const double outputs = elements(c.tile_h * c.tile_w, std::min(c.block(), p.channels));
  const double stored = static_cast<double>(bytes_of(values)) * outputs * (p.residual.valid() ? 2 : 1);
  const double summed = 4 * elements(c.most_pixels() * c.block(), c.warps_k - 1);
  const double patch = 4 * elements(patch_rows(p, c), patch_cells(p, c) * c.cell);
  cost.activation_bytes = patch + stored;
  // The results are stored after all products, and before that the sums of the groups of warps are added.
  const double bytes_per_us = vdevice.l2_gb_per_s * 1e3 / static_cast<double>(vdevice.veus());
  cost.latency_us = patch_start_us(vdevice) + stored / (vdevice.cost("patch_conv.store_l2_factor") * bytes_per_us) +
                    summed / (vdevice.cost("patch_conv.sum_l2_factor") * bytes_per_us);
  cost.weight_bytes = static_cast<double>(patch_steps(p) * c.step_bytes());
  return cost;
}

// Makes the phase one of patch_normalize.
void add_normalisation(const Request& request, const Normalize& op, const Product& p, const PatchPlan& c,
                       const std::optional<PixelSteps>& steps, Phase& phase) {
  const ShapedVDevice& vdevice = request.vdevice;
  const std::array<int64_t, 4> none{};
  const auto in_elements = [&](std::array<int64_t, 4> of) {
    for (int64_t& step : of) step *= p.out_strides[3];
    return array_arg(to_vector(of));
  };
  set_body(phase, "kernels/first/patch_normalize.cuh", "rk::patch_normalize", "rk::PatchNormalizeArgs");
  const auto plain = std::find_if(phase.template_args.begin(), phase.template_args.end(), [](const auto& a) { return a.first == "PLAIN"; });
  *plain = {"CENTRED", op.centered ? "true" : "false"};
  phase.args = {{"conv", struct_arg(std::move(phase.args))},
                {"scale", ArgValue{PackedArg{ring_bytes(p, c) + bias_bytes(p, c)}}},
                {"shift", ArgValue{PackedArg{ring_bytes(p, c) + 2 * bias_bytes(p, c)}}},
                {"inverse_channels", float_arg(1.0F / static_cast<float>(p.channels))},
                {"epsilon", float_arg(op.epsilon)},
                {"h_steps", in_elements(steps ? steps->h : none)},
                {"w_steps", in_elements(steps ? steps->w : none)}};
  if (steps) {
    if (!is_narrow(request.graph.tensor(p.out).dtype)) phase.template_args.emplace_back("Out", "float");
    phase.template_args.emplace_back("ORDERED", "true");
  }
  phase.cost.latency_us += vdevice.cost("patch_conv.normalize_cycles") / (vdevice.clock_ghz * 1e3);
}

// Makes the phase one of patch_quantised.
void add_quantisation(const Request& request, const QuantisedPatches& quantised, const Product& p, const PatchPlan& c, Phase& phase) {
  const bool has_table = quantised.lookup.table.valid();
  const DType out = request.graph.tensor(p.out).dtype;
  const ElementwiseStep& round = quantised.steps.as<Elementwise>(0)->steps[1];
  set_body(phase, is_whole_byte(out) ? "kernels/first/patch_quantised_bytes.cuh" : "kernels/first/patch_quantised.cuh",
           "rk::patch_quantised", "rk::PatchQuantisedArgs");
  const auto plain = std::find_if(phase.template_args.begin(), phase.template_args.end(), [](const auto& a) { return a.first == "PLAIN"; });
  *plain = {"kTable", has_table ? "true" : "false"};
  phase.args = {{"conv", struct_arg(std::move(phase.args))},
                {"scale", ArgValue{PackedArg{ring_bytes(p, c) + bias_bytes(p, c)}}},
                {"table", has_table ? ArgValue{PackedArg{ring_bytes(p, c) + 2 * bias_bytes(p, c)}} : null_arg()},
                {"in_step", float_arg(*f32_data(request.graph.tensor(quantised.steps.input(0, 1))))},
                {"in_low", float_arg(round.a)},
                {"in_high", float_arg(round.b)},
                {"out_low", float_arg(static_cast<float>(low_of(request.graph, p.out)))}};
}

// Whether patch_quantised takes the convolution.
bool takes_quantised(const Request& request, const QuantisedPatches& quantised, const Product& p) {
  const Epilogue& e = quantised.steps.step(1).epilogue;
  if (e.activation != Activation::rounded || !rounded_range(e) || e.residual.valid() || e.sum) return false;
  const bool has_table = quantised.lookup.table.valid();
  if (has_table && quantised.lookup.low != rounded_range(e)->low) return false;
  // As of patch_strip: else bytes that this body alone takes would keep that one from batches.
  if (!has_table && low_of(request.graph, p.out) != 0) return false;
  return has_vector_outputs(request.graph, p) && is_plain_values_or_bytes(request.graph.tensor(p.out)) &&
         byte_scales_of(f32_data(request.graph.tensor(p.weights)), p).has_value();
}

RKernel rkernel_of(const Request& request, const Product& p, const PatchPlan& c, const std::optional<PixelSteps>& steps) {
  const std::optional<FusedView> normalized = normalised_pixels(request.rop);
  const std::optional<QuantisedPatches> quantised = any_quantised_patches_of(request.graph, request.rop);
  const ROperator conv = plain_conv(request.graph, request.rop);
  Phase phase = body_phase("kernels/first/patch_conv.cuh", "rk::patch_conv", "rk::PatchConvArgs");
  phase.template_args = {{"M_TILES", std::to_string(c.m_tiles)}, {"N_TILES", std::to_string(c.n_tiles)},
                         {"WARPS_M", std::to_string(c.warps_m)}, {"WARPS_K", std::to_string(c.warps_k)},
                         {"CELL", std::to_string(c.cell)},       {"PLAIN", c.plain != 0 ? "true" : "false"}};
  const DType values = request.graph.tensor(p.out).dtype;
  if (values != DType::f32) phase.template_args.emplace_back("Out", value_type(values));
  set_args(request, conv, p, c, phase);
  phase.rtasks = patch_blocks(p, c) * p.pixels[0] * tiles_of_image(p, c);
  phase.work_bytes = patch_work_bytes(p, c);
  phase.ring = {c.chunk_steps * c.step_bytes(), patch_chunks(p, c), p.pixels[0] * tiles_of_image(p, c), patch_blocks(p, c)};
  phase.cost = cost_of(request.vdevice, p, c, values);
  if (normalized) add_normalisation(request, *normalized->as<Normalize>(normalized->count() - 1), p, c, steps, phase);
  if (quantised) add_quantisation(request, *quantised, p, c, phase);
  const std::string name =
      fmt::format("{}<{}x{} pixels, {} channels{}{}>",
                  normalized  ? "patch_normalize"
                  : quantised ? "patch_quantised"
                              : "patch_conv",
                  c.tile_h, c.tile_w, c.block(), c.warps_k > 1 ? fmt::format(", k by {}", c.warps_k) : "", steps ? ", ordered" : "");
  RKernel rkernel = one_phase(name, to_config(c, kConfig), phase);
  if (steps) add_steps(*steps, rkernel);
  return rkernel;
}

std::vector<RKernel> list_candidates(const Request& request) {
  const std::optional<FusedView> steps = normalised_pixels(request.rop);
  const std::optional<QuantisedPatches> quantised = any_quantised_patches_of(request.graph, request.rop);
  const bool normalizes = steps.has_value();
  if (!std::holds_alternative<Conv>(request.rop.attrs) && !normalizes && !quantised) return {};
  const ShapedVDevice& vdevice = request.vdevice;
  if (request.precision == Precision::fp32 || !vdevice.tf32) return {};
  const std::optional<Product> p = patch_product_of(request.graph, request.rop);
  if (!p || p->groups != 1 || p->in_channels > kMostChannels || is_narrow(request.graph.tensor(p->in).dtype)) return {};
  if (quantised ? !takes_quantised(request, *quantised, *p) : is_whole_byte(request.graph.tensor(p->out).dtype)) return {};
  if (normalizes && (p->channels % 4 != 0 || !has_vector_outputs(request.graph, *p))) return {};
  for (const size_t factor : {1, 2}) {
    const TensorId id = normalizes ? steps->input(steps->count() - 1, factor) : TensorId();
    if (!id.valid()) continue;
    const Tensor& values = request.graph.tensor(id);
    if (values.role != Role::constant || values.dtype != DType::f32 || element_count(values.shape) != p->channels) return {};
  }
  std::optional<PixelSteps> pixel_steps;
  if (order_of(request.rop).valid()) {
    if (lie_in_rows(*p)) pixel_steps = steps_of_order(request.graph, request.rop, *p);
    if (!pixel_steps) return {};
  }
  std::vector<RKernel> rkernels;
  for (PatchPlan& plan : patch_plans(vdevice, *p, has_vector_rows(request.graph, *p) ? 4 : 1)) {
    if (normalizes && patch_blocks(*p, plan) > 1) continue;  // a pixel's channels are in several rTasks
    plan.plain = !quantised && is_plain(request.graph, plain_conv(request.graph, request.rop), *p) ? 1 : 0;
    rkernels.push_back(rkernel_of(request, *p, plan, pixel_steps));
  }
  return rkernels;
}

// --- accesses ----------------------------------------------------------------------------------------------------------

// All channels of pixels that lie in the rOperator's order, neighbours together.
void append_ordered(const Graph& graph, const PixelSteps& steps, const Product& p, const PixelBox& low, const PixelBox& high,
                    std::vector<Region>& regions) {
  std::vector<int64_t> places;
  for (int64_t h = low[1]; h < high[1]; ++h) {
    for (int64_t w = low[2]; w < high[2]; ++w) places.push_back(low[0] * p.pixels[1] * p.pixels[2] + steps.place(h, w));
  }
  std::sort(places.begin(), places.end());
  const int64_t pitch = p.out_strides[3];
  for (size_t i = 0; i < places.size();) {
    size_t end = i + 1;
    while (end < places.size() && places[end] == places[end - 1] + 1) ++end;
    regions.push_back({p.out, {graph.tensor(p.out).place.offset + places[i] * pitch, static_cast<int64_t>(end - i), pitch, p.channels}});
    i = end;
  }
}

void accesses(const Graph& graph, const ROperator& rop, const RKernel& rkernel, int, int64_t index, Accesses& out) {
  const Product p = known(patch_product_of(graph, rop), "patch_conv", rop);
  const PatchPlan c = config_of(rkernel);
  const int64_t tile_x = index % patch_tiles(p, c, 1), tile_y = index / patch_tiles(p, c, 1) % patch_tiles(p, c, 0);
  const int64_t image = index / tiles_of_image(p, c) % p.pixels[0], n_block = index / tiles_of_image(p, c) / p.pixels[0];
  const int64_t oh = tile_y * c.tile_h, ow = tile_x * c.tile_w, channel = n_block * c.block();
  const PixelBox low = {image, oh, ow, channel};
  const PixelBox high = {image + 1, std::min(oh + c.tile_h, p.pixels[1]), std::min(ow + c.tile_w, p.pixels[2]),
                         std::min(channel + c.block(), p.channels)};
  if (order_of(rop).valid())
    append_ordered(graph, steps_of(rkernel), p, low, high, out.writes);
  else
    append_pixels(graph, p.out, p.out_strides, low, high, out.writes);
  PixelBox read = high;
  if (loads_residual_vectors(graph, p)) read[3] = whole_vectors(read[3]);
  if (p.residual.valid()) append_pixels(graph, p.residual, p.residual_strides, low, read, out.reads);

  const int64_t y = oh * p.stride[0] - p.pad[0], x = (ow * p.stride[1] - p.pad[1]) & ~(c.cell - 1);
  const int64_t end_y = y + patch_extent(p, 0, c.tile_h), end_x = x + patch_cells(p, c) * c.cell;
  append_pixels(graph, p.in, p.in_strides, {image, std::max<int64_t>(y, 0), std::max<int64_t>(x, 0), 0},
                {image + 1, std::min(end_y, p.in_extent[0]), std::min(end_x, p.in_extent[1]), p.in_channels}, out.reads);
}

}  // namespace

Family patch_conv() {
  return {"patch_conv", list_candidates, pack, accesses, nullptr, Narrowed::computes, /*takes_sums=*/false, /*takes_bytes=*/true};
}

}  // namespace tamp::kernels
