// Host side of pointwise_pair.cuh. rTask t is block t / tiles of z's channels and tile t % tiles.
#include "kernels/chain/pointwise_pair.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <utility>

#include "compiler/support/error.h"
#include "kernels/args.h"
#include "kernels/chain/numbers.cuh"
#include "kernels/narrow.h"
#include "kernels/tile/numbers.cuh"
#include "kernels/tile/product.h"
#include "kernels/tile/product_phases.h"

namespace tamp::kernels {
namespace {

constexpr int64_t kWarps = rk::kComputeWarps;
constexpr int64_t kMostBlocks = 32;

// --- the rOperator -----------------------------------------------------------------------------------------------------

struct Pair {
  std::array<Product, 2> product;  // weights and bias of both; in and out are not used
  std::array<Epilogue, 2> epilogue;
  TensorId x, y, z, residual;  // y: none where nobody else reads it
  int64_t pixels = 0;
  int64_t x_pixel = 0, y_pixel = 0, z_pixel = 0, residual_pixel = 0;  // elements from a pixel to the next
  bool narrow = false;                                                // x has 16 bits
  DType mid = DType::f32;                                             // of y and of the residual

  int64_t channels(size_t l) const { return product[l].channels; }
  int64_t units(size_t l) const { return ceil_div(product[l].in_channels, narrow ? 16 : 8); }
  int64_t channels_of_box() const { return narrow ? 2 * kBoxChannels : kBoxChannels; }
  int64_t cell() const { return narrow ? 8 : 4; }  // values of 16 bytes
  int64_t boxes(size_t l) const { return ceil_div(units(l), rk::kPairBoxUnits); }
};

// Elements from one pixel to the next, through rows and images, of an [N,C,H,W] tensor; none where they do not lie so, or where channels
// are not whole vectors of four.
std::optional<int64_t> pixel_stride(const Tensor& tensor) {
  const std::vector<int64_t>& strides = tensor.place.strides;
  if (tensor.shape.size() != 4 || (tensor.shape[1] > 1 && strides[1] != 1) || tensor.place.offset % 4 != 0) return std::nullopt;
  int64_t stride = 0, next = 0;
  for (const size_t d : {size_t{3}, size_t{2}, size_t{0}}) {
    if (tensor.shape[d] == 1) continue;
    if (stride != 0 && strides[d] != next) return std::nullopt;
    if (stride == 0) stride = strides[d];
    next = strides[d] * tensor.shape[d];
  }
  if (stride == 0) stride = ceil_div(tensor.shape[1], 8) * 8;  // a single pixel
  return stride % 4 == 0 && stride > 0 ? std::optional(stride) : std::nullopt;
}

Product product_by(const Graph& graph, TensorId weights, TensorId bias) {
  Product p;
  const Shape& shape = graph.tensor(weights).shape;
  p.channels = shape[0];
  p.in_channels = shape[1];
  p.weights = weights;
  p.weight_stride_n = shape[1];
  p.weight_stride_channel = 1;
  p.weight_stride_tap = 1;
  p.epilogue_bias = bias;
  return p;
}

std::optional<Pair> pair_of(const Graph& graph, const ROperator& rop) {
  const std::optional<FusedView> steps = pointwise_pair_steps(rop);
  if (!steps) return std::nullopt;
  Pair p;
  p.x = rop.inputs[0];
  p.z = rop.outputs[0];
  if (rop.outputs.size() > 1) p.y = rop.outputs[1];
  p.residual = steps->residual(0);
  for (const size_t i : {0, 1}) {
    const TensorId weights = steps->input(i, 1), bias = steps->bias(i);
    if (!is_f32_constant(graph, weights) || (bias.valid() && !is_f32_constant(graph, bias))) return std::nullopt;
    p.product[i] = product_by(graph, weights, bias);
    p.epilogue[i] = steps->step(i).epilogue;
  }
  const Tensor& x = graph.tensor(p.x);
  p.narrow = is_narrow(x.dtype);
  p.pixels = element_count(x.shape) / std::max<int64_t>(1, x.shape[1]);
  if (p.pixels == 0 || p.product[0].in_channels == 0) return std::nullopt;
  const std::pair<TensorId, int64_t*> places[] = {{p.x, &p.x_pixel}, {p.y, &p.y_pixel}, {p.z, &p.z_pixel}, {p.residual, &p.residual_pixel}};
  for (const auto& [id, stride] : places) {
    if (!id.valid()) continue;
    const Tensor& tensor = graph.tensor(id);
    const std::optional<int64_t> found = pixel_stride(tensor);
    if (!found || !is_plain_values(tensor)) return std::nullopt;
    *stride = *found;
  }
  const TensorId of_mid = p.y.valid() ? p.y : p.residual;
  p.mid = graph.tensor(of_mid.valid() ? of_mid : p.x).dtype;
  if (p.residual.valid() && graph.tensor(p.residual).dtype != p.mid) return std::nullopt;
  return p;
}

// --- how it is divided -------------------------------------------------------------------------------------------------

// Everything that pack and accesses need; a RKernel's config holds it.
struct Config {
  int64_t precision = 0;  // Precision of the products
  int64_t nt = 1, blocks = 1;
  int64_t warps_first = 1, warps_second = 1;  // warps on the channels
  int64_t chunk_bytes = 0, boxes_per_chunk = 0;

  int64_t pixels() const { return 8 * nt; }
  int64_t warps_m(size_t l) const { return l == 0 ? warps_first : warps_second; }
  int64_t warps_k(size_t l) const { return static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(kWarps / warps_m(l)))); }
};

constexpr ConfigField<Config> kConfig[] = {{"precision", &Config::precision},
                                           {"nt", &Config::nt},
                                           {"blocks", &Config::blocks},
                                           {"warps_first", &Config::warps_first},
                                           {"warps_second", &Config::warps_second},
                                           {"chunk_bytes", &Config::chunk_bytes},
                                           {"boxes_per_chunk", &Config::boxes_per_chunk}};
Config config_of(const RKernel& rkernel) { return from_config(rkernel, kConfig); }

int64_t tile_bytes(const Pair& p) { return rk::kWarp * (p.narrow ? rk::kStagedNarrow : rk::kStagedTf32).words * 4; }

// One of the two products, as a rTask computes it.
struct Part {
  int64_t channels, warps_m, warps_k, steps, step_bytes, chunk_steps, chunks;
  int64_t padded_channels;  // of all warps
};
// Channels of z of a block: whole vectors.
int64_t block_channels(const Pair& p, const Config& c) { return ceil_div(ceil_div(p.channels(1), c.blocks), 4) * 4; }
Part part_of(const Pair& p, const Config& c, size_t l) {
  Part part{};
  part.channels = l == 0 ? p.channels(0) : block_channels(p, c);
  part.warps_m = c.warps_m(l);
  part.warps_k = c.warps_k(l);
  part.steps = ceil_div(p.units(l), part.warps_k);
  part.step_bytes = part.warps_m * part.warps_k * rk::kPairTiles * tile_bytes(p);
  part.chunk_steps = c.chunk_bytes == 0 ? 0 : c.chunk_bytes / part.step_bytes;
  part.chunks = part.chunk_steps == 0 ? 0 : ceil_div(part.steps, part.chunk_steps);
  part.padded_channels = rk::kPairBlock * part.warps_m;
  return part;
}

int64_t tiles_of(const Pair& p, const Config& c) { return ceil_div(p.pixels, c.pixels()); }
int64_t chunks_of(const Pair& p, const Config& c) { return part_of(p, c, 0).chunks + part_of(p, c, 1).chunks; }
int64_t y_share(const Pair& p, const Config& c) { return ceil_div(ceil_div(p.channels(0), c.blocks), 4) * 4; }
int64_t y_bytes(const Pair& p, const Config& c) { return p.boxes(1) * c.pixels() * InputBoxes::kBoxRowBytes; }
// Factors (tf32 only) and bias of one block of a product.
int64_t constant_bytes(const Pair& p, const Config& c, size_t l) { return part_of(p, c, l).padded_channels * (p.narrow ? 4 : 8); }
int64_t sums_at(const Pair& p, const Config& c) { return y_bytes(p, c) + constant_bytes(p, c, 0) + constant_bytes(p, c, 1); }
// Sums of one product, in shared memory where several warps share the units of a channel: a lane has 2 * nt vectors of 2 * rk::kPairTiles
// sums.
int64_t sum_bytes(const Config& c, size_t l) { return c.warps_k(l) > 1 ? kWarps * rk::kWarp * (2 * c.nt) * (2 * rk::kPairTiles) * 4 : 0; }
bool sums_over_y(const Pair& p, const Config& c) { return sum_bytes(c, 0) == 0 && sum_bytes(c, 1) > 0 && sum_bytes(c, 1) <= y_bytes(p, c); }
int64_t work_bytes(const Pair& p, const Config& c) {
  return sums_at(p, c) + (sums_over_y(p, c) ? 0 : std::max(sum_bytes(c, 0), sum_bytes(c, 1)));
}
int64_t ring_bytes(const Pair& p, const Config& c) { return c.blocks * chunks_of(p, c) * c.chunk_bytes; }

InputBoxes boxes_of(const Pair& p, const Config& c) {
  InputBoxes boxes;
  boxes.tensor = p.x;
  boxes.value_bytes = p.narrow ? 2 : 4;
  boxes.extents = {p.product[0].in_channels, p.pixels, 1, 1};
  boxes.strides = {1, p.x_pixel, ceil_div(p.product[0].in_channels, 8) * 8, ceil_div(p.product[0].in_channels, 8) * 8};
  boxes.box_w = c.pixels();
  boxes.tiles_w = tiles_of(p, c);
  boxes.step_w = c.pixels();
  boxes.n_blocks = c.blocks;
  boxes.group_channels = p.product[0].in_channels;
  boxes.boxes = boxes.boxes_per_split = p.boxes(0);
  boxes.boxes_per_chunk = c.boxes_per_chunk;
  boxes.boxes_per_copy = p.product[0].in_channels % p.channels_of_box() == 0 ? c.boxes_per_chunk : 1;
  return boxes;
}
int64_t input_chunks(const Pair& p, const Config& c) { return ceil_div(p.boxes(0), c.boxes_per_chunk); }

// Cycles of a rTask once its inputs are there, as traced: what it does once, its weights on their way from L2, which bound all but the
// smallest products, and what each further 8 pixels add to the ends of both products.
double cycles_of(const ShapedVDevice& vdevice, const Pair& p, const Config& c) {
  const auto cost = [&](const char* name) { return vdevice.cost(std::string("pointwise_pair.") + name); };
  const double steps = static_cast<double>(part_of(p, c, 0).steps + part_of(p, c, 1).steps);
  return cost("fixed_cycles") + (p.narrow ? 0 : cost("tf32_cycles")) + cost("eight_pixels_cycles") * static_cast<double>(c.nt - 1) +
         cost("step_cycles") * steps + cost("weight_byte_cycles") * static_cast<double>(chunks_of(p, c) * c.chunk_bytes);
}

// On how many warps the channels of a product are: with the fewest steps; of these the fewest bytes of weights.
int64_t choose_warps(const Pair& p, Config c, size_t l) {
  int64_t best = 0;
  std::pair<int64_t, int64_t> least;
  for (int64_t warps = 1; warps <= kWarps; ++warps) {
    (l == 0 ? c.warps_first : c.warps_second) = warps;
    const Part part = part_of(p, c, l);
    if (part.padded_channels < part.channels) continue;
    const std::pair<int64_t, int64_t> cost = {part.steps, part.steps * part.step_bytes};
    if (best == 0 || cost < least) least = cost, best = warps;
  }
  return best;
}

// The size of a chunk with the fewest bytes to copy, a change of chunks counted as 4 KB. `most`: bytes of a stage.
void choose_chunk(const Pair& p, Config& c, int64_t most) {
  Config best = c;
  int64_t least = std::numeric_limits<int64_t>::max();
  for (c.chunk_bytes = 2048; c.chunk_bytes <= most; c.chunk_bytes += 1024) {
    const Part first = part_of(p, c, 0), second = part_of(p, c, 1);
    if (first.chunk_steps == 0 || second.chunk_steps == 0) continue;
    const int64_t chunks = first.chunks + second.chunks, bytes = chunks * (c.chunk_bytes + 4096);
    if (bytes < least) least = bytes, best = c;
  }
  c = best;
}

bool choose_boxes(const ShapedVDevice& vdevice, const Pair& p, Config& c) {
  const int64_t box = c.pixels() * InputBoxes::kBoxRowBytes, fits = vdevice.input_stage_bytes / box;
  if (fits == 0) return false;
  c.boxes_per_chunk = std::min(fits, p.boxes(0));
  while (input_chunks(p, c) > 1 && c.boxes_per_chunk * rk::kPairBoxUnits % c.warps_k(0) != 0) --c.boxes_per_chunk;
  return c.boxes_per_chunk > 0;
}

std::optional<Config> config_for(const ShapedVDevice& vdevice, const Pair& p, Config c) {
  const int64_t first = choose_warps(p, c, 0), second = choose_warps(p, c, 1);
  if (first == 0 || second == 0) return std::nullopt;
  c.warps_first = first, c.warps_second = second;
  if (!choose_boxes(vdevice, p, c) || work_bytes(p, c) > vdevice.work_beside_inputs()) return std::nullopt;
  choose_chunk(p, c, vdevice.weight_stage_bytes);
  if (c.chunk_bytes == 0) return std::nullopt;
  // No block is empty.
  if ((c.blocks - 1) * block_channels(p, c) >= p.channels(1)) return std::nullopt;
  return c;
}

// --- packed data: ring blocks, then the constants ------------------------------------------------------------------------

// The weights of product l for output channels from `first_n` on, as pointwise_pair.cuh wants them.
void pack_part(const float* data, const Pair& p, const Config& c, size_t l, int64_t first_n, const std::vector<float>& scales,
               std::byte* to) {
  const Part part = part_of(p, c, l);
  const Product& product = p.product[l];
  const int64_t unit_channels = p.narrow ? 16 : 8, last_n = std::min(product.channels, first_n + part.channels);
  const auto weight = [&](int64_t n, int64_t k) {
    return n < last_n && k < product.in_channels ? data[n * product.in_channels + k] : 0.0F;
  };
  for (int64_t step = 0; step < part.steps; ++step) {
    std::byte* const of_step = to + step / part.chunk_steps * c.chunk_bytes + step % part.chunk_steps * part.step_bytes;
    for (int64_t warp = 0; warp < part.warps_m * part.warps_k; ++warp) {
      std::byte* const of_warp = of_step + warp * rk::kPairTiles * tile_bytes(p);
      const int64_t m = warp % part.warps_m, unit = step * part.warps_k + warp / part.warps_m;
      for (int64_t row = 0; row < rk::kPairBlock; ++row) {  // of both tiles
        const int64_t tile = row / 16, g = row % 8, e = row % 16 / 8;
        const int64_t n = first_n + m * rk::kPairBlock + rk::dealt_channel<int64_t>(rk::kPairTiles, tile, row % 16);
        for (int64_t t = 0; t < 4; ++t) {
          const int64_t lane = 4 * g + t;
          for (int64_t half = 0; half < 2; ++half) {
            const int64_t i = e + 2 * half;
            if (p.narrow) {
              const int64_t k = unit * unit_channels + 2 * t + 8 * half;
              const uint32_t word = narrow_pair(static_cast<Precision>(c.precision), weight(n, k), weight(n, k + 1));
              std::memcpy(of_warp + ((tile * rk::kWarp + lane) * 4 + i) * 4, &word, 4);
            } else {
              const float value = weight(n, unit * unit_channels + t + 4 * half);
              const uint16_t word = n < last_n ? half_of(value / scales[static_cast<size_t>(n)]) : uint16_t{0};
              std::memcpy(of_warp + ((lane * rk::kPairTiles + tile) * 4 + i) * 2, &word, 2);
            }
          }
        }
      }
    }
  }
}

Bytes pack(const Graph& graph, const ROperator& rop, const RKernel& rkernel, int) {
  const Pair p = *pair_of(graph, rop);
  const Config c = config_of(rkernel);
  Bytes bytes(static_cast<size_t>(ring_bytes(p, c) + constant_bytes(p, c, 0) + c.blocks * constant_bytes(p, c, 1)));
  for (size_t l = 0; l < 2; ++l) {
    const Part part = part_of(p, c, l);
    const float* const data = f32_data(graph.tensor(p.product[l].weights));
    const std::vector<float> scales = scales_of(data, p.product[l]), bias = bias_of(graph, p.product[l]);
    for (int64_t block = 0; block < c.blocks; ++block) {
      const int64_t first = l == 0 ? 0 : block * part.channels;
      std::byte* const ring =
          bytes.data() + block * chunks_of(p, c) * c.chunk_bytes + (l == 0 ? 0 : part_of(p, c, 0).chunks * c.chunk_bytes);
      pack_part(data, p, c, l, first, scales, ring);
      if (l == 0 && block > 0) continue;
      std::byte* const constants =
          bytes.data() + ring_bytes(p, c) + (l == 0 ? 0 : constant_bytes(p, c, 0) + block * constant_bytes(p, c, 1));
      for (int64_t n = 0; n < part.channels && first + n < p.channels(l); ++n) {
        const float scale = scales[static_cast<size_t>(first + n)] * (1 + rk::kTf32Share);
        if (!p.narrow) std::memcpy(constants + n * 4, &scale, 4);
        std::memcpy(constants + ((p.narrow ? 0 : part.padded_channels) + n) * 4, &bias[static_cast<size_t>(first + n)], 4);
      }
    }
  }
  return bytes;
}

// --- candidates --------------------------------------------------------------------------------------------------------

ArgValue product_arg(const Pair& p, const Config& c, size_t l) {
  const Part part = part_of(p, c, l);
  const TensorId out = l == 0 ? p.y : p.z;
  const Epilogue& e = p.epilogue[l];
  const int64_t unit = p.narrow ? 16 : 8;
  return struct_arg({{"out", tensor_arg(out)},
                     {"clip", clip_arg(e, false)},
                     {"activation", activation_arg(e.activation)},
                     {"a", float_arg(e.a)},
                     {"b", float_arg(e.b)},
                     {"out_pixel", arg(l == 0 ? p.y_pixel : p.z_pixel)},
                     {"channels", arg(part.channels)},
                     {"written", arg(l == 0 ? ceil_div(part.channels, unit) * unit : part.channels)},
                     {"warps_m", arg(part.warps_m)},
                     {"warps_k_log2", log2_arg(part.warps_k)},
                     {"units", arg(p.units(l))},
                     {"steps", arg(part.steps)},
                     {"chunk_steps", arg(part.chunk_steps)},
                     {"step_bytes", arg(part.step_bytes)},
                     {"padded", arg(part.padded_channels)}});
}

Phase phase_of(const Request& request, const Pair& p, const Config& c) {
  const auto& [graph, rop, d, precision] = request;
  const Part first = part_of(p, c, 0), second = part_of(p, c, 1);
  Phase phase = body_phase("kernels/chain/pointwise_pair.cuh", "rk::pointwise_pair", "rk::PointwisePairArgs");
  phase.template_args = {{"In", value_type(graph.tensor(p.x).dtype)},
                         {"Mid", value_type(p.mid)},
                         {"Out", value_type(graph.tensor(p.z).dtype)},
                         {"NT", std::to_string(c.nt)}};
  const Activation activation = p.epilogue[1].activation;
  if (activation == Activation::silu || activation == Activation::hard_swish)
    phase.template_args.emplace_back("ACTIVATION", activation == Activation::silu ? "rk::kSilu" : "rk::kHardSwish");
  phase.args = {{"product", ArgValue{ArgList{product_arg(p, c, 0), product_arg(p, c, 1)}}},
                {"residual", tensor_arg(p.residual)},
                {"constants", ArgValue{PackedArg{ring_bytes(p, c)}}},
                {"residual_pixel", arg(p.residual_pixel)},
                {"pixels", arg(p.pixels)},
                {"input_steps", arg(input_chunks(p, c) > 1 ? c.boxes_per_chunk * rk::kPairBoxUnits / first.warps_k : first.steps)},
                {"y_share", arg(y_share(p, c))},
                {"z_channels", arg(p.channels(1))},
                {"constants_at", arg(y_bytes(p, c))},
                {"sums_at", arg(sums_at(p, c))},
                {"sums_over_y", arg(int64_t{sums_over_y(p, c)})},
                {"tiles", divisor_arg(tiles_of(p, c))}};
  phase.rtasks = tiles_of(p, c) * c.blocks;
  phase.work_bytes = work_bytes(p, c);
  phase.ring = {c.chunk_bytes, chunks_of(p, c), tiles_of(p, c), c.blocks};
  phase.boxes = boxes_of(p, c);
  const double pixels = static_cast<double>(c.pixels()), value = static_cast<double>(bytes_of(p.mid)),
               x_bytes = static_cast<double>(p.boxes(0) * phase.boxes->copied_bytes());
  phase.cost.flops =
      2 * pixels * static_cast<double>(first.channels * p.product[0].in_channels + second.channels * p.product[1].in_channels);
  phase.cost.tensor_core = true;
  phase.cost.activation_bytes =
      x_bytes + value * pixels * static_cast<double>((p.residual.valid() ? first.channels : 0) + y_share(p, c) + second.channels);
  phase.cost.weight_bytes = static_cast<double>(chunks_of(p, c) * c.chunk_bytes) / d.cost("pointwise_pair.shared_reads");
  phase.cost.calibrated_cycles = cycles_of(d, p, c);
  return phase;
}

RKernel rkernel_of(const Request& request, const Pair& p, const Config& c) {
  const std::string name = fmt::format("pointwise_pair_{}<{} pixels, {} and {} channels>", name_of(static_cast<Precision>(c.precision)),
                                       c.pixels(), p.channels(0), block_channels(p, c));
  return one_phase(name, to_config(c, kConfig), phase_of(request, p, c));
}

// The precision of the products: x in fp32 is multiplied in tf32, whatever the program's. None where fp16 cannot hold the weights.
std::optional<Precision> precision_of(const Request& request, const Pair& p) {
  if (!p.narrow) return Precision::tf32;
  if (!has_narrow_activations(request.precision)) return std::nullopt;
  const bool is_half = request.graph.tensor(p.x).dtype == DType::f16;
  if (is_half != (request.precision == Precision::fp16)) return std::nullopt;
  for (const Product& product : p.product) {
    const Tensor& weights = request.graph.tensor(product.weights);
    if (is_half && !halves_hold(weights.data)) return std::nullopt;
  }
  return request.precision;
}

std::vector<RKernel> list_candidates(const Request& request) {
  const ShapedVDevice& d = request.vdevice;
  if (request.precision == Precision::fp32 || !d.tf32 || d.input_stages == 0) return {};
  const std::optional<Pair> p = pair_of(request.graph, request.rop);
  if (!p) return {};
  const Tensor& x = request.graph.tensor(p->x);
  if (request.graph.buffers[x.place.buffer.index()].kind != BufferKind::arena || x.place.offset % p->cell() != 0 ||
      p->x_pixel % p->cell() != 0)
    return {};
  const std::optional<Precision> precision = precision_of(request, *p);
  if (!precision) return {};
  std::vector<RKernel> rkernels;
  for (const int64_t nt : {1, 2}) {
    for (int64_t blocks = 1; blocks <= kMostBlocks; ++blocks) {
      Config c;
      c.precision = static_cast<int64_t>(*precision);
      c.nt = nt, c.blocks = blocks;
      if (tiles_of(*p, c) * blocks > d.veus()) break;  // its costs were measured in one round of all vEUs
      if (const std::optional<Config> found = config_for(d, *p, c)) rkernels.push_back(rkernel_of(request, *p, *found));
    }
  }
  return rkernels;
}

// --- accesses ----------------------------------------------------------------------------------------------------------

void append(const Graph& graph, TensorId id, int64_t pixel_stride, int64_t first, int64_t last, int64_t begin, int64_t end,
            std::vector<Region>& regions) {
  if (!id.valid() || first >= last || begin >= end) return;
  regions.push_back({id, {graph.tensor(id).place.offset + first * pixel_stride + begin, last - first, pixel_stride, end - begin}});
}

void accesses(const Graph& graph, const ROperator& rop, const RKernel& rkernel, int, int64_t index, Accesses& out) {
  const Pair p = *pair_of(graph, rop);
  const Config c = config_of(rkernel);
  const int64_t tile = index % tiles_of(p, c), block = index / tiles_of(p, c);
  const int64_t first = tile * c.pixels(), last = std::min(first + c.pixels(), p.pixels);
  const int64_t share = y_share(p, c), of_block = block_channels(p, c);
  append(graph, p.x, p.x_pixel, first, last, 0, p.product[0].in_channels, out.reads);
  append(graph, p.residual, p.residual_pixel, first, last, 0, p.channels(0), out.reads);
  append(graph, p.y, p.y_pixel, first, last, block * share, std::min((block + 1) * share, p.channels(0)), out.writes);
  append(graph, p.z, p.z_pixel, first, last, block * of_block, std::min((block + 1) * of_block, p.channels(1)), out.writes);
}

}  // namespace

Family pointwise_pair() { return {"pointwise_pair", list_candidates, pack, accesses}; }

}  // namespace tamp::kernels
