// Host side of gemv.cuh. rTask t is columns [t * block_n, (t + 1) * block_n), block_n = 8 warps * columns.
//
// The time is that of reading the weights, so weights take 16 bits wherever the model is not to be computed in fp32: fp16, each column
// multiplied by the power of two that brings its largest magnitude to 2^14..2^15. fp16 has as many mantissa bits as tf32. So a weight
// down to 2^-28 of its column's largest is what rounding to tf32 makes of it, and a smaller weight is wrong by at most 2^-39 of that
// largest, less than an fp32 sum keeps. fp16 and bf16 models get the same form: it takes no more bytes than their own, holds every weight
// at least as exactly, and cannot overflow.
#include "kernels/gemm/gemv.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "compiler/support/error.h"
#include "kernels/args.h"
#include "kernels/gemm/numbers.cuh"
#include "kernels/gemm/product.h"
#include "kernels/narrow.h"

namespace tamp::kernels {
namespace {

constexpr int64_t kMaxRows = 8;
constexpr int64_t kMostColumns = 4;  // of a warp
constexpr int64_t kWarps = rk::kComputeWarps, kLanes = rk::kWarp, kLaneK = rk::kGemvLaneK, kStepBytes = rk::kGemvStepBytes;

struct Config {
  int64_t columns = 1;  // of a warp
  int64_t chunk_k = 0;
  bool narrow = false;
  int64_t weight_bytes() const { return narrow ? 2 : 4; }
  int64_t step_k() const { return kStepBytes / weight_bytes(); }  // k that a warp takes at once
};

struct Blocks {
  int64_t block_n, n, chunks;
};

Blocks blocks_of(const Product& p, const Config& c) {
  return {kWarps * c.columns, ceil_div(p.channels, kWarps * c.columns), ceil_div(p.k(), c.chunk_k)};
}

Config config_of(const RKernel& rkernel) {
  return {rkernel.config_value("columns"), rkernel.config_value("chunk_k"), rkernel.config_value("narrow") != 0};
}

std::optional<Product> gemv_product(const Graph& graph, const ROperator& rop) {
  std::optional<Product> p = product_of(graph, rop, Activations::narrow);
  if (!p || p->rows() > kMaxRows || p->groups != 1 || p->taps() != 1) return std::nullopt;
  if (p->pad[0] > 0 || p->pad[1] > 0) return std::nullopt;
  for (size_t d = 0; d < 2; ++d) {  // refuses padding at the end
    if ((p->pixels[d + 1] - 1) * p->stride[d] >= p->in_extent[d]) return std::nullopt;
  }
  return p;
}

int64_t chunk_bytes(const Config& c) { return kWarps * c.columns * c.chunk_k * c.weight_bytes(); }

// The packed image: the ring's chunks, then rk::GemvColumn[channels].
struct Column {
  float scale = 1, bias = 0;
};
int64_t ring_bytes(const Product& p, const Config& c) { return blocks_of(p, c).n * blocks_of(p, c).chunks * chunk_bytes(c); }

// The place of k in a packed column. The weights that a lane reads at once lie side by side there; with 16 bits they are two runs of four
// k, 128 apart: k 20 to 23 and 148 to 151 have places 40 to 47.
int64_t place_of(int64_t k, const Config& c) {
  const int64_t step = k / c.step_k(), in_step = k % c.step_k(), four = in_step / (kLanes * kLaneK), lane = in_step / kLaneK % kLanes;
  return step * c.step_k() + lane * (c.step_k() / kLanes) + four * kLaneK + in_step % kLaneK;
}

// Writes one column and returns its scale; `at(k)` is the byte of its weight number k.
template <class At>
float pack_column(const std::vector<float>& column, bool narrow, const At& at) {
  const int exponent = narrow ? half_exponent(column) : 0;
  const float up = std::ldexp(1.0F, -exponent);
  for (size_t k = 0; k < column.size(); ++k) {
    const uint16_t half = narrow ? half_of(column[k] * up) : uint16_t{0};
    std::memcpy(at(static_cast<int64_t>(k)), narrow ? static_cast<const void*>(&half) : &column[k], narrow ? 2 : 4);
  }
  return std::ldexp(1.0F, exponent);
}

Bytes pack(const Graph& graph, const ROperator& rop, const RKernel& rkernel, int) {
  const std::optional<Product> product = gemv_product(graph, rop);
  TAMP_CHECK(product.has_value(), "gemv of '" + rop.name + "'");
  const Product& p = *product;
  const Config c = config_of(rkernel);
  const Blocks b = blocks_of(p, c);
  const std::vector<float> bias = has_bias(p) ? bias_of(graph, p) : std::vector<float>(static_cast<size_t>(p.channels), 0.0F);
  Bytes bytes(static_cast<size_t>(ring_bytes(p, c)) + bias.size() * sizeof(Column));
  const float* const data = f32_data(graph.tensor(p.weights));
  auto* const columns = reinterpret_cast<Column*>(bytes.data() + ring_bytes(p, c));
  std::vector<float> weights(static_cast<size_t>(p.k()));
  for (int64_t n = 0; n < p.channels; ++n) {
    for (int64_t k = 0; k < p.k(); ++k) weights[static_cast<size_t>(k)] = weight_at(data, p, 0, n, k);
    const int64_t block = n / b.block_n, in_block = n % b.block_n;
    columns[n].scale = pack_column(weights, c.narrow, [&](int64_t k) {
      const int64_t chunk = block * b.chunks + k / c.chunk_k;
      return bytes.data() + ((chunk * b.block_n + in_block) * c.chunk_k + place_of(k % c.chunk_k, c)) * c.weight_bytes();
    });
    columns[n].bias = bias[static_cast<size_t>(n)];
  }
  return bytes;
}

// Offset of row m with these strides (image, channel, h, w); `step_h`, `step_w`: input pixels per output pixel.
int64_t row_offset(const Product& p, const std::array<int64_t, 4>& strides, int64_t m, int64_t step_h, int64_t step_w) {
  const int64_t w = m % p.pixels[2], h = m / p.pixels[2] % p.pixels[1], image = m / p.pixels[2] / p.pixels[1];
  return image * strides[0] + h * step_h * strides[2] + w * step_w * strides[3];
}

ArgValue row_offsets(const Product& p, const std::array<int64_t, 4>& strides, int64_t step_h, int64_t step_w) {
  std::vector<int64_t> offsets;
  for (int64_t m = 0; m < p.rows(); ++m) offsets.push_back(row_offset(p, strides, m, step_h, step_w));
  return array_arg(offsets, kMaxRows);
}

std::vector<Arg> args_of(const ROperator& rop, const Product& p, const Config& c, int64_t piece_k) {
  const Epilogue& e = rop.epilogue;
  return {
      {"in", arg(TensorArg{p.in})},
      {"out", arg(TensorArg{p.out})},
      {"epilogue",
       ArgValue{ArgList{null_arg(), p.residual.valid() ? arg(TensorArg{p.residual}) : null_arg(),
                        array_arg({p.residual_strides.begin(), p.residual_strides.end()}), arg(static_cast<int64_t>(e.activation)),
                        arg(int64_t{p.residual_after_activation}), float_arg(e.a), float_arg(e.b)}}},
      {"columns", ArgValue{PackedArg{ring_bytes(p, c)}}},
      {"in_rows", row_offsets(p, p.in_strides, p.stride[0], p.stride[1])},
      {"out_rows", row_offsets(p, p.out_strides, 1, 1)},
      {"residual_rows", row_offsets(p, p.residual_strides, 1, 1)},
      {"in_stride", arg(p.in_strides[1])},
      {"out_stride", arg(p.out_strides[1])},
      {"rows", arg(p.rows())},
      {"channels", arg(p.channels)},
      {"k", arg(p.k())},
      {"chunk_k", arg(c.chunk_k)},
      {"chunks", arg(blocks_of(p, c).chunks)},
      {"column_bytes", arg(c.chunk_k * c.weight_bytes())},
      {"piece_k", arg(piece_k)},
      {"chunks_per_piece", arg(piece_k / c.chunk_k)},
  };
}

RKernel rkernel_of(const Request& request, const Product& p, const Config& c, int64_t rows, int64_t piece_k) {
  const Blocks b = blocks_of(p, c);
  RKernel rkernel;
  rkernel.family = "gemv";
  rkernel.name = fmt::format("gemv{}<{} rows, {} columns>", c.narrow ? "_16bit" : "", rows, b.block_n);
  rkernel.config = {{"columns", c.columns}, {"chunk_k", c.chunk_k}, {"narrow", c.narrow}};
  Phase phase;
  phase.header = "kernels/gemm/gemv.cuh";
  phase.body = "rk::gemv";
  const bool vector = has_vector_channels(request.graph.tensor(p.in), p.in_strides, p.in_channels);
  const Activation activation = request.rop.epilogue.activation;
  const bool plain = !p.residual.valid() && (activation == Activation::none || activation == Activation::relu);
  phase.template_args = {{"ROWS", std::to_string(rows)},
                         {"COLUMNS", std::to_string(c.columns)},
                         {"NARROW", c.narrow ? "true" : "false"},
                         {"VECTOR", vector ? "true" : "false"},
                         {"PLAIN", plain ? "true" : "false"}};
  const DType in = request.graph.tensor(p.in).dtype, out = request.graph.tensor(p.out).dtype;
  if (is_narrow(in) || is_narrow(out)) phase.template_args.emplace_back("In", value_type(in));
  if (is_narrow(out)) phase.template_args.emplace_back("Out", value_type(out));
  phase.args_type = "rk::GemvArgs";
  phase.args = args_of(request.rop, p, c, piece_k);
  phase.rtasks = b.n;
  phase.work_bytes = 2 * rows * piece_k * 4;
  phase.ring = {chunk_bytes(c), b.chunks, 1, b.n};
  const double k = static_cast<double>(b.chunks * c.chunk_k), n = static_cast<double>(b.block_n), m = static_cast<double>(p.rows());
  phase.cost.flops = 2 * static_cast<double>(rows) * n * k;
  phase.cost.efficiency = request.vdevice.cost("gemv.efficiency");
  phase.cost.activation_bytes = m * (static_cast<double>(bytes_of(in)) * k + static_cast<double>(bytes_of(out)) * n);
  phase.cost.weight_bytes = static_cast<double>(c.weight_bytes()) * n * k;
  rkernel.phases.push_back(std::move(phase));
  return rkernel;
}

// Whether rTasks of more columns give the fullest vEU no more to do: then rTasks of `columns` columns would only read `in` more often.
bool is_too_narrow(const Product& p, const VDevice& vdevice, int64_t columns) {
  const auto fullest = [&](int64_t c) { return c * ceil_div(ceil_div(p.channels, kWarps * c), vdevice.veus()); };
  for (int64_t wider = 2 * columns; wider <= kMostColumns; wider *= 2) {
    if (fullest(wider) <= fullest(columns)) return true;
  }
  return false;
}

std::vector<RKernel> list_candidates(const Request& request) {
  const std::optional<Product> p = gemv_product(request.graph, request.rop);
  if (!p) return {};
  const VDevice& vdevice = request.vdevice;
  int64_t rows = 1;
  while (rows < p->rows()) rows *= 2;

  std::vector<RKernel> rkernels;
  for (int64_t columns = 1; columns <= kMostColumns; columns *= 2) {
    if (columns > 1 && p->channels <= kWarps * columns / 2) break;
    if (is_too_narrow(*p, vdevice, columns)) continue;
    Config c;
    c.columns = columns;
    c.narrow = request.precision != Precision::fp32;
    // Two pieces of all rows, of about 16 KB each.
    const int64_t room = std::min<int64_t>(vdevice.work_bytes(), 32768) / (2 * rows * 4);
    const int64_t stage_k = vdevice.weight_stage_bytes / (kWarps * columns * c.weight_bytes());
    const int64_t most_k = std::min(room, stage_k) / c.step_k() * c.step_k();
    if (most_k == 0) break;
    // As few chunks as there can be, of the same size.
    c.chunk_k = ceil_div(ceil_div(p->k(), ceil_div(p->k(), most_k)), c.step_k()) * c.step_k();
    const int64_t piece_k = std::min(room / c.chunk_k, ceil_div(p->k(), c.chunk_k)) * c.chunk_k;
    rkernels.push_back(rkernel_of(request, *p, c, rows, piece_k));
  }
  return rkernels;
}

void accesses(const Graph& graph, const ROperator& rop, const RKernel& rkernel, int, int64_t index, Accesses& out) {
  const std::optional<Product> p = gemv_product(graph, rop);
  TAMP_CHECK(p.has_value(), "gemv of '" + rop.name + "'");
  const Blocks b = blocks_of(*p, config_of(rkernel));
  const int64_t begin = index * b.block_n, end = std::min(begin + b.block_n, p->channels);
  append_input(graph, *p, 0, p->rows(), 0, p->in_channels, out.reads);
  append_rows(*p, p->out, graph.tensor(p->out).place.offset, p->out_strides, 0, p->rows(), begin, end, out.writes);
  if (!p->residual.valid()) return;
  append_rows(*p, p->residual, graph.tensor(p->residual).place.offset, p->residual_strides, 0, p->rows(), begin, end, out.reads);
}

}  // namespace

const Family& gemv() {
  static const Family family = {"gemv", list_candidates, pack, accesses};
  return family;
}

}  // namespace tamp::kernels
