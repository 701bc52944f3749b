// Host side of normalize.cuh, normalize_rows.cuh, normalize_sums.cuh (both also of bytes) and normalize_turns.cuh. That of
// normalize_split.cuh is normalize_split.cpp.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <tuple>
#include <utility>

#include "compiler/support/error.h"
#include "kernels/args.h"
#include "kernels/family.h"
#include "kernels/loop.h"
#include "kernels/reduce/normalize_split.h"
#include "kernels/reduce/numbers.cuh"
#include "kernels/reduce/quantised_rows.h"
#include "kernels/reduce/rows.h"
#include "kernels/tile/chain.h"

namespace tamp::kernels {
namespace {

constexpr size_t kRank = rk::kRowsRank;
constexpr int64_t kConstants = 2;  // rows of values in the ring: scale and bias
using Operand = NormalizeOperand;  // of the nests
constexpr Operand kIn = kNormalizeIn, kOut = kNormalizeOut, kScale = kNormalizeScale, kBias = kNormalizeBias;

// Strides with which scale or bias is walked along the dimensions of x.
std::vector<int64_t> strides_in(const Graph& graph, TensorId id, const Shape& shape) {
  return id.valid() ? broadcast_strides(graph.tensor(id), shape) : std::vector<int64_t>(shape.size(), 0);
}

bool has_table(const ROperator& rop) { return operand(rop, kNormalizeRows).valid(); }

// Rows of the input that are one row side by side.
int64_t pieces_of(const Graph& graph, const ROperator& rop) {
  const Shape& rows = graph.tensor(operand(rop, kNormalizeRows)).shape;
  return rows.size() == 2 ? rows[1] : 1;
}
// Where each row that is taken begins in the input, from its first element; empty where the rows are in their order.
std::vector<int32_t> table_of(const Graph& graph, const ROperator& rop) {
  std::vector<int32_t> table;
  if (!has_table(rop)) return table;
  const Tensor &in = graph.tensor(rop.inputs[0]), &rows = graph.tensor(operand(rop, kNormalizeRows));
  for (int64_t r = 0; r < element_count(rows.shape); ++r) {
    const int64_t row = i64_data(rows)[r];
    TAMP_CHECK(row >= 0 && row < in.shape[0], "'" + rop.name + "' takes a row that is not there");
    table.push_back(static_cast<int32_t>(row * in.place.strides[0]));
  }
  return table;
}

Rows rows_of(const Graph& graph, const ROperator& rop) {
  const std::vector<int64_t>& axes = std::get<Normalize>(rop.attrs).axes;
  const Tensor &in = graph.tensor(rop.inputs[0]), &out = graph.tensor(rop.outputs[0]);
  const Shape& shape = out.shape;
  const std::vector<int64_t> scale = strides_in(graph, operand(rop, 1), shape), bias = strides_in(graph, operand(rop, 2), shape);
  Rows rows;
  for (size_t d = 0; d < shape.size(); ++d) {
    const bool reduced = std::find(axes.begin(), axes.end(), static_cast<int64_t>(d)) != axes.end();
    Loop& loop = reduced ? rows.reduced : rows.kept;
    const int64_t from = !reduced && has_table(rop) ? 0 : in.place.strides[d];  // a table says where rows are
    loop.push_back({shape[d], {from, out.place.strides[d], scale[d], bias[d]}});
  }
  rows.kept = normalised(rows.kept);
  rows.reduced = normalised(rows.reduced);
  return rows;
}

// x and y of any type of values (`bytes`: also of whole numbers in bytes), scale and bias in f32.
bool is_possible(const Graph& graph, const ROperator& rop, bool bytes = false) {
  for (const size_t i : {size_t{1}, size_t{2}}) {
    if (operand(rop, i).valid() && !is_plain_f32(graph.tensor(operand(rop, i)))) return false;
  }
  if (has_table(rop) && graph.tensor(operand(rop, kNormalizeRows)).role != Role::constant) return false;
  const auto is_value = [&](TensorId id) { return bytes ? is_plain_values_or_bytes(graph.tensor(id)) : is_plain_values(graph.tensor(id)); };
  return is_value(rop.inputs[0]) && is_value(rop.outputs[0]);
}

// Bytes of the ring in the packed data: a row of scale and one of bias.
int64_t ring_bytes(const Phase& phase) { return phase.ring.chunk_bytes * phase.ring.chunks_per_rtask; }

// If rows are taken where a table says, makes the phase use `body` for that. `of_access`: elements that the body loads at a time.
void append_table(const Request& request, const char* body, int64_t of_access, Phase& phase) {
  const ROperator& rop = request.rop;
  if (has_table(rop)) phase.body = body;
  phase.args.push_back({"table", has_table(rop) ? ArgValue{PackedArg{ring_bytes(phase)}} : null_arg()});
  if (!has_table(rop)) return;
  phase.args.push_back({"pieces", arg(pieces_of(request.graph, rop))});
  phase.args.push_back({"piece", divisor_arg(request.graph.tensor(rop.inputs[0]).shape.back() / of_access)});
}

// Whether scale and bias, where there are any, are constants.
bool has_constant_factors(const Request& request) {
  const auto is_constant = [&](TensorId id) { return !id.valid() || request.graph.tensor(id).role == Role::constant; };
  return is_constant(operand(request.rop, 1)) && is_constant(operand(request.rop, 2));
}

// Whether scale and bias come through the ring: they are constants, there is one row of each, and a stage has room for both.
bool has_ring(const Request& request, int64_t count) {
  const auto& [rop, vdevice] = std::tie(request.rop, request.vdevice);
  return has_constant_factors(request) && (operand(rop, 1).valid() || operand(rop, 2).valid()) &&
         kConstants * 4 * count <= vdevice.weight_stage_bytes;
}

// Makes scale and bias of rows of `count` values come through the ring, if they can. In bodies of many turns that is faster: bert_base_s128
// at batch 32 in fp16 takes 1677 us with it and 1733 without on an H200. In normalize_rows it is slower (bert_base_s128 at batch 1 378 us
// instead of 372); why was not found out.
void choose_ring(const Request& request, int64_t count, int64_t rtasks, Phase& phase) {
  const bool ring = has_ring(request, count);
  if (ring) phase.ring = {kConstants * 4 * count, 1, rtasks, 1};
  phase.template_args.emplace_back("kRing", ring ? "true" : "false");
}
ArgValue factor_arg(const ROperator& rop, size_t i, const Phase& phase) {
  return ring_bytes(phase) > 0 ? null_arg() : tensor_arg(operand(rop, i));
}

// The types of x and y in memory as template arguments, if they are not f32.
void append_types(const Request& request, Phase& phase) {
  const DType in = request.graph.tensor(request.rop.inputs[0]).dtype, out = request.graph.tensor(request.rop.outputs[0]).dtype;
  if (in == DType::f32 && out == DType::f32) return;
  phase.template_args.insert(phase.template_args.end(), {{"In", value_type(in)}, {"Out", value_type(out)}});
}

struct ElementBytes {
  double in, out;
};
ElementBytes element_bytes(const Request& request) {
  return {static_cast<double>(bytes_of(request.graph.tensor(request.rop.inputs[0]).dtype)),
          static_cast<double>(bytes_of(request.graph.tensor(request.rop.outputs[0]).dtype))};
}

// The same with what memory delivers beside an element.
ElementBytes sector_bytes(const Request& request, const Rows& rows) {
  const ElementBytes bytes = element_bytes(request);
  return {bytes.in * sector_factor(rows, kIn, static_cast<int64_t>(bytes.in)),
          bytes.out * sector_factor(rows, kOut, static_cast<int64_t>(bytes.out))};
}

RKernel rkernel_of(const Request& request, const Rows& rows, int64_t rtasks) {
  const auto& [graph, rop, vdevice, precision] = request;
  const Normalize& attrs = std::get<Normalize>(rop.attrs);
  const int64_t per_rtask = rows_per_rtask(rows, rtasks);
  const int64_t kept = kept_per_thread(rows, vdevice);
  Phase phase = body_phase("kernels/reduce/normalize.cuh", "rk::normalize", "rk::NormalizeArgs");
  phase.template_args = {{"kFlat", rows.reduced.size() <= 1 ? "true" : "false"}};
  append_types(request, phase);
  phase.args = {{"rows", rows_arg(rows, arg(TensorArg{rop.inputs[0]}), arg(TensorArg{rop.outputs[0]}), per_rtask)},
                {"scale", tensor_arg(operand(rop, 1))},
                {"bias", tensor_arg(operand(rop, 2))},
                {"kept_scale", array_arg(strides(rows.kept, kScale), kRank)},
                {"reduced_scale", array_arg(strides(rows.reduced, kScale), kRank)},
                {"kept_bias", array_arg(strides(rows.kept, kBias), kRank)},
                {"reduced_bias", array_arg(strides(rows.reduced, kBias), kRank)},
                {"kept_per_thread", arg(kept)},
                {"centered", arg(int64_t{attrs.centered})},
                {"epsilon", float_arg(attrs.epsilon)}};
  append_table(request, "rk::normalize_of", 1, phase);
  phase.work_bytes = vdevice.compute_threads * 4 * (1 + kept);
  const double elements = static_cast<double>(per_rtask) * static_cast<double>(rows.reduced_elements());
  const ElementBytes bytes = sector_bytes(request, rows);
  phase.cost.activation_bytes = elements * (bytes.in * (kept > 0 ? 1 : 3) + bytes.out + 8);
  phase.cost.flops = elements * 60 + static_cast<double>(vdevice.compute_threads) * 400;
  phase.cost.efficiency = vdevice.cost("normalize.efficiency");
  return rows_rkernel("normalize", rows, per_rtask, std::move(phase));
}

// --- normalize_rows.cuh ---------------------------------------------------------------------------------------------------

bool is_vectors(const Graph& graph, TensorId id, const std::vector<int64_t>& row_strides) {
  return graph.tensor(id).place.offset % 4 == 0 &&
         std::all_of(row_strides.begin(), row_strides.end(), [](int64_t stride) { return stride % 4 == 0; });
}

// A row lies densely in whole vectors, and scale and bias are of one row for all.
bool is_rows(const Request& request, const Rows& rows) {
  const int64_t warps = request.vdevice.compute_threads / rk::kWarp, longest = rk::kNormalizeLargestEach * warps * rk::kWarp * 4;
  const ROperator& rop = request.rop;
  if (rows.reduced.size() != 1 || rows.kept.size() > rk::kNormalizeRowsRank) return false;
  const int64_t count = rows.reduced[0].extent;
  if (count % 4 != 0 || count > longest || !std::has_single_bit(static_cast<uint64_t>(warps))) return false;
  const auto lies = [&](Operand which, TensorId id) {
    return rows.reduced[0].strides[which] == 1 && is_vectors(request.graph, id, strides(rows.kept, which));
  };
  if (!lies(kIn, rop.inputs[0]) || !lies(kOut, rop.outputs[0])) return false;
  const Tensor& in = request.graph.tensor(rop.inputs[0]);
  if (has_table(rop) && (in.place.strides[0] % 4 != 0 || in.shape[1] % 4 != 0)) return false;
  for (const auto& [which, i] : {std::pair{kScale, size_t{1}}, std::pair{kBias, size_t{2}}}) {
    if (!operand(rop, i).valid()) continue;
    const std::vector<int64_t> kept = strides(rows.kept, which);
    if (!lies(which, operand(rop, i)) || std::any_of(kept.begin(), kept.end(), [](int64_t stride) { return stride != 0; })) return false;
  }
  return true;
}

// Threads of a row, a power of two, and vectors of a thread. Two vectors a thread are fastest if all rows of a rTask then fit beside each
// other (two rows of 768: 128 threads each); else as few threads as possible are. Rows of networks are mostly 3 or 4 times a power of two
// vectors.
struct RowThreads {
  int64_t threads, each;
};
RowThreads threads_of(int64_t vectors, int64_t rows, int64_t all_threads) {
  const auto of_two = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(ceil_div(vectors, 2))));
  if (of_two * rows <= all_threads) return {of_two, 2};
  RowThreads best{all_threads, rk::kNormalizeLargestEach};
  for (const int64_t each : {int64_t{3}, int64_t{4}}) {
    const auto threads = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(ceil_div(vectors, each))));
    if (threads <= all_threads && threads * each <= best.threads * best.each) best = {threads, each};
  }
  return best;
}

RKernel rows_kernel_of(const Request& request, const Rows& rows, int64_t per_rtask) {
  const auto& [graph, rop, vdevice, precision] = request;
  const Normalize& attrs = std::get<Normalize>(rop.attrs);
  const int64_t count = rows.reduced_elements(), vectors = count / 4, all_threads = vdevice.compute_threads;
  const auto [threads, each] = threads_of(vectors, per_rtask, all_threads);
  Phase phase = early_phase("kernels/reduce/normalize_rows.cuh", "rk::normalize_rows", "rk::NormalizeRowsArgs");
  phase.template_args = {{"kEach", std::to_string(each)}};
  append_types(request, phase);
  phase.args = {{"in", arg(TensorArg{rop.inputs[0]})},
                {"out", arg(TensorArg{rop.outputs[0]})},
                {"scale", tensor_arg(operand(rop, 1))},
                {"bias", tensor_arg(operand(rop, 2))},
                {"kept_in", array_arg(strides(rows.kept, kIn), rk::kNormalizeRowsRank)},
                {"kept_out", array_arg(strides(rows.kept, kOut), rk::kNormalizeRowsRank)},
                {"kept_divisors", divisors_arg(inner_extents(rows.kept), rk::kNormalizeRowsRank - 1)},
                {"kept_rank", arg(static_cast<int64_t>(rows.kept.size()))},
                {"rows", arg(rows.rows())},
                {"rows_per_rtask", arg(per_rtask)},
                {"vectors", arg(vectors)},
                {"threads_log2", log2_arg(threads)},
                {"inverse_count", float_arg(1.0F / static_cast<float>(count))},
                {"epsilon", float_arg(attrs.epsilon)},
                {"centered", arg(int64_t{attrs.centered})},
                {"factors_await", arg(int64_t{!has_constant_factors(request)})}};
  const bool side_by_side = has_table(rop) && pieces_of(graph, rop) > 1;
  append_table(request, side_by_side ? "rk::normalize_rows_side_by_side" : "rk::normalize_rows_of", 4, phase);
  phase.work_bytes = 2 * 4 * all_threads / rk::kWarp;
  const double turns = static_cast<double>(ceil_div(per_rtask, all_threads / threads));
  const ElementBytes bytes = element_bytes(request);
  phase.cost.activation_bytes = static_cast<double>(per_rtask * count) * (bytes.in + bytes.out);
  phase.cost.calibrated_cycles = vdevice.cost("normalize.fixed_cycles") + (turns - 1) * vdevice.cost("normalize.turn_cycles");
  RKernel rkernel = rows_rkernel("normalize", rows, per_rtask, std::move(phase));
  rkernel.name = "normalize<rows, " + std::to_string(rkernel.rtasks()) + ">";
  return rkernel;
}

// --- normalize_turns.cuh --------------------------------------------------------------------------------------------------

// Threads of a row, a power of two and at most a warp, and octets of a thread; as few threads as possible, then as many as have work.
// No threads: the row is too long.
RowThreads turn_threads_of(int64_t octets) {
  RowThreads best{0, 0};
  for (const int64_t each : {int64_t{3}, int64_t{4}}) {
    const auto threads = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(ceil_div(octets, each))));
    if (threads <= rk::kWarp && (best.threads == 0 || threads * each < best.threads * best.each)) best = {threads, each};
  }
  return best;
}

// Beside what is_rows asks for: octets, and rows at one distance.
bool has_turns(const Request& request, const Rows& rows) {
  const ROperator& rop = request.rop;
  if (has_table(rop) || rows.kept.size() != 1 || rows.reduced_elements() % 8 != 0) return false;
  if (turn_threads_of(rows.reduced_elements() / 8).threads == 0) return false;
  for (const auto& [which, id] : {std::pair{kIn, rop.inputs[0]}, std::pair{kOut, rop.outputs[0]}}) {
    const Tensor& tensor = request.graph.tensor(id);
    const int64_t row = rows.kept[0].strides[which], aligned = is_narrow(tensor.dtype) ? 8 : 4;
    if (row < 0 || row % aligned != 0 || tensor.place.offset % aligned != 0) return false;
  }
  return true;
}

RKernel turns_kernel_of(const Request& request, const Rows& rows, int64_t per_rtask) {
  const auto& [graph, rop, vdevice, precision] = request;
  const Normalize& attrs = std::get<Normalize>(rop.attrs);
  const int64_t count = rows.reduced_elements();
  const auto [threads, each] = turn_threads_of(count / 8);
  const bool narrow = is_narrow(graph.tensor(rop.inputs[0]).dtype);
  const int64_t at_once = each == 3 && narrow ? 2 : 1;  // rows of a thread: more do not fit in its registers
  Phase phase = early_phase("kernels/reduce/normalize_turns.cuh", "rk::normalize_turns", "rk::NormalizeTurnsArgs");
  phase.template_args = {{"kEach", std::to_string(each)}, {"kRows", std::to_string(at_once)}};
  choose_ring(request, count, ceil_div(rows.rows(), per_rtask), phase);
  append_types(request, phase);
  phase.args = {{"in", arg(TensorArg{rop.inputs[0]})},
                {"out", arg(TensorArg{rop.outputs[0]})},
                {"scale", factor_arg(rop, 1, phase)},
                {"bias", factor_arg(rop, 2, phase)},
                {"in_row", arg(rows.kept[0].strides[kIn])},
                {"out_row", arg(rows.kept[0].strides[kOut])},
                {"rows", arg(rows.rows())},
                {"rows_per_rtask", arg(per_rtask)},
                {"octets", arg(count / 8)},
                {"threads_log2", log2_arg(threads)},
                {"inverse_count", float_arg(1.0F / static_cast<float>(count))},
                {"epsilon", float_arg(attrs.epsilon)},
                {"centered", arg(int64_t{attrs.centered})}};
  const ElementBytes bytes = element_bytes(request);
  const double elements = static_cast<double>(per_rtask * count);
  phase.cost.activation_bytes = elements * (bytes.in + bytes.out);
  phase.cost.calibrated_cycles =
      vdevice.cost("normalize.turns_fixed_cycles") + phase.cost.activation_bytes * vdevice.cost("normalize.turns_byte_cycles");
  RKernel rkernel = rows_rkernel("normalize", rows, per_rtask, std::move(phase));
  rkernel.name = "normalize<turns, " + std::to_string(rkernel.rtasks()) + ">";
  return rkernel;
}

// How often the threads of a rTask of normalize_rows go on to other rows.
int64_t turns_of(const Request& request, const Rows& rows, int64_t per_rtask) {
  const int64_t all_threads = request.vdevice.compute_threads;
  return ceil_div(per_rtask, all_threads / threads_of(rows.reduced_elements() / 4, per_rtask, all_threads).threads);
}

// As many rTasks as vEUs; the fewest rTasks whose threads all have a row, since the next rOperator then waits for fewer; and, where there
// are several turns, the body for these, whose code is longer.
std::vector<RKernel> rows_offers(const Request& request, const Rows& rows) {
  const int64_t all_threads = request.vdevice.compute_threads;
  const int64_t spread = std::max<int64_t>(1, ceil_div(rows.rows(), request.vdevice.veus()));
  const int64_t at_once = all_threads / threads_of(rows.reduced_elements() / 4, spread, all_threads).threads;
  std::vector<RKernel> out = {rows_kernel_of(request, rows, spread)};
  if (const int64_t packed = ceil_div(spread, at_once) * at_once; packed != spread) out.push_back(rows_kernel_of(request, rows, packed));
  // A program in clusters has fewer vEUs, of which a product beside this one leaves few: a warp a row, so that these have all rows at once.
  const int64_t warps = all_threads / rk::kWarp;
  if (request.vdevice.cluster_veus > 1 && rows.rows() > warps && spread < warps) out.push_back(rows_kernel_of(request, rows, warps));
  if (turns_of(request, rows, spread) > 1 && has_turns(request, rows)) out.push_back(turns_kernel_of(request, rows, spread));
  return out;
}

bool is_byte(const Graph& graph, TensorId id) { return id.valid() && is_whole_byte(graph.tensor(id).dtype); }
ArgValue low_arg(const Graph& graph, TensorId id) { return float_arg(id.valid() ? static_cast<float>(low_of(graph, id)) : 0); }

// Those of normalize_rows that quantise, too.
std::vector<RKernel> quantised_offers(const Request& whole, const QuantisedRows& quantised) {
  const Request request{whole.graph, quantised.rop, whole.vdevice, whole.precision};
  if (!std::holds_alternative<Normalize>(quantised.rop.attrs) || !is_possible(request.graph, quantised.rop, /*bytes=*/true)) return {};
  const Rows rows = rows_of(request.graph, quantised.rop);
  if (!is_rows(request, rows)) return {};
  std::vector<RKernel> out = rows_offers(request, rows);
  std::erase_if(out, [](const RKernel& rkernel) { return rkernel.phases[0].body != "rk::normalize_rows"; });
  for (RKernel& rkernel : out) {
    rkernel.name = "normalize<quantised rows, " + std::to_string(rkernel.rtasks()) + ">";
    Phase& phase = rkernel.phases[0];
    phase.body = "rk::normalize_rows_quantised";
    const TensorId x = quantised.rop.inputs[0], y = quantised.rop.outputs[0];
    if (is_byte(request.graph, x) || is_byte(request.graph, y)) phase.header = "kernels/reduce/normalize_rows_bytes.cuh";
    const Quantised& by = quantised.by;
    add_args(phase, {{"divisor", float_arg(by.divisor)},
                     {"low", float_arg(by.low)},
                     {"high", float_arg(by.high)},
                     {"in_low", low_arg(request.graph, x)},
                     {"out_low", low_arg(request.graph, y)}});
  }
  return out;
}

// --- normalize_sums.cuh ---------------------------------------------------------------------------------------------------

bool is_near(const Graph& graph, const SummedRows& summed, TensorId id) {
  return graph.tensor(id).shape != graph.tensor(summed.normalize.outputs[0]).shape;
}

// Whether any of the rows that are read or made are whole numbers in bytes.
bool summed_bytes(const Graph& graph, const SummedRows& summed, const Chain& chain) {
  return is_byte(graph, summed.normalize.outputs[0]) || is_byte(graph, summed.chain.outputs[0]) ||
         std::any_of(chain.inputs.begin(), chain.inputs.end(), [&](TensorId id) { return is_byte(graph, id); });
}

// The chain in front, if the body takes it and its operands lie alike.
std::optional<Chain> summed_chain(const Graph& graph, const SummedRows& summed) {
  std::optional<Chain> chain = make_chain(graph, summed.chain.inputs, std::get<Elementwise>(summed.chain.attrs).steps);
  if (!chain || !(has_static_steps(*chain) || has_long_static_steps(*chain)) || chain->inputs.size() > rk::kSummedInputs)
    return std::nullopt;
  const Tensor& rows = graph.tensor(summed.normalize.inputs[0]);
  const auto lies_alike = [&](const Tensor& tensor) {
    if (!is_plain_values_or_bytes(tensor) || tensor.place.offset % 4 != 0) return false;
    for (size_t d = 0; d < rows.shape.size(); ++d) {
      if (rows.shape[d] > 1 && tensor.place.strides[d] != rows.place.strides[d]) return false;
    }
    return true;
  };
  // Without bytes all rows have one type; beside bytes the others may be f32 and one type of 16 bits.
  const TensorId sums = summed.chain.outputs[0];
  const bool bytes = summed_bytes(graph, summed, *chain);
  DType narrow = DType::f32;
  for (const TensorId id : chain->inputs) {
    const Tensor& tensor = graph.tensor(id);
    const bool is_row = is_plain_f32(tensor) && tensor.place.strides.back() == 1 && tensor.place.offset % 4 == 0;
    if (is_near(graph, summed, id) ? !is_row : !lies_alike(tensor) || (!bytes && tensor.dtype != rows.dtype)) return std::nullopt;
    if (is_narrow(tensor.dtype) && is_narrow(narrow) && tensor.dtype != narrow) return std::nullopt;
    if (is_narrow(tensor.dtype)) narrow = tensor.dtype;
  }
  return !sums.valid() || lies_alike(graph.tensor(sums)) ? chain : std::nullopt;
}

// Bytes of all rows that are read and written, where normalize_rows counts the first input and the result. Of rows without bytes
// all count alike, near ones, too.
double summed_bytes_factor(const Request& whole, const SummedRows& summed, const Chain& chain) {
  const Graph& graph = whole.graph;
  const TensorId sums = summed.chain.outputs[0];
  if (!summed_bytes(graph, summed, chain)) return static_cast<double>(chain.inputs.size() + (sums.valid() ? 2 : 1)) / 2;
  const auto bytes_in = [&](TensorId id) { return id.valid() ? static_cast<double>(bytes_of(graph.tensor(id).dtype)) : 0; };
  const double counted = bytes_in(summed.normalize.inputs[0]) + bytes_in(summed.normalize.outputs[0]);
  double all = bytes_in(summed.normalize.outputs[0]) + bytes_in(sums);
  for (const TensorId id : chain.inputs) all += is_near(graph, summed, id) ? 0 : bytes_in(id);
  return all / counted;
}

// Makes the phase one of the body whose rows may be bytes, with types for all of them.
void take_bytes(const Graph& graph, const Chain& chain, Phase& phase) {
  set_body(phase, "kernels/reduce/normalize_sums_bytes.cuh", "rk::normalize_rows_summed_bytes", "rk::NormalizeSumsArgs");
  DType value = DType::f32;
  int64_t narrow = 0, is_signed = 0, is_unsigned = 0;
  for (size_t i = 0; i < chain.inputs.size(); ++i) {
    const DType dtype = graph.tensor(chain.inputs[i]).dtype;
    if (is_narrow(dtype)) value = dtype;
    narrow |= int64_t{is_narrow(dtype)} << i;
    is_signed |= int64_t{dtype == DType::whole_i8} << i;
    is_unsigned |= int64_t{dtype == DType::whole_u8} << i;
  }
  const auto mask = [](int64_t operands) { return fmt::format("{:#x}u", operands); };
  phase.template_args = {phase.template_args[0],
                         {"Value", value_type(value)},
                         {"kNarrow", mask(narrow)},
                         {"kSigned", mask(is_signed)},
                         {"kUnsigned", mask(is_unsigned)}};
}

int64_t summed_work_bytes(const Graph& graph, const SummedRows& summed, const Chain& chain, const Phase& phase) {
  int further = 0, all = 0, rows = 2;
  for (const TensorId id : chain.inputs) {
    const bool near = is_near(graph, summed, id);
    if (!near && all++ > 0) further += 4 * static_cast<int>(bytes_of(graph.tensor(id).dtype));
    rows += near ? 1 : 0;
  }
  const int64_t vectors = rows_of(graph, summed.normalize).reduced_elements() / 4;
  return rk::sums_work_bytes(std::stoi(phase.template_args[0].second), further, rows, static_cast<int>(vectors));
}

void sum_in_front(const Request& whole, const SummedRows& summed, const Chain& chain, Phase& phase) {
  const Graph& graph = whole.graph;
  const TensorId sums = summed.chain.outputs[0];
  const DType in = graph.tensor(summed.normalize.inputs[0]).dtype, out = graph.tensor(summed.normalize.outputs[0]).dtype;
  int64_t near = 0;
  ArgList inputs, constants, lows;
  for (size_t i = 0; i < rk::kSummedInputs; ++i) {
    const bool used = i < chain.inputs.size();
    inputs.push_back(used ? arg(TensorArg{chain.inputs[i]}) : null_arg());
    lows.push_back(used ? low_arg(graph, chain.inputs[i]) : float_arg(0));
    near |= int64_t{used && is_near(graph, summed, chain.inputs[i])} << i;
  }
  for (const float value : chain.constants) constants.push_back(float_arg(value));
  if (constants.empty()) constants.push_back(float_arg(0));
  if (summed_bytes(graph, summed, chain)) {
    take_bytes(graph, chain, phase);
  } else {
    set_body(phase, "kernels/reduce/normalize_sums.cuh", "rk::normalize_rows_summed", "rk::NormalizeSumsArgs");
    phase.template_args = {phase.template_args[0], {"In", value_type(in)}};
  }
  const DType of_sums = is_whole_byte(in) ? DType::f32 : in;  // not kept: any
  phase.template_args.insert(phase.template_args.end(), {{"Sum", value_type(sums.valid() ? graph.tensor(sums).dtype : of_sums)},
                                                         {"Out", value_type(out)},
                                                         {"kInputs", std::to_string(chain.inputs.size())},
                                                         {"kNear", std::to_string(near)},
                                                         {"kTemporaries", std::to_string(chain.temporaries)},
                                                         {"kKeeps", sums.valid() ? "true" : "false"}});
  for (const ChainStep& step : chain.steps) phase.template_args.emplace_back("kSteps", step_text(step));
  add_args(phase, {{"pieces", arg(int64_t{0})},
                   {"piece", divisor_arg(1)},
                   {"divisor", float_arg(summed.by.divisor)},
                   {"low", float_arg(summed.by.low)},
                   {"high", float_arg(summed.by.high)},
                   {"out_low", low_arg(graph, summed.normalize.outputs[0])}});
  phase.args = {{"rows", struct_arg(std::move(phase.args))}, {"sums", tensor_arg(sums)},       {"inputs", ArgValue{inputs}},
                {"constants", ArgValue{constants}},          {"step", float_arg(summed.step)}, {"lows", ArgValue{lows}},
                {"sums_low", low_arg(graph, sums)}};
  phase.work_bytes = summed_work_bytes(graph, summed, chain, phase);
  phase.cost.activation_bytes *= summed_bytes_factor(whole, summed, chain);
  phase.cost.calibrated_cycles += whole.vdevice.cost("normalize.sums_cycles");
}

std::vector<RKernel> summed_offers(const Request& whole, const SummedRows& summed) {
  const Request request{whole.graph, summed.normalize, whole.vdevice, whole.precision};
  if (!is_possible(request.graph, summed.normalize, /*bytes=*/true)) return {};
  const std::optional<Chain> chain = summed_chain(whole.graph, summed);
  const Rows rows = rows_of(request.graph, summed.normalize);
  if (!chain || !is_rows(request, rows)) return {};
  std::vector<RKernel> out = rows_offers(request, rows);
  std::erase_if(out, [](const RKernel& rkernel) { return rkernel.phases[0].body != "rk::normalize_rows"; });
  for (RKernel& rkernel : out) {
    rkernel.name = "normalize<quantised sums, " + std::to_string(rkernel.rtasks()) + ">";
    sum_in_front(whole, summed, *chain, rkernel.phases[0]);
  }
  std::erase_if(out, [&](const RKernel& rkernel) { return rkernel.phases[0].work_bytes > whole.vdevice.work_bytes(); });
  return out;
}

void summed_accesses(const Graph& graph, const SummedRows& summed, const RKernel& rkernel, int64_t index, Accesses& out) {
  const Rows rows = rows_of(graph, summed.normalize);
  append_rows(rows, graph, summed.normalize, rkernel, index, out);
  const int64_t per_rtask = rkernel.config_value("rows_per_rtask");
  const int64_t begin = index * per_rtask, end = std::min(begin + per_rtask, rows.rows());
  const std::optional<Chain> chain = summed_chain(graph, summed);
  for (const TensorId id : chain->inputs) {
    if (is_near(graph, summed, id))
      append_whole(graph, id, out.reads);
    else if (id != summed.normalize.inputs[0])
      append_row_reads(rows, graph, id, begin, end, out.reads);
  }
  if (summed.chain.outputs[0].valid()) append_row_reads(rows, graph, summed.chain.outputs[0], begin, end, out.writes);
  for (const size_t i : {size_t{1}, size_t{2}}) {
    if (operand(summed.normalize, i).valid()) append_whole(graph, operand(summed.normalize, i), out.reads);
  }
}

std::vector<RKernel> offers(const Request& request) {
  const ROperator& rop = request.rop;
  if (const auto summed = summed_rows_of(request.graph, rop)) return summed_offers(request, *summed);
  if (const auto quantised = quantised_rows_of(request.graph, rop)) return quantised_offers(request, *quantised);
  if (!std::holds_alternative<Normalize>(rop.attrs) || has_epilogue(rop) || !is_possible(request.graph, rop)) return {};
  const Rows rows = rows_of(request.graph, rop);
  if (is_rows(request, rows)) return rows_offers(request, rows);
  if (rows.kept.size() > kRank || rows.reduced.size() > kRank) return {};
  const std::vector<Rows> layouts = layouts_of(rows, request.vdevice);
  std::vector<RKernel> out;
  for (const Rows& layout : layouts) out.push_back(rkernel_of(request, layout, request.vdevice.veus()));
  if (out[0].rtasks() > 8) out.push_back(rkernel_of(request, layouts[0], std::max<int64_t>(1, request.vdevice.veus() / 4)));
  if (has_table(rop)) return out;
  if (std::optional<RKernel> split = split_normalize(request, rows)) out.push_back(*std::move(split));
  return out;
}

// The ring, then the table.
Bytes pack(const Graph& graph, const ROperator& rop, const RKernel& rkernel, int) {
  if (std::holds_alternative<Fused>(rop.attrs)) return {};  // no ring, no table
  std::vector<float> constants;
  if (const int64_t count = ring_bytes(rkernel.phases[0]) / (kConstants * 4); count > 0) {
    append_columns(graph, operand(rop, 1), count, 1, constants);
    append_columns(graph, operand(rop, 2), count, 0, constants);
  }
  const std::vector<int32_t> table = table_of(graph, rop);
  Bytes bytes(constants.size() * sizeof(float) + table.size() * sizeof(int32_t));
  if (!constants.empty()) std::memcpy(bytes.data(), constants.data(), constants.size() * sizeof(float));
  if (!table.empty()) std::memcpy(bytes.data() + constants.size() * sizeof(float), table.data(), table.size() * sizeof(int32_t));
  return bytes;
}

void accesses(const Graph& graph, const ROperator& rop, const RKernel& rkernel, int phase, int64_t index, Accesses& out) {
  if (const auto summed = summed_rows_of(graph, rop)) return summed_accesses(graph, *summed, rkernel, index, out);
  if (const auto quantised = quantised_rows_of(graph, rop)) return accesses(graph, quantised->rop, rkernel, phase, index, out);
  const Rows rows = rows_of(graph, rop);
  if (is_split_normalize(rkernel)) {
    split_normalize_accesses(graph, rop, rows, rkernel, phase, index, out);
    if (phase == 0) return;
  } else if (has_table(rop)) {
    const std::vector<int32_t> table = table_of(graph, rop);
    const int64_t per_rtask = rkernel.config_value("rows_per_rtask"), pieces = pieces_of(graph, rop);
    const int64_t each = rows.reduced_elements() / pieces;
    for (int64_t r = index * per_rtask * pieces; r < std::min((index + 1) * per_rtask, rows.rows()) * pieces; ++r) {
      const int64_t begin = graph.tensor(rop.inputs[0]).place.offset + table[static_cast<size_t>(r)];
      append_runs(rows.reduced, kIn, rop.inputs[0], begin, 0, each, out.reads);
    }
    Accesses all;
    append_rows(rows, graph, rop, rkernel, index, all);
    out.writes.insert(out.writes.end(), all.writes.begin(), all.writes.end());
  } else {
    append_rows(rows, graph, rop, rkernel, index, out);
  }
  for (const size_t i : {size_t{1}, size_t{2}}) {
    if (operand(rop, i).valid() && ring_bytes(rkernel.phases[0]) == 0) append_whole(graph, operand(rop, i), out.reads);
  }
}

}  // namespace

Family normalize() {
  return {"normalize", offers, pack, accesses, nullptr, Narrowed::computes, /*takes_sums=*/false, /*takes_bytes=*/true};
}

}  // namespace tamp::kernels
