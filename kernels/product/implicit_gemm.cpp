// Host side of implicit_gemm.cuh and split_k_sum.cuh: which tiles and splits there are, the packed weights and taps, and what
// a rTask touches. rTask t of phase 0 is ((group * n_blocks + n_block) * splits + split) * m_blocks + m_block, so that
// the rTasks of one ring block follow each other.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "compiler/support/error.h"
#include "kernels/args.h"
#include "kernels/family.h"
#include "kernels/product/staged_numbers.cuh"
#include "kernels/tile/numbers.cuh"
#include "kernels/tile/product.h"
#include "kernels/tile/product_phases.h"

namespace tamp::kernels {
namespace {

constexpr int64_t kGroupK = rk::kGroupK;
constexpr int64_t kMostStages = 4;   // of A
constexpr int64_t kMinChannels = 8;  // of a group; convolutions of fewer are left to direct.cuh and depthwise.cuh

struct Tile {
  int64_t m, n;
};
constexpr Tile kTiles[] = {{128, 64}, {64, 64}, {32, 64}, {64, 32}, {128, 32}};

// Everything that pack and accesses need; a RKernel's config holds it.
struct Config {
  int64_t tf32 = 0;
  int64_t block_m = 0, block_n = 0, k_groups = 1, splits = 1, steps_per_split = 0, chunk_steps = 1, gather = 1, sum_rows = 0;

  int64_t block_k() const { return kGroupK * k_groups; }  // k of a step
};

struct Blocks {
  int64_t m, n, steps, chunks;
};

Blocks blocks_of(const Product& p, const Config& c) {
  return {ceil_div(p.rows(), c.block_m), ceil_div(p.channels, c.block_n), ceil_div(p.k(), c.block_k()),
          ceil_div(c.steps_per_split, c.chunk_steps)};
}

constexpr ConfigField<Config> kConfig[] = {{"tf32", &Config::tf32},
                                           {"block_m", &Config::block_m},
                                           {"block_n", &Config::block_n},
                                           {"k_groups", &Config::k_groups},
                                           {"splits", &Config::splits},
                                           {"steps_per_split", &Config::steps_per_split},
                                           {"chunk_steps", &Config::chunk_steps},
                                           {"gather", &Config::gather},
                                           {"sum_rows", &Config::sum_rows}};
Config config_of(const RKernel& rkernel) { return from_config(rkernel, kConfig); }

// --- packed data: ring blocks, taps, bias ------------------------------------------------------------------------------

int64_t ring_bytes(const Product& p, const Config& c) {
  const Blocks b = blocks_of(p, c);
  return p.groups * b.n * c.splits * b.chunks * c.chunk_steps * c.block_k() * c.block_n * 4;
}
int64_t taps_bytes(const Product& p, const Config& c) { return (blocks_of(p, c).steps + kMostStages) * (c.block_k() / c.gather) * 8; }
int64_t bias_offset(const Product& p, const Config& c) { return ring_bytes(p, c) + ceil_div(taps_bytes(p, c), 16) * 16; }

// The place of weight[k][n] in the packed image of a step: the order in which TileProduct reads it.
int64_t index_in_step(const Config& c, int64_t k, int64_t n) {
  if (c.tf32 == 0) return k * c.block_n + n;
  const int64_t column = n % 16 / 4 * 2 + n % 2, second = n % 4 / 2;  // second: of the two mmas
  const int64_t lane = column * 4 + k % 4;
  return ((k / 8 * (c.block_n / 16) + n / 16) * 32 + lane) * 4 + second * 2 + k % 8 / 4;
}

void pack_step(const float* data, const Product& p, const Config& c, int64_t group, int64_t first_n, int64_t first_k, float* to) {
  const int64_t last_k = std::min(c.block_k(), p.k() - first_k), last_n = std::min(c.block_n, p.channels - first_n);
  for (int64_t k = 0; k < last_k; ++k) {
    for (int64_t n = 0; n < last_n; ++n) {
      const float w = weight_at(data, p, group, first_n + n, first_k + k);
      to[index_in_step(c, k, n)] = c.tf32 != 0 ? round_to_tf32(w) : w;
    }
  }
}

void pack_ring(const Graph& graph, const Product& p, const Config& c, float* to) {
  const Blocks b = blocks_of(p, c);
  const float* const data = f32_data(graph.tensor(p.weights));
  const int64_t step_elements = c.block_k() * c.block_n;
  for (int64_t group = 0; group < p.groups; ++group) {
    for (int64_t n = 0; n < b.n; ++n) {
      for (int64_t split = 0; split < c.splits; ++split) {
        const int64_t first = split * c.steps_per_split, last = std::min(first + c.steps_per_split, b.steps);
        for (int64_t s = first; s < last; ++s)
          pack_step(data, p, c, group, n * c.block_n, s * c.block_k(), to + (s - first) * step_elements);
        to += b.chunks * c.chunk_steps * step_elements;
      }
    }
  }
}

// rk::Tap for every `gather` of k.
void pack_taps(const Product& p, const Config& c, std::byte* to) {
  struct Tap {
    int32_t offset;
    uint32_t place;
  };
  static_assert(sizeof(Tap) == 8);
  const int64_t count = taps_bytes(p, c) / 8;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t k = i * c.gather;
    Tap tap = {0, rk::kNoTap};
    if (k < p.k()) {
      const int64_t t = k / p.in_channels;
      const int64_t dh = t / p.kernel[1] * p.dilation[0], dw = t % p.kernel[1] * p.dilation[1];
      const int64_t offset = dh * p.in_strides[2] + dw * p.in_strides[3] + k % p.in_channels * p.in_strides[1];
      tap = {static_cast<int32_t>(offset), static_cast<uint32_t>(dh | dw << 16)};
    }
    std::memcpy(to + i * 8, &tap, 8);
  }
}

Bytes pack(const Graph& graph, const ROperator& rop, const RKernel& rkernel, int phase) {
  const Product p = known(product_of(graph, rop, Activations::narrow), "implicit_gemm", rop);
  const Config c = config_of(rkernel);
  std::vector<float> bias;
  int64_t begin = 0;
  if (phase == 0) begin = bias_offset(p, c);
  if (has_bias(p) && phase == 0 && c.splits == 1) bias = padded_bias(graph, p, p.groups, blocks_of(p, c).n * c.block_n);
  if (phase == 1) return pack_sum(graph, p);
  Bytes bytes(static_cast<size_t>(begin) + bias.size() * 4);
  if (phase == 0) {
    pack_ring(graph, p, c, reinterpret_cast<float*>(bytes.data()));
    pack_taps(p, c, bytes.data() + ring_bytes(p, c));
  }
  if (!bias.empty()) std::memcpy(bytes.data() + begin, bias.data(), bias.size() * 4);
  return bytes;
}

// --- candidates --------------------------------------------------------------------------------------------------------

std::vector<Arg> product_args(const Graph& graph, const ROperator& rop, const Product& p, const Config& c) {
  const Blocks b = blocks_of(p, c);
  const bool whole = c.splits == 1;
  return {
      {"in", arg(TensorArg{p.in})},
      {"taps", ArgValue{PackedArg{ring_bytes(p, c)}}},
      {"out", whole ? arg(TensorArg{p.out}) : ArgValue{ScratchArg{0}}},
      {"epilogue", product_epilogue(rop, p, whole, bias_offset(p, c))},
      {"in_strides", array_arg(to_vector(p.in_strides))},
      {"out_strides", array_arg(to_vector(whole ? p.out_strides : partial_strides(p)))},
      {"in_group_stride", arg(p.in_channels * p.in_strides[1])},
      {"split_stride", arg(whole ? int64_t{0} : p.rows() * partial_pitch(p))},
      {"rows", arg(p.rows())},
      {"channels", arg(p.channels)},
      {"in_h", arg(p.in_extent[0])},
      {"in_w", arg(p.in_extent[1])},
      {"stride_h", arg(p.stride[0])},
      {"stride_w", arg(p.stride[1])},
      {"pad_h", arg(p.pad[0])},
      {"pad_w", arg(p.pad[1])},
      {"steps", arg(b.steps)},
      {"steps_per_split", arg(c.steps_per_split)},
      {"chunks", arg(b.chunks)},
      {"vector_out", arg(whole ? vector_out(graph, p, p.channels) : int64_t{p.channels % 4 == 0})},
      {"vector_residual", arg(whole ? vector_residual(graph, p, p.channels) : int64_t{0})},
      {"m_blocks", divisor_arg(b.m)},
      {"splits", divisor_arg(c.splits)},
      {"n_blocks", divisor_arg(b.n)},
      {"pixels", divisor_arg(p.pixels[1] * p.pixels[2])},
      {"out_w", divisor_arg(p.pixels[2])},
  };
}

// The stages of A; later the sums of each group of warps lie in the same place.
int64_t work_bytes_of(const Config& c, int64_t a_stages) {
  return std::max(a_stages * c.block_k() * c.block_m, c.k_groups * c.block_n * c.block_m) * 4;
}

Phase product_phase(const Request& request, const Product& p, const Config& c, int64_t a_stages) {
  const Blocks b = blocks_of(p, c);
  Phase phase = body_phase("kernels/product/implicit_gemm.cuh", "rk::implicit_gemm", "rk::ImplicitGemmArgs");
  phase.template_args = {
      {"Math", c.tf32 != 0 ? "rk::Tf32" : "rk::Fp32"}, {"BLOCK_M", std::to_string(c.block_m)}, {"BLOCK_N", std::to_string(c.block_n)},
      {"K_GROUPS", std::to_string(c.k_groups)},        {"GATHER", std::to_string(c.gather)},   {"A_STAGES", std::to_string(a_stages)},
      {"CHUNK_STEPS", std::to_string(c.chunk_steps)}};
  // Partial sums stay fp32; the second phase (sum_phase) stores their sum.
  const DType stored = c.splits == 1 ? request.graph.tensor(p.out).dtype : DType::f32;
  if (is_narrow(stored)) phase.template_args.emplace_back("Out", value_type(stored));
  phase.args = product_args(request.graph, request.rop, p, c);
  phase.rtasks = p.groups * b.n * c.splits * b.m;
  phase.work_bytes = work_bytes_of(c, a_stages);
  phase.ring = {c.chunk_steps * c.block_k() * c.block_n * 4, b.chunks, b.m, p.groups * b.n * c.splits};

  const double k = static_cast<double>(c.steps_per_split * c.block_k()), m = static_cast<double>(c.block_m),
               n = static_cast<double>(c.block_n);
  phase.cost.flops = 2 * m * n * k;
  phase.cost.tensor_core = c.tf32 != 0;
  const auto tile_cost = [&](const char* name) {
    return request.vdevice.cost(fmt::format("implicit_gemm.{}x{}.{}", c.block_m, c.block_n, name));
  };
  phase.cost.efficiency = tile_cost(c.tf32 != 0 ? "tf32_efficiency" : "fp32_efficiency");
  if (c.gather == 1) phase.cost.efficiency *= request.vdevice.cost("implicit_gemm.scalar_gather_efficiency_factor");
  const double stored_bytes = static_cast<double>(bytes_of(stored)) * m * n;
  phase.cost.activation_bytes = 4 * m * k + stored_bytes * (c.splits == 1 && p.residual.valid() ? 2 : 1);
  phase.cost.weight_bytes = 4 * n * k;
  if (c.tf32 != 0) {
    const double gather_factor = c.gather == 1 ? request.vdevice.cost("implicit_gemm.scalar_gather_step_factor") : 1;
    phase.cost.calibrated_cycles =
        tile_cost("fixed_cycles") + tile_cost("step_cycles") * static_cast<double>(c.steps_per_split) * gather_factor;
  }
  return phase;
}

// The most steps of weights that a ring stage holds, a power of two.
int64_t chunk_steps_of(const ShapedVDevice& vdevice, const Config& c) {
  int64_t steps = 1;
  while (steps < 4 && steps < c.steps_per_split && 2 * steps * c.block_k() * c.block_n * 4 <= vdevice.weight_stage_bytes) steps *= 2;
  return steps;
}

// As many stages as hide an L2 access of one stage behind the products of the others; 0: no room.
int64_t a_stages_of(const ShapedVDevice& vdevice, const Config& c) {
  const int64_t wanted = c.tf32 != 0 && c.k_groups * c.block_m < 256 ? kMostStages : 3;
  const int64_t stages = std::min(wanted, vdevice.work_bytes() / (c.block_m * c.block_k() * 4));
  return stages < 2 || work_bytes_of(c, stages) > vdevice.work_bytes() ? 0 : stages;
}

// Two groups of warps, unless their parts of C or the taps of every k would not fit the registers, or one step the ring.
int64_t k_groups_of(const ShapedVDevice& vdevice, Config c) {
  c.k_groups = 2;
  const bool large = c.block_m * c.block_n >= 128 * 64;
  if (c.tf32 == 0 && (large || c.gather == 1)) return 1;
  if (large && (c.gather == 1 || a_stages_of(vdevice, c) < 3)) return 1;
  return c.block_k() * c.block_n * 4 <= vdevice.weight_stage_bytes ? 2 : 1;
}

// Whether splitting k `splits` ways may pay: half as many splits leave vEUs idle, and each split has enough steps.
bool is_worth_splitting(const ShapedVDevice& vdevice, int64_t tiles, int64_t steps, int64_t splits) {
  return tiles * (splits / 2) < vdevice.veus() && steps / splits >= 2;
}

RKernel rkernel_of(const Request& request, const Product& p, const Config& c, int64_t a_stages) {
  const std::string name = fmt::format("implicit_gemm_{}<{}x{}{}>", c.tf32 != 0 ? "tf32" : "fp32", c.block_m, c.block_n,
                                       c.splits > 1 ? fmt::format(", split {}", c.splits) : "");
  RKernel rkernel = one_phase(name, to_config(c, kConfig), product_phase(request, p, c, a_stages));
  if (c.splits > 1) {
    rkernel.phases.push_back(sum_phase(request, p, c.splits, c.sum_rows));
    rkernel.scratch_elements = c.splits * p.rows() * partial_pitch(p);
  }
  return rkernel;
}

std::vector<RKernel> list_candidates(const Request& request) {
  const std::optional<Product> p = product_of(request.graph, request.rop, Activations::narrow);
  if (!p || is_narrow(request.graph.tensor(p->in).dtype)) return {};
  if (p->groups > 1 && (p->channels < kMinChannels || p->in_channels < kMinChannels)) return {};
  const ShapedVDevice& vdevice = request.vdevice;
  const bool tf32 = request.precision != Precision::fp32 && vdevice.tf32;
  const bool vector = has_vector_channels(request.graph.tensor(p->in), p->in_strides, p->in_channels);

  std::vector<RKernel> rkernels;
  for (const Tile& tile : kTiles) {
    // The tall and narrow tile is for few channels only: there gathering is most of the work, and wider tiles would have empty columns.
    if (tile.m == 128 && tile.n == 32 && p->channels > tile.n) continue;
    Config c;
    c.tf32 = tf32 ? 1 : 0;
    c.block_m = tile.m;
    c.block_n = tile.n;
    c.gather = vector ? 4 : 1;
    c.k_groups = k_groups_of(vdevice, c);
    c.sum_rows = sum_rows_of(vdevice, *p);
    const int64_t a_stages = a_stages_of(vdevice, c);
    if (a_stages == 0 || c.block_k() * tile.n * 4 > vdevice.weight_stage_bytes) continue;
    const int64_t steps = ceil_div(p->k(), c.block_k());
    const int64_t tiles = ceil_div(p->rows(), tile.m) * ceil_div(p->channels, tile.n) * p->groups;
    for (int64_t splits = 1; splits <= 32; splits *= 2) {
      if (splits > 1 && !is_worth_splitting(vdevice, tiles, steps, splits)) break;
      c.steps_per_split = ceil_div(steps, splits);
      c.splits = ceil_div(steps, c.steps_per_split);  // no split is empty
      c.chunk_steps = chunk_steps_of(vdevice, c);
      if (c.splits * p->rows() * partial_pitch(*p) > INT32_MAX) break;  // the device's offsets have 32 bits
      rkernels.push_back(rkernel_of(request, *p, c, a_stages));
    }
  }
  return rkernels;
}

// --- accesses ----------------------------------------------------------------------------------------------------------

void product_accesses(const Graph& graph, const Product& p, const Config& c, int64_t index, Accesses& out) {
  const Blocks b = blocks_of(p, c);
  const int64_t m_block = index % b.m, split = index / b.m % c.splits, n_block = index / b.m / c.splits % b.n,
                group = index / b.m / c.splits / b.n;
  const int64_t first = m_block * c.block_m, last = std::min(first + c.block_m, p.rows());
  const int64_t begin = group * p.channels + n_block * c.block_n, end = std::min(begin + c.block_n, (group + 1) * p.channels);
  // With one tap a split reads only its channels.
  const int64_t k_first = p.taps() == 1 ? split * c.steps_per_split * c.block_k() : 0;
  const int64_t k_last = p.taps() == 1 ? std::min(k_first + c.steps_per_split * c.block_k(), p.in_channels) : p.in_channels;
  append_input(graph, p, first, last, group * p.in_channels + k_first, group * p.in_channels + k_last, out.reads);
  if (c.splits == 1) return add_stores(graph, p, first, last, begin, end, out);
  out.writes.push_back(partial_rows(p, split, first, last, begin, end));
}

void accesses(const Graph& graph, const ROperator& rop, const RKernel& rkernel, int phase, int64_t index, Accesses& out) {
  const Product p = known(product_of(graph, rop, Activations::narrow), "implicit_gemm", rop);
  const Config c = config_of(rkernel);
  if (phase == 0)
    product_accesses(graph, p, c, index, out);
  else
    sum_accesses(graph, p, c.splits, c.sum_rows, index, out);
}

// --- before tensors have places ----------------------------------------------------------------------------------------

// A product of x[rows, k] with a constant [k, columns] on the whole vDevice, before anything about it is decided.
std::optional<Estimate> estimate_unplaced(const Request& request) {
  const auto* const matmul = std::get_if<MatMul>(&request.rop.attrs);
  if (matmul == nullptr) return std::nullopt;
  const ShapedVDevice& d = request.vdevice;
  const Tensor &a = request.graph.tensor(request.rop.inputs[0]), &b = request.graph.tensor(request.rop.inputs[1]),
               &out = request.graph.tensor(request.rop.outputs[0]);
  const bool f32 = a.dtype == DType::f32 && b.dtype == DType::f32 && out.dtype == DType::f32;
  if (!f32 || b.role != Role::constant || a.shape.size() < 2 || b.shape.size() != 2 || element_count(out.shape) == 0) return std::nullopt;
  constexpr double kTile = 64;
  const int64_t columns = out.shape.back();
  const double m = static_cast<double>(element_count(out.shape) / columns), n = static_cast<double>(columns),
               depth = static_cast<double>(a.shape[a.shape.size() - (matmul->trans_a ? 2 : 1)]);
  const double peak_tflops = request.precision != Precision::fp32 && d.tf32_tflops > 0 ? d.tf32_tflops : d.fp32_tflops;
  const double arithmetic_us = 2 * m * n * depth / (peak_tflops * 1e6 * d.cost("implicit_gemm.unplaced_efficiency"));
  const double read_bytes = 4 * depth * (m * std::max(1.0, n / kTile) + n * std::max(1.0, m / kTile));
  // The edge of the product, and one more where k is split.
  return Estimate{2 * (d.edge_us + d.rtask_us) + std::max(arithmetic_us, read_bytes / (d.l2_gb_per_s * 1e3))};
}

}  // namespace

Family implicit_gemm() { return {"implicit_gemm", list_candidates, pack, accesses, estimate_unplaced}; }

}  // namespace tamp::kernels
