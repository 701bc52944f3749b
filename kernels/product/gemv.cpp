// Host side of gemv.cuh, gemv_of_sums.cuh, rounded_head.cuh and, with gemv_of_rows.cpp, gemv_of_rows.cuh. rTask t is columns [t * block_n,
// (t + 1) * block_n), block_n = 8 warps * columns.
//
// The time is that of reading the weights, so weights take 16 bits wherever the model is not to be computed in fp32: fp16, each column
// multiplied by the power of two that brings its largest magnitude to 2^14..2^15. fp16 has as many mantissa bits as tf32. So a weight
// down to 2^-28 of its column's largest is what rounding to tf32 makes of it, and a smaller weight is wrong by at most 2^-39 of that
// largest, less than an fp32 sum keeps. fp16 and bf16 models get the same form: it takes no more bytes than their own, holds every weight
// at least as exactly, and cannot overflow.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "compiler/ir/fused.h"
#include "compiler/support/error.h"
#include "kernels/args.h"
#include "kernels/family.h"
#include "kernels/loop.h"
#include "kernels/narrow.h"
#include "kernels/product/gemv_cell.h"
#include "kernels/product/gemv_of_rows.h"
#include "kernels/product/gemv_row.h"
#include "kernels/product/numbers.cuh"
#include "kernels/product/rounded_head.h"
#include "kernels/tile/product.h"

namespace tamp::kernels {
namespace {

constexpr int64_t kMaxRows = rk::kGemvRows;
constexpr int64_t kMostColumns = 4;  // of a warp
constexpr int64_t kWarps = rk::kComputeWarps, kLanes = rk::kWarp, kLaneK = rk::kGemvLaneK, kStepBytes = rk::kGemvStepBytes;

struct Config {
  int64_t columns = 1;  // of a warp
  int64_t chunk_k = 0;
  bool narrow = false;
  int64_t turns = 1;  // blocks of columns that a rTask takes one after another
  int64_t weight_bytes() const { return narrow ? 2 : 4; }
  int64_t step_k() const { return kStepBytes / weight_bytes(); }  // k that a warp takes at once
};

struct Blocks {
  int64_t block_n, n, chunks;  // columns of a block; blocks, whole rTasks of them; chunks of a block
  int64_t turns;
  int64_t rtasks() const { return n / turns; }
};

Blocks blocks_of(const Product& p, const Config& c) {
  const int64_t blocks = ceil_div(p.channels, kWarps * c.columns);
  return {kWarps * c.columns, ceil_div(blocks, c.turns) * c.turns, ceil_div(p.k(), c.chunk_k), c.turns};
}

// One turn is not written down: records of measurements know rKernels by their config.
Config config_of(const RKernel& rkernel) {
  return {rkernel.config_value("columns"), rkernel.config_value("chunk_k"), rkernel.config_value("narrow") != 0,
          config_or(rkernel, "turns", 1)};
}

// The product: the last of several steps but for a rounded head, else the rOperator.
ROperator last_step(const ROperator& rop) {
  const std::optional<FusedView> steps = FusedView::of(rop);
  return steps ? steps->alone(is_rounded_head(rop) ? kHeadProduct : steps->count() - 1) : rop;
}
// Whether it is a MatMul whose operand is a sum over the last of three dimensions, rounded or not.
bool is_pooled(const ROperator& rop) {
  if (is_rounded_head(rop)) return true;
  const std::optional<FusedView> steps = FusedView::of(rop);
  const Reduce* const reduce = steps ? steps->as<Reduce>(0) : nullptr;
  return reduce && steps->count() == 2 && steps->as<MatMul>(1) && !steps->as<MatMul>(1)->trans_a && steps->feeds(0, 1) &&
         *reduce == Reduce{ReduceKind::sum, {2}, /*keepdims=*/false};
}
// Whether the body makes its operand, all of it in shared memory.
bool makes_operand(const ROperator& rop) { return is_pooled(rop) || is_of_rows(rop); }

// What can be said of such a product before its tensors have places; none where no body computes it.
std::optional<Product> unplaced_pooled(const Graph& graph, const ROperator& rop) {
  if (is_rounded_head(rop) && !rounded_head_of(graph, rop)) return std::nullopt;
  const ROperator product = last_step(rop);
  const auto& op = std::get<MatMul>(product.attrs);
  const Tensor &sums = graph.tensor(rop.inputs[0]), &out = graph.tensor(rop.outputs[0]);
  const TensorId bias = product.epilogue.bias;
  if (!is_f32_constant(graph, product.inputs[1]) || (bias.valid() && !is_f32_constant(graph, bias))) return std::nullopt;
  Product p;
  p.in = rop.inputs[0];
  p.weights = product.inputs[1];
  p.out = rop.outputs[0];
  p.residual = product.epilogue.residual;
  p.residual_after_activation = product.epilogue.residual_after_activation;
  p.epilogue_bias = bias;
  p.pixels[0] = sums.shape[0];
  p.in_channels = sums.shape[1];
  p.channels = out.shape[1];
  p.weight_stride_n = op.trans_b ? p.in_channels : 1;
  p.weight_stride_channel = op.trans_b ? 1 : p.channels;
  const bool empty = p.rows() * p.in_channels * p.channels * sums.shape[2] == 0;
  if (empty || p.rows() > kMaxRows || p.in_channels % kLaneK != 0) return std::nullopt;
  return p;
}

// The same with places. in_strides are those of a part.
std::optional<Product> pooled_product(const Graph& graph, const ROperator& rop) {
  std::optional<Product> p = unplaced_pooled(graph, rop);
  const Tensor &sums = graph.tensor(rop.inputs[0]), &out = graph.tensor(rop.outputs[0]);
  if (!p || !is_plain_f32(sums) || !is_plain_values(out)) return std::nullopt;
  const std::vector<int64_t>& in = sums.place.strides;
  if (in[1] != 1 || in[0] % kLaneK != 0 || in[2] % kLaneK != 0 || sums.place.offset % kLaneK != 0) return std::nullopt;
  p->in_strides = {in[0], in[1], 0, 0};
  p->out_strides = {out.place.strides[0], out.place.strides[1], 0, 0};
  if (!p->residual.valid()) return p;
  const Tensor& residual = graph.tensor(p->residual);
  if (!is_plain_values(residual) || residual.dtype != out.dtype) return std::nullopt;
  p->residual_strides = {residual.place.strides[0], residual.place.strides[1], 0, 0};
  return p;
}

std::optional<Product> gemv_product(const Graph& graph, const ROperator& rop) {
  if (is_pooled(rop)) return pooled_product(graph, rop);
  if (is_of_rows(rop)) return product_of_rows(graph, rop);
  std::optional<Product> p = product_of(graph, rop, Activations::narrow);
  if (!p || p->rows() > kMaxRows || p->groups != 1 || p->taps() != 1) return std::nullopt;
  if (p->pad[0] > 0 || p->pad[1] > 0) return std::nullopt;
  for (size_t d = 0; d < 2; ++d) {  // refuses padding at the end
    if ((p->pixels[d + 1] - 1) * p->stride[d] >= p->in_extent[d]) return std::nullopt;
  }
  return p;
}

int64_t chunk_bytes(const Config& c) { return kWarps * c.columns * c.chunk_k * c.weight_bytes(); }

// The packed image: the ring's chunks, then rk::GemvColumn[channels], then the table of a rounded head.
struct Column {
  float scale = 1, bias = 0;
};
int64_t ring_bytes(const Product& p, const Config& c) { return blocks_of(p, c).n * blocks_of(p, c).chunks * chunk_bytes(c); }
int64_t table_begin(const Product& p, const Config& c) { return ring_bytes(p, c) + p.channels * int64_t{sizeof(Column)}; }

// The place of k in a packed column. The weights that a lane reads at once lie side by side there; with 16 bits they are two runs of four
// k, 128 apart: k 20 to 23 and 148 to 151 have places 40 to 47.
int64_t place_of(int64_t k, const Config& c) {
  const int64_t step = k / c.step_k(), in_step = k % c.step_k(), four = in_step / (kLanes * kLaneK), lane = in_step / kLaneK % kLanes;
  return step * c.step_k() + lane * (c.step_k() / kLanes) + four * kLaneK + in_step % kLaneK;
}

// Puts numbers where they belong. Neighbours that a lane reads at once are neighbours there, too.
template <class Number>
void put_column(const Number* column, const std::vector<int64_t>& places, std::byte* to) {
  const int64_t* const place = places.data();
  const int64_t all = std::ssize(places), in_fours = all / kLaneK * kLaneK, bytes = sizeof(Number);
  for (int64_t k = 0; k < in_fours; k += kLaneK) std::memcpy(to + place[k] * bytes, column + k, kLaneK * sizeof(Number));
  for (int64_t k = in_fours; k < all; ++k) std::memcpy(to + place[k] * bytes, column + k, sizeof(Number));
}

// Writes one column to `to` and returns its scale; weight number k has place places[k].
float pack_column(std::span<const float> column, bool narrow, const std::vector<int64_t>& places, std::vector<uint16_t>& halves,
                  std::byte* to) {
  if (!narrow) {
    put_column(column.data(), places, to);
    return 1;
  }
  const float scale = half_scale(column);
  halves.resize(column.size());
  halves_of(column.data(), std::ssize(column), 1 / scale, halves.data());
  put_column(halves.data(), places, to);
  return scale;
}

Bytes pack(const Graph& graph, const ROperator& rop, const RKernel& rkernel, int) {
  const Product p = known(gemv_product(graph, rop), "gemv", rop);
  if (const std::optional<RowTile> row = row_tile_of(rop, p, rkernel)) return pack_row(graph, rop, p, *row);
  const Config c = config_of(rkernel);
  const Blocks b = blocks_of(p, c);
  const std::vector<float> bias = has_bias(p) ? bias_of(graph, p) : std::vector<float>(static_cast<size_t>(p.channels), 0.0F);
  Bytes bytes = zero_bytes(static_cast<size_t>(ring_bytes(p, c)) + bias.size() * sizeof(Column));
  const float* const data = f32_data(graph.tensor(p.weights));
  auto* const columns = reinterpret_cast<Column*>(bytes.data() + ring_bytes(p, c));
  WeightColumns all_weights(data, p);
  std::vector<uint16_t> halves;
  std::vector<int64_t> places;  // of a block's first column
  for (int64_t k = 0; k < p.k(); ++k) places.push_back(k / c.chunk_k * b.block_n * c.chunk_k + place_of(k % c.chunk_k, c));
  for (int64_t n = 0; n < p.channels; ++n) {
    const std::span<float> weights = all_weights.column(n);
    const int64_t first = (n / b.block_n * b.chunks * b.block_n + n % b.block_n) * c.chunk_k;
    const float shifted = is_of_rows(rop) ? fold_factors(graph, rop, weights) : 0;
    columns[n].scale = pack_column(weights, c.narrow, places, halves, bytes.data() + first * c.weight_bytes());
    columns[n].bias = bias[static_cast<size_t>(n)] + shifted;
  }
  if (const std::optional<RoundedHead> head = rounded_head_of(graph, rop); head && head->table.valid()) {
    const auto* const table = reinterpret_cast<const std::byte*>(f32_data(graph.tensor(head->table)));
    bytes.insert(bytes.end(), table, table + element_count(graph.tensor(head->table).shape) * int64_t{sizeof(float)});
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

// `chunks`: of a rTask; `columns`: the place of the columns' scales and biases in the packed image.
std::vector<Arg> args_of(const Request& request, const Product& p, const Config& c, int64_t piece_k, int64_t chunks,
                         const ArgValue& columns) {
  const Epilogue e = last_step(request.rop).epilogue;
  const auto rows = [&](TensorId id, const std::array<int64_t, 4>& strides, int64_t step_h, int64_t step_w) {
    if (!is_of_rows(request.rop)) return row_offsets(p, strides, step_h, step_w);
    return array_arg(id.valid() ? offsets_of_rows(request.graph.tensor(id)) : std::vector<int64_t>{}, kMaxRows);
  };
  return {
      {"in", arg(TensorArg{p.in})},
      {"out", arg(TensorArg{p.out})},
      {"epilogue", epilogue_arg(e, null_arg(), p.residual.valid() ? ArgValue{WordsArg{p.residual, rk::kGemvResidualBit}} : null_arg(),
                                {p.residual_strides.begin(), p.residual_strides.end()}, p.residual_after_activation)},
      {"columns", columns},
      {"in_rows", rows(p.in, p.in_strides, p.stride[0], p.stride[1])},
      {"out_rows", rows(p.out, p.out_strides, 1, 1)},
      {"residual_rows", rows(p.residual, p.residual_strides, 1, 1)},
      {"in_stride", arg(p.in_strides[1])},
      {"out_stride", arg(p.out_strides[1])},
      {"rows", arg(p.rows())},
      {"channels", arg(p.channels)},
      {"k", arg(p.k())},
      {"chunk_k", arg(c.chunk_k)},
      {"chunks", arg(chunks)},
      {"column_bytes", arg(c.chunk_k * c.weight_bytes())},
      {"piece_k", arg(piece_k)},
      {"chunks_per_piece", arg(piece_k / c.chunk_k)},
      {"turns", arg(c.turns)},
  };
}

// How many parts each value of the operand has, 1 where it is there as it stands.
int64_t parts_of(const Request& request) { return is_pooled(request.rop) ? request.graph.tensor(request.rop.inputs[0]).shape[2] : 1; }

Cost cost_of(const Request& request, const Product& p, const Config& c, int64_t rows) {
  const int64_t parts = parts_of(request);
  const ShapedVDevice& d = request.vdevice;
  const Blocks b = blocks_of(p, c);
  const double in = static_cast<double>(is_of_rows(request.rop) ? operand_bytes_of_rows(request.graph, request.rop)
                                                                : bytes_of(request.graph.tensor(p.in).dtype) * parts),
               out = static_cast<double>(bytes_of(request.graph.tensor(p.out).dtype));
  const double k = static_cast<double>(b.chunks * c.chunk_k), n = static_cast<double>(b.block_n * b.turns),
               m = static_cast<double>(p.rows());
  Cost cost;
  cost.flops = 2 * static_cast<double>(rows) * n * k;
  cost.efficiency = d.cost("gemv.efficiency");
  cost.activation_bytes = m * (in * k + out * n);
  cost.weight_bytes = static_cast<double>(c.weight_bytes()) * n * k;
  if (is_of_rows(request.rop)) cost.latency_us = rows_us(request, rows, b.chunks * c.chunk_k);
  cost.latency_us += static_cast<double>(b.turns - 1) * d.cost("gemv.turn_us");
  if (!is_pooled(request.rop)) return cost;
  const int64_t turns = rows * ceil_div(p.in_channels, kWarps * kLanes * kLaneK) * ceil_div(parts, rk::kGemvParts);
  cost.latency_us = d.cost("gemv.sums_us") + static_cast<double>(turns - 1) * d.cost("gemv.sums_turn_us");
  return cost;
}

// Makes the phase one whose operand comes in parts and is rounded. `table`: its place in the packed image.
void add_head(const Request& request, const RoundedHead& head, int64_t table, Phase& phase) {
  const Tensor& sums = request.graph.tensor(request.rop.inputs[0]);
  set_body(phase, "kernels/product/rounded_head.cuh", "rk::rounded_head", "rk::RoundedHeadArgs");
  phase.args = {{"gemv", struct_arg(std::move(phase.args))},
                {"parts", arg(sums.shape[2])},
                {"part_stride", arg(sums.place.strides[2])},
                {"count", float_arg(head.count)},
                {"reciprocal", float_arg(1 / head.count)},
                {"scale", float_arg(head.scale)},
                {"low", float_arg(head.low)},
                {"high", float_arg(head.high)},
                {"factor", float_arg(head.factor)},
                {"table", head.table.valid() ? ArgValue{PackedArg{table}} : null_arg()}};
}
const char* end_of(const RoundedHead& head) {
  if (!head.rounds) return "rk::kHeadPlain";
  return head.table.valid() ? "rk::kHeadTable" : "rk::kHeadFactor";
}

// Makes the phase one whose operand comes in parts.
void add_parts(const Request& request, Phase& phase) {
  const Tensor& sums = request.graph.tensor(request.rop.inputs[0]);
  set_body(phase, "kernels/product/gemv_of_sums.cuh", "rk::gemv_of_sums", "rk::GemvOfSumsArgs");
  phase.args = {{"gemv", struct_arg(std::move(phase.args))},
                {"parts", arg(sums.shape[2])},
                {"part_stride", arg(sums.place.strides[2])},
                {"scale", float_arg(FusedView::of(request.rop)->as<MatMul>(1)->alpha)}};
}

struct Tile {
  Config config;
  int64_t rows = 1, piece_k = 0;  // rows: a power of two
  bool is_whole = false;          // all rows of a plain operand are in shared memory at once, so gemv_of_rows.cuh is the body
};

// Whether offsets of the operand fit the 32 bits that gemv_of_rows.cuh has for them.
bool has_small_offsets(const Graph& graph, const Product& p) {
  const int64_t elements = graph.buffers[graph.tensor(p.in).place.buffer.index()].elements;
  return elements < INT32_MAX;
}

// Makes the phase one that takes a plain operand whole.
void add_whole_rows(const Request& request, const Product& p, const Tile& tile, Phase& phase) {
  RowOperands operands;
  operands.tensors = {p.in};
  operands.k_strides = {p.in_strides[1]};
  for (int64_t m = 0; m < p.rows(); ++m) operands.offsets.push_back(row_offset(p, p.in_strides, m, p.stride[0], p.stride[1]));
  operands.scalars = has_vector_channels(request.graph.tensor(p.in), p.in_strides, p.in_channels) ? 0 : 1;
  operands.norm = "rk::kGemvAsIs";
  add_rows_phase(operands, request, tile.rows, tile.piece_k, phase);
}

RKernel rkernel_of(const Request& request, const Product& p, const Tile& tile) {
  const Config& c = tile.config;
  const int64_t rows = tile.rows, piece_k = tile.piece_k;
  const Blocks b = blocks_of(p, c);
  const bool pooled = is_pooled(request.rop), of_rows = is_of_rows(request.rop);
  const bool plain_operand = !makes_operand(request.rop) && !tile.is_whole;
  const std::optional<RoundedHead> head = rounded_head_of(request.graph, request.rop);
  const std::string name = fmt::format("{}{}<{} rows, {} columns{}>",
                                       head      ? "rounded_head"
                                       : pooled  ? "gemv_of_sums"
                                       : of_rows ? "gemv_of_rows"
                                                 : "gemv",
                                       c.narrow ? "_16bit" : "", rows, b.block_n, c.turns > 1 ? fmt::format(", {} turns", c.turns) : "");
  Phase phase = early_phase("kernels/product/gemv.cuh", "rk::gemv", "rk::GemvArgs");
  const Activation activation = last_step(request.rop).epilogue.activation;
  const bool plain = !p.residual.valid() && (activation == Activation::none || activation == Activation::relu);
  phase.template_args = {{"ROWS", std::to_string(rows)}, {"COLUMNS", std::to_string(c.columns)}, {"NARROW", c.narrow ? "true" : "false"}};
  if (plain_operand) {
    const bool vector = has_vector_channels(request.graph.tensor(p.in), p.in_strides, p.in_channels);
    phase.template_args.emplace_back("VECTOR", vector ? "true" : "false");
  }
  if (head)
    phase.template_args.emplace_back("END", end_of(*head));
  else
    phase.template_args.emplace_back("PLAIN", plain ? "true" : "false");
  const DType in = request.graph.tensor(p.in).dtype, out = request.graph.tensor(p.out).dtype;
  if (plain_operand && (is_narrow(in) || is_narrow(out))) phase.template_args.emplace_back("In", value_type(in));
  if (is_narrow(out) && !of_rows && !tile.is_whole) phase.template_args.emplace_back("Out", value_type(out));
  phase.args = args_of(request, p, c, piece_k, b.chunks, ArgValue{PackedArg{ring_bytes(p, c)}});
  phase.rtasks = b.rtasks();
  phase.work_bytes = (pooled ? 1 : 2) * rows * piece_k * 4;
  phase.ring = {chunk_bytes(c), b.chunks * b.turns, 1, b.rtasks()};
  phase.cost = cost_of(request, p, c, rows);
  if (head)
    add_head(request, *head, table_begin(p, c), phase);
  else if (pooled)
    add_parts(request, phase);
  if (of_rows) add_rows(request, rows, piece_k, phase);
  if (tile.is_whole) add_whole_rows(request, p, tile, phase);
  if (rows == 1) {  // so many k that reading the weights is all that counts: words are not worth their two more warps
    phase.may_await.clear();
    phase.may_publish.clear();
  }
  RKernel rkernel = one_phase(name, {{"columns", c.columns}, {"chunk_k", c.chunk_k}, {"narrow", c.narrow}}, phase);
  if (c.turns > 1) rkernel.config.emplace_back("turns", c.turns);
  return rkernel;
}

const char* residual_of(const Product& p) {
  if (!p.residual.valid()) return "rk::kGemvNoResidual";
  return p.residual_after_activation ? "rk::kGemvAfter" : "rk::kGemvBefore";
}

// How its weights lie, in an rKernel's name.
const char* row_form(const RowTile& row) {
  if (!row.narrow) return "";
  if (row.cell == rk::kCellHalves) return "_16bit";
  return bits_of_cell(row.cell) == 8 ? "_8bit" : "_4bit";
}

// The rKernel of gemv_row.cuh.
RKernel row_rkernel_of(const Request& request, const Product& p, const RowTile& row) {
  Tile tile;
  tile.config = {.columns = row.columns, .chunk_k = row.chunk_k(), .narrow = row.narrow, .turns = row.pieces};
  const Tensor& out = request.graph.tensor(p.out);
  Phase phase;
  phase.awaits_inputs = true;
  phase.template_args = {{"K", std::to_string(p.k())},
                         {"COLUMNS", std::to_string(row.columns)},
                         {"CHUNK_K", std::to_string(row.narrow ? row.chunk_k() : 0)},
                         {"ONE", row.narrow && row.cell == rk::kCellHalves && row.groups == 1 && row.pieces == 1 ? "true" : "false"},
                         {"CELL", text_of(row.cell)},
                         {"FACTORS", has_row_factors(request.graph, request.rop, row) ? "true" : "false"},
                         {"ACTIVATION", activation_text(last_step(request.rop).epilogue.activation)},
                         {"RESIDUAL", residual_of(p)}};
  phase.args = args_of(request, p, tile.config, row.packed_k(), row.groups, null_arg());
  if (is_of_rows(request.rop)) {
    add_rows(request, 1, row.packed_k(), phase);
  } else {
    tile.rows = 1;
    tile.piece_k = row.packed_k();
    add_whole_rows(request, p, tile, phase);
  }
  if (has_row_factors(request.graph, request.rop, row)) phase.args.push_back({"factors", ArgValue{PackedArg{row_ring_bytes(row)}}});
  phase.header = phase.header == "kernels/product/gemv_steps.cuh" ? "kernels/product/gemv_row_steps.cuh" : "kernels/product/gemv_row.cuh";
  phase.body = "rk::gemv_row";
  phase.rtasks = row.rtasks();
  phase.work_bytes = row.work_bytes();
  phase.ring = {row.chunk_bytes(), row.groups * row.pieces, 1, phase.rtasks};
  const int64_t operands =
      is_of_rows(request.rop) ? operand_bytes_of_rows(request.graph, request.rop) : bytes_of(request.graph.tensor(p.in).dtype);
  phase.cost = row_cost(request, row, static_cast<double>(operands), static_cast<double>(bytes_of(out.dtype)));
  RKernel rkernel =
      one_phase(fmt::format("gemv_row{}<{} columns>", row_form(row), row.rtask_columns()),
                {{"columns", row.columns}, {"row_groups", row.groups}, {"row_pieces", row.pieces}, {"narrow", row.narrow}}, phase);
  if (row.cell != rk::kCellHalves) rkernel.config.emplace_back("cell", row.cell);
  return rkernel;
}

// Whether rTasks of more columns give the fullest vEU no more to do: then rTasks of `columns` columns would only read `in` more often.
bool is_too_narrow(const Product& p, const ShapedVDevice& vdevice, int64_t columns) {
  const auto fullest = [&](int64_t c) { return c * ceil_div(ceil_div(p.channels, kWarps * c), vdevice.veus()); };
  for (int64_t wider = 2 * columns; wider <= kMostColumns; wider *= 2) {
    if (fullest(wider) <= fullest(columns)) return true;
  }
  return false;
}

// The tile of `columns` columns a warp whose rows lie in `pieces` places of shared memory in turn; none where they do not fit.
std::optional<Tile> tile_of(const Request& request, const Product& p, int64_t rows, int64_t columns, int64_t pieces) {
  const ShapedVDevice& vdevice = request.vdevice;
  Tile tile;
  tile.rows = rows;
  Config& c = tile.config;
  c.columns = columns;
  c.narrow = request.precision != Precision::fp32;
  const int64_t sums = is_pooled(request.rop) ? 0 : rk::gemv_sums_floats(static_cast<int>(rows));
  const int64_t room =
      pieces == 1 ? (vdevice.work_bytes() / 4 - sums) / rows : std::min<int64_t>(vdevice.work_bytes(), 32768) / (pieces * rows * 4);
  const int64_t stage_k = vdevice.weight_stage_bytes / (kWarps * columns * c.weight_bytes());
  const int64_t most_k = std::min(room, stage_k) / c.step_k() * c.step_k();
  if (most_k == 0) return std::nullopt;
  // As few chunks as there can be, of the same size.
  c.chunk_k = ceil_div(ceil_div(p.k(), ceil_div(p.k(), most_k)), c.step_k()) * c.step_k();
  const int64_t whole = ceil_div(p.k(), c.chunk_k) * c.chunk_k;
  tile.piece_k = std::min(room / c.chunk_k * c.chunk_k, whole);
  if (pieces == 1 && tile.piece_k < whole) return std::nullopt;
  tile.is_whole = pieces == 1 && !makes_operand(request.rop);
  return tile;
}

std::vector<Tile> tiles_of(const Request& request, const Product& p) {
  const int64_t veus = request.vdevice.veus();
  int64_t rows = 1;
  while (rows < p.rows()) rows *= 2;

  std::vector<Tile> tiles;
  for (int64_t columns = 1; columns <= kMostColumns; columns *= 2) {
    if (columns > 1 && p.channels <= kWarps * columns / 2) break;
    if (is_too_narrow(p, request.vdevice, columns)) continue;
    const bool may_be_whole = makes_operand(request.rop) || has_small_offsets(request.graph, p);
    std::optional<Tile> tile = may_be_whole ? tile_of(request, p, rows, columns, 1) : std::nullopt;
    // Else two pieces of all rows, of about 16 KB each.
    if (!tile && !makes_operand(request.rop)) tile = tile_of(request, p, rows, columns, 2);
    if (!tile) continue;
    tiles.push_back(*tile);
    // More blocks than vEUs: each vEU makes its rows once.
    const int64_t blocks = blocks_of(p, tile->config).n;
    if ((!tile->is_whole && !is_of_rows(request.rop)) || blocks <= veus) continue;
    tile->config.turns = ceil_div(blocks, veus);
    tiles.push_back(*tile);
  }
  return tiles;
}

std::vector<RKernel> list_candidates(const Request& request) {
  const std::optional<Product> p = gemv_product(request.graph, request.rop);
  if (!p) return {};
  std::vector<RKernel> rkernels;
  if (!is_pooled(request.rop) && has_small_offsets(request.graph, *p)) {
    for (const RowTile& row : row_tiles(request, *p)) rkernels.push_back(row_rkernel_of(request, *p, row));
  }
  if (!rkernels.empty()) return rkernels;
  for (const Tile& tile : tiles_of(request, *p)) rkernels.push_back(rkernel_of(request, *p, tile));
  return rkernels;
}

void accesses(const Graph& graph, const ROperator& rop, const RKernel& rkernel, int, int64_t index, Accesses& out) {
  const Product p = known(gemv_product(graph, rop), "gemv", rop);
  const std::optional<RowTile> row = row_tile_of(rop, p, rkernel);
  const auto of_blocks = [&] {
    const Blocks b = blocks_of(p, config_of(rkernel));
    return b.block_n * b.turns;
  };
  const int64_t of_rtask = row ? row->rtask_columns() : of_blocks(), begin = index * of_rtask, end = std::min(begin + of_rtask, p.channels);
  if (is_of_rows(rop)) return append_rows_accesses(graph, rop, begin, end, out);
  if (is_pooled(rop))
    append_whole(graph, p.in, out.reads);
  else
    append_input(graph, p, 0, p.rows(), 0, p.in_channels, out.reads);
  append_rows(p, p.out, graph.tensor(p.out).place.offset, p.out_strides, 0, p.rows(), begin, end, out.writes);
  if (!p.residual.valid()) return;
  append_rows(p, p.residual, graph.tensor(p.residual).place.offset, p.residual_strides, 0, p.rows(), begin, end, out.reads);
}

// Of products that make their operand; no pass asks for the time of other products. The weights are there before the operand.
std::optional<Estimate> estimate_unplaced(const Request& request) {
  if (!makes_operand(request.rop)) return std::nullopt;
  const std::optional<Product> p =
      is_pooled(request.rop) ? unplaced_pooled(request.graph, request.rop) : unplaced_product_of_rows(request.graph, request.rop);
  if (!p || request.graph.tensor(p->in).dtype != DType::f32) return std::nullopt;
  const ShapedVDevice& d = request.vdevice;
  const double veus = static_cast<double>(d.veus());
  std::optional<Estimate> best;
  for (const Tile& tile : tiles_of(request, *p)) {
    const Cost cost = cost_of(request, *p, tile.config, tile.rows);
    const double rounds = static_cast<double>(ceil_div(blocks_of(*p, tile.config).rtasks(), d.veus()));
    const double busy_us =
        std::max(cost.activation_bytes / (d.l2_gb_per_s * 1e3 / veus), cost.flops / (d.fp32_tflops * 1e6 / veus * cost.efficiency));
    const double us = d.edge_us + rounds * (d.rtask_us + busy_us + cost.latency_us);
    if (!best || us < best->us) best = Estimate{us};
  }
  return best;
}

}  // namespace

Family gemv() { return {"gemv", list_candidates, pack, accesses, estimate_unplaced}; }

}  // namespace tamp::kernels
