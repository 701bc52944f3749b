// Host side of attention.cuh, attention_rows.cuh, attention_once.cuh, attention_few.cuh and attention_rounded.cuh (also of bytes).
#include <algorithm>
#include <array>
#include <cmath>

#include "kernels/args.h"
#include "kernels/attention/numbers.cuh"
#include "kernels/family.h"
#include "kernels/loop.h"
#include "kernels/narrow.h"

namespace tamp::kernels {
namespace {

constexpr size_t kBatchRank = rk::kAttentionBatchRank;
constexpr int64_t kRows = rk::kAttentionRows;
enum Operand : size_t { kOut, kQ, kK, kV, kBias, kTable, kOperands };

struct Heads {
  std::array<TensorId, kOperands> tensors;  // the bias and the table may be none
  Loop batch;                               // one stride per operand; with a table of several windows these are the outermost dimension
  int64_t queries = 0, keys = 0, size = 0, values = 0;  // with a table: of a window
  std::array<MatrixStrides, kOperands> strides;

  bool has_table() const { return tensors[kTable].valid(); }
  int64_t all() const { return loop_elements(batch); }
  int64_t blocks(int64_t groups) const { return ceil_div(queries, groups * kRows); }  // of a head
  // `heads`: of a rTask.
  int64_t rtasks(int64_t groups, int64_t heads = 1) const { return ceil_div(all(), heads) * blocks(groups); }
};

// The extents, which are known before tensors have places.
Heads unplaced(const Graph& graph, const ROperator& rop) {
  const auto shape = [&](size_t i) -> const Shape& { return graph.tensor(rop.inputs[i]).shape; };
  Heads heads;
  heads.tensors = {
      rop.outputs[0], rop.inputs[0], rop.inputs[1], rop.inputs[2], operand(rop, kAttentionBias), operand(rop, kAttentionRowTable)};
  heads.queries = shape(0)[shape(0).size() - 2];
  heads.size = shape(0).back();
  heads.keys = shape(1)[shape(1).size() - 2];
  heads.values = shape(2).back();
  const auto append = [&](int64_t extent) { heads.batch.push_back({extent, std::vector<int64_t>(kOperands, 0)}); };
  if (heads.has_table()) {
    append(shape(kAttentionRowTable)[0]);
    heads.queries = heads.keys = shape(kAttentionRowTable)[1];
  }
  const Shape& out = graph.tensor(rop.outputs[0]).shape;
  for (size_t d = 0; d + 2 < out.size(); ++d) append(out[d]);
  return heads;
}

// The heads of a window in the order in which they lie. The windows stay outermost, although they have no strides of their own.
Loop normalised_heads(Loop batch, bool has_windows) {
  if (!has_windows) return normalised(std::move(batch));
  const LoopDim windows = batch.front();
  batch.erase(batch.begin());
  batch = normalised(std::move(batch));
  if (windows.extent != 1) batch.insert(batch.begin(), windows);
  return batch;
}

Heads heads_of(const Graph& graph, const ROperator& rop) {
  Heads heads = unplaced(graph, rop);
  const size_t windows = heads.has_table() ? 1 : 0;  // dimensions of them
  for (const Operand operand : {kOut, kQ, kK, kV, kBias}) {
    const TensorId id = heads.tensors[operand];
    if (!id.valid()) continue;
    const Tensor& tensor = graph.tensor(id);
    Shape shape = extents(heads.batch);
    if (operand == kBias)
      shape.insert(shape.end(), {heads.queries, heads.keys});
    else
      shape.insert(shape.end(), tensor.shape.end() - 2, tensor.shape.end());
    if (operand != kBias) shape.erase(shape.begin(), shape.begin() + static_cast<std::ptrdiff_t>(windows));
    const std::vector<int64_t> strides = broadcast_strides(tensor, shape);
    const size_t first = operand == kBias ? 0 : windows;
    for (size_t d = 0; d + 2 < strides.size(); ++d) heads.batch[first + d].strides[operand] = strides[d];
    heads.strides[operand] = {strides[strides.size() - 2], strides.back()};
  }
  if (heads.has_table()) heads.batch[0].strides[kTable] = heads.queries;
  heads.batch = normalised_heads(std::move(heads.batch), heads.has_table());
  return heads;
}

// The rows of all windows, one window behind the other.
std::vector<int32_t> table_of(const Graph& graph, const ROperator& rop) {
  const TensorId table = operand(rop, kAttentionRowTable);
  if (!table.valid()) return {};
  const int64_t* const rows = i64_data(graph.tensor(table));
  std::vector<int32_t> out;
  for (int64_t i = 0; i < element_count(graph.tensor(table).shape); ++i) out.push_back(static_cast<int32_t>(rows[i]));
  return out;
}

// Whether a row is whole, aligned groups of so many elements.
bool is_groups(const Graph& graph, const Heads& heads, Operand operand, int64_t of_group) {
  const auto [row, column] = heads.strides[operand];
  const Tensor& tensor = graph.tensor(heads.tensors[operand]);
  if (column != 1 || row % of_group != 0 || tensor.shape.back() % of_group != 0 || tensor.place.offset % of_group != 0) return false;
  return std::all_of(heads.batch.begin(), heads.batch.end(), [&](const LoopDim& dim) { return dim.strides[operand] % of_group == 0; });
}
bool is_vector(const Graph& graph, const Heads& heads, Operand operand) { return is_groups(graph, heads, operand, 4); }
// The same of cells of 16 bytes, or of 8 numbers of a byte each.
bool is_cells(const Graph& graph, const Heads& heads, Operand operand) {
  return is_groups(graph, heads, operand, std::min<int64_t>(16 / bytes_of(graph.tensor(heads.tensors[operand]).dtype), 8));
}

int64_t padded_size(const Heads& heads) { return ceil_div(std::max(heads.size, heads.values), 32) * 32; }

DType type_of(const Graph& graph, const Heads& heads, Operand operand) { return graph.tensor(heads.tensors[operand]).dtype; }

// Whether the types are those that the body takes: Q, K and V have one type; each tensor may have 16 bits. A table is a constant. Where the
// Attention rounds, Q, K and V may be bytes, signed or not, and so may a result that is rounded.
bool is_of_values(const Graph& graph, const ROperator& rop) {
  const std::optional<AttentionRounding>& rounding = std::get<Attention>(rop.attrs).rounding;
  const TensorId table = operand(rop, kAttentionRowTable);
  const auto is_one_of_three = [&](TensorId id) { return id == rop.inputs[0] || id == rop.inputs[1] || id == rop.inputs[2]; };
  const auto is_value = [&](TensorId id, bool may_be_byte) {
    return may_be_byte ? is_plain_values_or_bytes(graph.tensor(id)) : is_plain_values(graph.tensor(id));
  };
  for (const TensorId id : reads_of(rop)) {
    if (id == table ? graph.tensor(id).role != Role::constant : !is_value(id, rounding && is_one_of_three(id))) return false;
  }
  const auto in = [&](size_t i) { return graph.tensor(rop.inputs[i]).dtype; };
  const bool are_bytes = is_whole_byte(in(0)) && is_whole_byte(in(1)) && is_whole_byte(in(2));
  return (are_bytes || (in(0) == in(1) && in(0) == in(2))) && is_value(rop.outputs[0], rounding && rounding->results.rounds());
}

// The type in which a body sees Q, K and V: bytes of both kinds are one.
DType in_type(const Graph& graph, const Heads& heads) {
  const DType dtype = type_of(graph, heads, kQ);
  return is_whole_byte(dtype) ? DType::whole_u8 : dtype;
}

// Appends the template arguments for types other than f32, and for a table, which comes behind all of them.
void append_types(const Graph& graph, const Heads& heads, Phase& phase) {
  const DType in = in_type(graph, heads), out = type_of(graph, heads, kOut);
  const DType bias = heads.tensors[kBias].valid() ? type_of(graph, heads, kBias) : DType::f32;
  if (in == DType::f32 && out == DType::f32 && !is_narrow(bias) && !heads.has_table()) return;
  phase.template_args.insert(phase.template_args.end(), {{"In", value_type(in)}, {"Out", value_type(out)}});
  if (is_narrow(bias) || heads.has_table()) phase.template_args.push_back({"Bias", value_type(bias)});
  if (heads.has_table()) phase.template_args.push_back({"kTable", "true"});
}

// Whether the body and the vDevice can compute these heads.
bool is_possible(const Heads& heads, const ShapedVDevice& d, Precision precision) {
  const int64_t size = padded_size(heads);
  return precision != Precision::fp32 && d.tf32 && heads.rtasks(1) > 0 && heads.keys > 0 && heads.size > 0 && size > 0 &&
         size <= rk::kAttentionLargestSize && rk::attention_work_bytes(static_cast<int>(size)) <= d.work_bytes();
}

// Cycles of a rTask. A turn is 8 keys for every warp of a group.
double cycles_of(const Heads& heads, const ShapedVDevice& d, int64_t groups) {
  const int64_t turns = ceil_div(heads.keys, rk::kAttentionWarps / groups * rk::kAttentionWarpKeys);
  return d.cost("attention.fixed_cycles") + static_cast<double>(turns) * d.cost("attention.turn_cycles");
}

ArgValue keys_arg(const Heads& heads, const Attention& attrs) { return attrs.end ? ArgValue{ExtentArg{{*attrs.end}}} : arg(heads.keys); }

// The arguments of all bodies. `groups`: of 16 queries in a rTask; `of_rtask`: its heads, of `all`; attention_few's units instead of heads.
std::vector<Arg> arguments_of(const Request& request, const Heads& heads, int64_t groups, int64_t of_rtask, int64_t all) {
  const auto batch = [&](Operand operand) { return array_arg(strides(heads.batch, operand), kBatchRank); };
  std::vector<Arg> args = {{"out", arg(TensorArg{heads.tensors[kOut]})},
                           {"q", arg(TensorArg{heads.tensors[kQ]})},
                           {"k", arg(TensorArg{heads.tensors[kK]})},
                           {"v", arg(TensorArg{heads.tensors[kV]})},
                           {"bias", tensor_arg(heads.tensors[kBias])},
                           {"out_batch", batch(kOut)},
                           {"q_batch", batch(kQ)},
                           {"k_batch", batch(kK)},
                           {"v_batch", batch(kV)},
                           {"bias_batch", batch(kBias)},
                           {"batch_divisors", divisors_arg(inner_extents(heads.batch), kBatchRank - 1)},
                           {"batch_rank", arg(static_cast<int64_t>(heads.batch.size()))},
                           {"heads", arg(of_rtask)},
                           {"all_heads", arg(all)},
                           {"queries", arg(heads.queries)},
                           {"keys", keys_arg(heads, std::get<Attention>(request.rop.attrs))},
                           {"size", arg(heads.size)},
                           {"values", arg(heads.values)},
                           {"out_m", arg(heads.strides[kOut].row)},
                           {"out_n", arg(heads.strides[kOut].column)},
                           {"q_m", arg(heads.strides[kQ].row)},
                           {"q_k", arg(heads.strides[kQ].column)},
                           {"k_n", arg(heads.strides[kK].row)},
                           {"k_k", arg(heads.strides[kK].column)},
                           {"v_n", arg(heads.strides[kV].row)},
                           {"v_columns", arg(heads.strides[kV].column)},
                           {"bias_m", arg(heads.strides[kBias].row)},
                           {"bias_n", arg(heads.strides[kBias].column)},
                           {"blocks", divisor_arg(heads.blocks(groups))},
                           {"groups_log2", log2_arg(groups)},
                           {"scale", float_arg(std::get<Attention>(request.rop.attrs).scale)},
                           {"weightless", arg(static_cast<int64_t>(std::get<Attention>(request.rop.attrs).weightless))}};
  if (heads.has_table()) args.insert(args.end(), {{"table", ArgValue{PackedArg{0}}}, {"table_batch", batch(kTable)}});
  return args;
}

const char* name_end(const Heads& heads) { return heads.has_table() ? ", by a table>" : ">"; }

// What a rTask of `groups` groups of queries of `of_rtask` heads does.
Cost cost_of(const Request& request, const Heads& heads, int64_t groups, int64_t of_rtask, double cycles) {
  const double keys = static_cast<double>(heads.keys), edge = static_cast<double>(groups * kRows);
  // Bytes of a row of Q and Y, and of K and V.
  const auto of_row = [&](Operand first, Operand second) {
    return static_cast<double>(heads.size * bytes_of(type_of(request.graph, heads, first)) +
                               heads.values * bytes_of(type_of(request.graph, heads, second)));
  };
  Cost cost;
  cost.flops = 2 * edge * keys * static_cast<double>(2 * padded_size(heads) * of_rtask);
  cost.tensor_core = true;
  cost.activation_bytes = (of_row(kK, kV) * keys + of_row(kQ, kOut) * edge) * static_cast<double>(of_rtask);
  cost.calibrated_cycles = cycles;
  return cost;
}

// The body whose warps share the keys.
RKernel rkernel_of(const Request& request, const Heads& heads, int64_t groups) {
  const int64_t size = padded_size(heads);
  const auto vector = [&](Operand operand) { return is_vector(request.graph, heads, operand); };
  const bool is_vectors = vector(kOut) && vector(kQ) && vector(kK) && vector(kV);
  Phase phase = early_phase("kernels/attention/attention.cuh", "rk::attention", "rk::AttentionArgs");
  const bool is_whole = is_vectors && heads.size == size && heads.values == size;
  phase.template_args = {{"kSize", std::to_string(size)},
                         {"kLie", is_whole     ? "rk::kWholeVectors"
                                  : is_vectors ? "rk::kVectors"
                                               : "rk::kElements"}};
  append_types(request.graph, heads, phase);
  phase.args = arguments_of(request, heads, groups, 1, heads.all());
  phase.rtasks = heads.rtasks(groups);
  phase.work_bytes = rk::attention_work_bytes(static_cast<int>(size));
  phase.cost = cost_of(request, heads, groups, 1, cycles_of(heads, request.vdevice, groups));
  const std::string name =
      "attention<" + std::to_string(groups * kRows) + "x" + std::to_string(size) + (is_vectors ? "" : ", by elements") + name_end(heads);
  return one_phase(name, {{"groups", groups}, {"heads", 1}}, phase);
}

const char* name_of(rk::AttentionBias bias) {
  constexpr std::array<const char*, 3> kNames{"rk::kNoBias", "rk::kBiasOfKeys", "rk::kBiasOfScores"};
  return kNames[static_cast<size_t>(bias)];
}

rk::AttentionBias bias_of(const Heads& heads) {
  if (!heads.tensors[kBias].valid()) return rk::kNoBias;
  return heads.strides[kBias].row == 0 ? rk::kBiasOfKeys : rk::kBiasOfScores;
}

// What attention_rows makes of heads. `size` and `value_bytes`: of a row of Q, K or V.
struct RowsShape {
  int size, value_bytes, tiles;
  rk::AttentionBias bias;
  int64_t keys;

  int work_bytes() const { return rk::attention_rows_work_bytes(size, value_bytes, tiles, bias, static_cast<int>(keys)); }
  int64_t stage_keys() const { return rk::attention_stage_keys(size, value_bytes, tiles, bias); }
  bool is_wide(const ShapedVDevice& d) const { return d.arch == "sm_90a" && size == 64 && value_bytes == 2; }
};

// The shape for `tiles` tiles of 16 queries a warp, if there is room and are registers for it.
std::optional<RowsShape> rows_shape(const Request& request, const Heads& heads, int tiles) {
  RowsShape s{static_cast<int>(padded_size(heads)), static_cast<int>(bytes_of(type_of(request.graph, heads, kQ))), tiles, rk::kNoBias,
              heads.keys};
  const int64_t room = request.vdevice.work_bytes();
  if (heads.tensors[kBias].valid()) {
    s.bias = rk::kBiasOfKeys;
    const bool is_of_keys = heads.strides[kBias].row == 0 && heads.keys <= room && s.work_bytes() <= room;
    if (!is_of_keys) s.bias = rk::kBiasOfScores;
  }
  if (tiles > rk::attention_most_tiles(s.size, s.value_bytes, s.bias) || s.work_bytes() > room) return std::nullopt;
  return s;
}

// The body whose warps have tiles of 16 queries and go over all keys, for `of_rtask` heads one after the other.
RKernel rows_rkernel_of(const Request& request, const Heads& heads, const RowsShape& shape, int64_t of_rtask) {
  const int64_t groups = shape.tiles * rk::kAttentionWarps;
  const ShapedVDevice& d = request.vdevice;
  // A stage's keys: cycles of the turn itself, and those of products and exponentials, which tf32 and longer rows have more of. Heads
  // behind the first begin with what they need.
  const double turns = static_cast<double>(ceil_div(heads.keys, shape.stage_keys())), bytes = shape.size * shape.value_bytes;
  const double key_cycles = d.cost("attention.rows.key_cycles") * static_cast<double>(shape.tiles) * bytes / 128;
  const double head_cycles = static_cast<double>(shape.tiles) * d.cost("attention.rows.tile_cycles") +
                             turns * (d.cost("attention.rows.turn_cycles") + static_cast<double>(shape.stage_keys()) * key_cycles);
  const double cycles = d.cost("attention.rows.fixed_cycles") + static_cast<double>(of_rtask) * head_cycles +
                        static_cast<double>(of_rtask - 1) * d.cost("attention.rows.head_cycles");
  Phase phase = early_phase("kernels/attention/attention_rows.cuh", "rk::attention_rows", "rk::AttentionArgs");
  phase.template_args = {{"kSize", std::to_string(shape.size)},
                         {"kTiles", std::to_string(shape.tiles)},
                         {"kBias", name_of(shape.bias)},
                         {"kMany", of_rtask > 1 ? "true" : "false"},
                         {"kWide", shape.is_wide(d) ? "true" : "false"}};
  append_types(request.graph, heads, phase);
  phase.args = arguments_of(request, heads, groups, of_rtask, heads.all());
  phase.rtasks = heads.rtasks(groups, of_rtask);
  phase.work_bytes = shape.work_bytes();
  phase.cost = cost_of(request, heads, groups, of_rtask, cycles);
  const std::string name = "attention_rows<" + std::to_string(groups * kRows) + "x" + std::to_string(shape.size) +
                           (of_rtask > 1 ? ", " + std::to_string(of_rtask) + " heads>" : ">");
  return one_phase(name, {{"groups", groups}, {"tiles", shape.tiles}, {"heads", of_rtask}}, phase);
}

// The body that has all keys in registers, for `tiles` tiles of 16 queries.
RKernel once_rkernel_of(const Request& request, const Heads& heads, int64_t tiles) {
  const int64_t size = padded_size(heads), groups = ceil_div(heads.keys, rk::kAttentionWarps * 16);
  const ShapedVDevice& d = request.vdevice;
  const rk::AttentionBias bias = bias_of(heads);
  const double cycles = d.cost("attention.once.fixed_cycles") + static_cast<double>(tiles - 1) * d.cost("attention.once.tile_cycles") +
                        static_cast<double>(groups - 1) * d.cost("attention.once.group_cycles") +
                        (bias == rk::kBiasOfScores ? d.cost("attention.once.bias_cycles") : 0);
  Phase phase = early_phase("kernels/attention/attention_once.cuh", "rk::attention_once", "rk::AttentionArgs");
  phase.template_args = {{"kSize", std::to_string(size)},
                         {"kTiles", std::to_string(tiles)},
                         {"kGroups", std::to_string(groups)},
                         {"kBias", name_of(bias)},
                         {"kWhole", heads.size == size && heads.values == size ? "true" : "false"}};
  append_types(request.graph, heads, phase);
  phase.args = arguments_of(request, heads, tiles, 1, heads.all());
  phase.rtasks = heads.rtasks(tiles);
  phase.work_bytes = rk::attention_once_work_bytes(static_cast<int>(size));
  phase.cost = cost_of(request, heads, tiles, 1, cycles);
  return one_phase("attention_once<" + std::to_string(tiles * kRows) + "x" + std::to_string(size) + ">",
                   {{"groups", tiles}, {"heads", 1}, {"once", 1}}, phase);
}

// Appends the rKernels of attention_once for up to so many keys, if values have 16 bits and rows lie as the body takes them.
void append_once(const Request& request, const Heads& heads, int64_t most_keys, std::vector<RKernel>& out) {
  const auto cells = [&](Operand operand) { return is_cells(request.graph, heads, operand); };
  const int64_t size = padded_size(heads);
  const DType in = type_of(request.graph, heads, kQ);
  if (size > 64 || heads.keys > most_keys || !(is_narrow(in) || is_whole_byte(in))) return;
  if (!cells(kQ) || !cells(kK) || !cells(kV) || !is_vector(request.graph, heads, kOut)) return;
  if (rk::attention_once_work_bytes(static_cast<int>(size)) > request.vdevice.work_bytes()) return;
  for (int64_t tiles = 1; tiles <= rk::kAttentionOnceTiles; ++tiles) {
    if (tiles == 1 || heads.queries > (tiles - 1) * kRows) out.push_back(once_rkernel_of(request, heads, tiles));
  }
}

// The body whose warps have a tile of 16 queries and all keys each, for `units` tiles of any heads.
RKernel few_rkernel_of(const Request& request, const Heads& heads, int64_t units) {
  const int64_t groups = ceil_div(heads.keys, 16), all = heads.all() * heads.blocks(1);
  const ShapedVDevice& d = request.vdevice;
  const rk::AttentionBias bias = bias_of(heads);
  const TensorId added = heads.tensors[kBias];
  const bool known = added.valid() && request.graph.tensor(added).role == Role::constant;
  const double cycles = d.cost("attention.few.fixed_cycles") + static_cast<double>(groups) * d.cost("attention.few.group_cycles") +
                        static_cast<double>(units) * d.cost("attention.few.unit_cycles");
  Phase phase = early_phase("kernels/attention/attention_few.cuh", "rk::attention_few", "rk::AttentionArgs");
  phase.template_args = {{"kGroups", std::to_string(groups)},
                         {"kBias", name_of(bias)},
                         {"kKnownBias", known ? "true" : "false"},
                         {"kWhole", heads.size == rk::kAttentionFewSize && heads.values == rk::kAttentionFewSize ? "true" : "false"}};
  append_types(request.graph, heads, phase);
  phase.args = arguments_of(request, heads, 1, units, all);
  phase.rtasks = ceil_div(all, units);
  phase.cost = cost_of(request, heads, 1, units, cycles);
  const std::string name = "attention_few<16x" + std::to_string(heads.keys) + ", " + std::to_string(units) + " a rTask" + name_end(heads);
  return one_phase(name, {{"groups", 1}, {"heads", 1}, {"units", units}}, phase);
}

// Appends the rKernels of attention_few, if values have 16 bits and rows lie as the body takes them: one in a single round of all vEUs, if
// there are not too many, and one with a unit for each warp.
void append_few(const Request& request, const Heads& heads, std::vector<RKernel>& out) {
  const auto cells = [&](Operand operand) { return is_cells(request.graph, heads, operand); };
  if (padded_size(heads) > rk::kAttentionFewSize || heads.keys > rk::kAttentionFewKeys || !is_narrow(type_of(request.graph, heads, kQ)))
    return;
  const bool stores = is_narrow(type_of(request.graph, heads, kOut)) ? cells(kOut) : is_vector(request.graph, heads, kOut);
  if (!cells(kQ) || !cells(kK) || !cells(kV) || !stores) return;
  const int64_t units = ceil_div(heads.all() * heads.blocks(1), request.vdevice.veus());
  if (units < rk::kAttentionWarps) out.push_back(few_rkernel_of(request, heads, units));
  out.push_back(few_rkernel_of(request, heads, rk::kAttentionWarps));
}

// Appends the rKernels of attention_rows, if rows lie as the body takes them. Of 16 bits several heads are a rTask where there are more
// than vEUs; in fp32 that was no faster (docs/tried.md).
void append_rows(const Request& request, const Heads& heads, std::vector<RKernel>& out) {
  const auto cells = [&](Operand operand) { return is_cells(request.graph, heads, operand); };
  if (!(std::get<Attention>(request.rop.attrs).scale > 0)) return;  // the largest product has the largest score
  if (!cells(kQ) || !cells(kK) || !cells(kV) || !is_vector(request.graph, heads, kOut)) return;
  if (is_narrow(type_of(request.graph, heads, kOut)) && !cells(kOut)) return;
  for (int tiles = 1; tiles <= 2; ++tiles) {
    if (heads.queries <= (tiles - 1) * rk::kAttentionWarps * kRows) continue;
    const std::optional<RowsShape> shape = rows_shape(request, heads, tiles);
    if (!shape) continue;
    const int64_t rounds = ceil_div(heads.rtasks(tiles * rk::kAttentionWarps), request.vdevice.veus());
    const int64_t most = shape->value_bytes == 2 ? std::min<int64_t>({rounds, heads.all(), rk::kAttentionMostHeads}) : 1;
    for (int64_t of_rtask = 1; of_rtask <= most; ++of_rtask) out.push_back(rows_rkernel_of(request, heads, *shape, of_rtask));
  }
}

// How bytes of Q, K and V become halves, and the number that a byte of 0 of the result stands for.
void add_bytes(const Graph& graph, const Heads& heads, Phase& phase) {
  ArgList flips, bases, zeros;
  for (const Operand operand : {kQ, kK, kV}) {
    const DType dtype = type_of(graph, heads, operand);
    const int64_t low = dtype == DType::whole_i8 ? -128 : low_of(graph, heads.tensors[operand]);
    flips.push_back(arg(int64_t{dtype == DType::whole_i8 ? 0x80808080 : 0}));
    bases.push_back(arg(is_whole_byte(dtype) ? int64_t{half_of(static_cast<float>(1024 - low))} * 0x10001 : int64_t{0}));
    zeros.push_back(arg(is_whole_byte(dtype) ? -128 - low : int64_t{0}));
  }
  add_args(phase, {{"flips", ArgValue{flips}},
                   {"bases", ArgValue{bases}},
                   {"zeros", ArgValue{zeros}},
                   {"out_low", float_arg(static_cast<float>(low_of(graph, heads.tensors[kOut])))}});
}

int64_t rounds_of(const AttentionRounding& by) {
  return (by.products.rounds() ? rk::kRoundsProducts : 0) + (by.sums.rounds() ? rk::kRoundsSums : 0) +
         (by.results.rounds() ? rk::kRoundsResults : 0) + (by.again.rounds() ? rk::kRoundsWeightsAgain : 0);
}

// Makes the phase, of a body without roundings, one of `body`, which has them.
void round(const Request& request, const Heads& heads, const std::string& body, Phase& phase) {
  const AttentionRounding& by = *std::get<Attention>(request.rop.attrs).rounding;
  const bool bytes = is_whole_byte(type_of(request.graph, heads, kQ)) || is_whole_byte(type_of(request.graph, heads, kOut));
  set_body(phase, bytes ? "kernels/attention/attention_rounded_bytes.cuh" : "kernels/attention/attention_rounded.cuh", body,
           "rk::RoundedAttentionArgs");
  const auto bound = [](const RoundedTo& to, float value) { return float_arg(to.rounds() ? value : 0); };
  phase.args = {{"attention", struct_arg(std::move(phase.args))},
                {"product_low", bound(by.products, by.products.low)},
                {"product_high", bound(by.products, by.products.high)},
                {"product_step", float_arg(by.product_step)},
                {"sum_low", bound(by.sums, by.sums.low)},
                {"sum_high", bound(by.sums, by.sums.high)},
                {"sum_step", float_arg(by.sum_step)},
                {"weight_steps", float_arg(by.weight_steps)},
                {"weight_low", float_arg(by.weights.low)},
                {"weight_high", float_arg(by.weights.high)},
                {"result_steps", float_arg(by.result_steps)},
                {"result_low", bound(by.results, by.results.low)},
                {"result_high", bound(by.results, by.results.high)},
                {"rounds", arg(rounds_of(by))}};
  if (bytes) add_bytes(request.graph, heads, phase);
  if (!by.again.rounds()) return;
  add_args(phase,
           {{"again_step", float_arg(by.again_step)}, {"again_low", float_arg(by.again.low)}, {"again_high", float_arg(by.again.high)}});
}

// Whether attention_rounded_rows takes such bytes: sums stay below 2^22, weights are bytes, and the GPU multiplies bytes, as those do that
// have bf16.
bool are_bytes_of_rows(const Request& request, const Heads& heads) {
  const AttentionRounding& by = *std::get<Attention>(request.rop.attrs).rounding;
  const auto is_byte = [](const RoundedTo& to) { return !to.rounds() || (to.low <= 0 && to.high <= 255); };
  if (by.products.rounds() && !(by.products.high - by.products.low < 256)) return false;
  return request.vdevice.bf16 && is_byte(by.weights) && is_byte(by.again) && (!by.again.rounds() || by.again_step > 0) &&
         std::ranges::all_of(std::array{kQ, kK, kV}, [&](Operand operand) {
           const int64_t low = low_of(request.graph, heads.tensors[operand]);
           return type_of(request.graph, heads, operand) == DType::whole_i8 || (low <= 0 && low >= -255);
         });
}

// The body whose warps have 16 queries and the scores of all keys each, if there is one for so many and rows lie as it takes them.
std::optional<RKernel> rounded_rows_rkernel_of(const Request& request, const Heads& heads) {
  const auto cells = [&](Operand operand) { return is_cells(request.graph, heads, operand); };
  const int64_t size = padded_size(heads), keys = ceil_div(heads.keys, int64_t{rk::kRoundedChunk}) * rk::kRoundedChunk;
  const ShapedVDevice& d = request.vdevice;
  const DType in = type_of(request.graph, heads, kQ), out = type_of(request.graph, heads, kOut);
  if (size > 64 || keys > rk::kRoundedRowsKeys || !(is_narrow(in) || is_whole_byte(in))) return std::nullopt;
  if (!cells(kQ) || !cells(kK) || !cells(kV) || !(out == DType::f32 ? is_vector(request.graph, heads, kOut) : cells(kOut)))
    return std::nullopt;
  const AttentionRounding& by = *std::get<Attention>(request.rop.attrs).rounding;
  const bool adds = heads.tensors[kBias].valid();
  const RoundedTo& last = by.sums.rounds() ? by.sums : by.products;
  const double step = by.sums.rounds() ? by.sum_step : by.product_step * by.sum_step;
  if (!last.rounds() || (!by.sums.rounds() && adds) || !(last.high - last.low < 256) || !(step > 0)) return std::nullopt;
  const bool few = rk::rounded_rows_of_bytes(static_cast<int>(size), static_cast<int>(keys));
  if (is_whole_byte(in) && few && !are_bytes_of_rows(request, heads)) return std::nullopt;
  const int64_t work_bytes = rk::rounded_rows_work_bytes(static_cast<int>(size), static_cast<int>(keys), is_whole_byte(in));
  if (work_bytes > d.work_bytes()) return std::nullopt;
  const double cycles = d.cost("attention.rounded_rows.fixed_cycles") +
                        static_cast<double>(keys) * d.cost("attention.rounded_rows.key_cycles") +
                        (adds ? static_cast<double>(keys) * d.cost("attention.rounded_rows.bias_cycles") : 0);
  const int64_t groups = rk::kAttentionWarps;
  Phase phase = early_phase("kernels/attention/attention_rounded_rows.cuh", "rk::attention_rounded_rows", "rk::RoundedAttentionArgs");
  phase.template_args = {{"kSize", std::to_string(size)},
                         {"kKeys", std::to_string(keys)},
                         {"kBias", name_of(adds ? rk::kBiasOfScores : rk::kNoBias)},
                         {"kRounds", std::to_string(rounds_of(by))}};
  append_types(request.graph, heads, phase);
  phase.args = arguments_of(request, heads, groups, 1, heads.all());
  phase.rtasks = heads.rtasks(groups);
  phase.work_bytes = work_bytes;
  phase.cost = cost_of(request, heads, groups, 1, cycles);
  round(request, heads, "rk::attention_rounded_rows", phase);
  phase.header = "kernels/attention/attention_rounded_rows.cuh";
  return one_phase("attention_rounded_rows<" + std::to_string(groups * kRows) + "x" + std::to_string(size) + ">",
                   {{"groups", groups}, {"heads", 1}}, phase);
}

// Cycles of the general body: it goes over the keys twice.
double rounded_cycles(const Heads& heads, const ShapedVDevice& d, int64_t groups) {
  return 2 * cycles_of(heads, d, groups) - d.cost("attention.fixed_cycles") + d.cost("attention.rounding_cycles");
}

// The rKernels of an Attention with roundings. The body that has all scores in registers takes what attention_once takes, and more keys.
std::vector<RKernel> rounded_offers(const Request& request, const Heads& heads) {
  const ShapedVDevice& d = request.vdevice;
  std::vector<RKernel> out;
  for (int64_t groups = 1; groups <= rk::kAttentionWarps; groups *= 2) {
    if (groups > 1 && heads.queries <= groups / 2 * kRows) continue;
    RKernel rkernel = rkernel_of(request, heads, groups);
    Phase& phase = rkernel.phases[0];
    round(request, heads, "rk::attention_rounded", phase);
    phase.cost.calibrated_cycles = rounded_cycles(heads, d, groups);
    rkernel.name.replace(0, std::string("attention").size(), "attention_rounded");
    out.push_back(std::move(rkernel));
  }
  if (std::optional<RKernel> rows = rounded_rows_rkernel_of(request, heads)) out.push_back(*std::move(rows));
  std::vector<RKernel> once;
  append_once(request, heads, rk::kRoundedOnceKeys, once);
  for (RKernel& rkernel : once) {
    if (rkernel.config_value("groups") > 1 && heads.keys > rk::kRoundedTwoTilesKeys) continue;
    Phase& phase = rkernel.phases[0];
    round(request, heads, "rk::attention_rounded_once", phase);
    phase.cost.calibrated_cycles += d.cost("attention.rounding_cycles") * static_cast<double>(rkernel.config_value("groups"));
    rkernel.name.replace(0, std::string("attention_once").size(), "attention_rounded_once");
    out.push_back(std::move(rkernel));
  }
  return out;
}

// Whether the bodies with roundings take such an Attention.
bool is_rounded_alone(const ROperator& rop) {
  const auto& op = std::get<Attention>(rop.attrs);
  const RoundedTo& to = op.rounding->weights;
  return !operand(rop, kAttentionRowTable).valid() && !op.end && op.weightless == Weightless::nan && to.rounds() && std::isfinite(to.low) &&
         std::isfinite(to.high);
}

std::vector<RKernel> offers(const Request& request) {
  const ROperator& rop = request.rop;
  if (!std::holds_alternative<Attention>(rop.attrs) || has_epilogue(rop) || !is_of_values(request.graph, rop)) return {};
  const Heads heads = heads_of(request.graph, rop);
  if (heads.batch.size() > kBatchRank || !is_possible(heads, request.vdevice, request.precision)) return {};
  if (std::get<Attention>(rop.attrs).rounding) return is_rounded_alone(rop) ? rounded_offers(request, heads) : std::vector<RKernel>();
  std::vector<RKernel> out;
  for (int64_t groups = 1; groups <= rk::kAttentionWarps; groups *= 2) {
    if (groups == 1 || heads.queries > groups / 2 * kRows) out.push_back(rkernel_of(request, heads, groups));
  }
  if (!heads.has_table()) {
    append_rows(request, heads, out);
    append_once(request, heads, rk::kAttentionOnceKeys, out);
  }
  append_few(request, heads, out);
  return out;
}

// Rows [row, row_end) of matrix number `batch` of an operand with `columns` columns.
void append_matrix(const Graph& graph, const Heads& heads, Operand operand, int64_t batch, int64_t row, int64_t row_end, int64_t columns,
                   std::vector<Region>& regions) {
  const MatrixPart part{row, row_end, 0, columns};
  kernels::append_matrix(graph, heads.tensors[operand], heads.batch, operand, heads.strides[operand], batch, part, regions);
}

// The same of Q, K, V or Y, whose rows a table may name: neighbours among them are one box.
void append_rows_of(const Graph& graph, const Heads& heads, const std::vector<int32_t>& table, Operand operand, int64_t batch, int64_t row,
                    int64_t row_end, int64_t columns, std::vector<Region>& regions) {
  if (table.empty()) return append_matrix(graph, heads, operand, batch, row, row_end, columns, regions);
  const int64_t windows = static_cast<int64_t>(table.size()) / heads.queries, window = batch / (heads.all() / windows);
  const int32_t* const rows = table.data() + window * heads.queries;
  for (int64_t begin = row, end = row; begin < row_end; begin = end) {
    while (end < row_end && rows[end] - rows[begin] == end - begin) ++end;
    append_matrix(graph, heads, operand, batch, rows[begin], rows[begin] + (end - begin), columns, regions);
  }
}

// Of rows [row, row_end) of a head.
void append_head(const Graph& graph, const Heads& heads, const std::vector<int32_t>& table, int64_t head, int64_t row, int64_t row_end,
                 Accesses& out) {
  append_rows_of(graph, heads, table, kOut, head, row, row_end, heads.values, out.writes);
  append_rows_of(graph, heads, table, kQ, head, row, row_end, heads.size, out.reads);
  append_rows_of(graph, heads, table, kK, head, 0, heads.keys, heads.size, out.reads);
  append_rows_of(graph, heads, table, kV, head, 0, heads.keys, heads.values, out.reads);
  append_matrix(graph, heads, kBias, head, row, row_end, heads.keys, out.reads);
}

void accesses(const Graph& graph, const ROperator& rop, const RKernel& rkernel, int, int64_t index, Accesses& out) {
  const Heads heads = heads_of(graph, rop);
  const std::vector<int32_t> table = table_of(graph, rop);
  const int64_t groups = rkernel.config_value("groups"), blocks = heads.blocks(groups), rows = groups * kRows;
  if (const int64_t units = config_or(rkernel, "units", 0); units > 0) {
    for (int64_t unit = index * units; unit < std::min((index + 1) * units, heads.all() * blocks); ++unit) {
      const int64_t row = unit % blocks * rows;
      append_head(graph, heads, table, unit / blocks, row, std::min(row + rows, heads.queries), out);
    }
    return;
  }
  const int64_t row = index % blocks * rows, row_end = std::min(row + rows, heads.queries);
  const int64_t of_rtask = rkernel.config_value("heads"), first = index / blocks * of_rtask;
  for (int64_t head = first; head < std::min(first + of_rtask, heads.all()); ++head)
    append_head(graph, heads, table, head, row, row_end, out);
}

// The whole rOperator on the vDevice before tensors have places: what the body can compute depends on extents only.
std::optional<Estimate> estimate_unplaced(const Request& request) {
  const auto& [graph, rop, d, precision] = request;
  if (!std::holds_alternative<Attention>(rop.attrs)) return std::nullopt;
  for (size_t i = 0; i < std::min(rop.inputs.size(), kAttentionRowTable); ++i) {
    if (rop.inputs[i].valid() && graph.tensor(rop.inputs[i]).dtype != DType::f32) return std::nullopt;
  }
  const Heads heads = unplaced(graph, rop);
  if (heads.batch.size() > kBatchRank || !is_possible(heads, d, precision)) return std::nullopt;
  const double rounds = static_cast<double>(ceil_div(heads.rtasks(1), d.veus()));
  if (std::get<Attention>(rop.attrs).rounding) {
    if (!is_rounded_alone(rop)) return std::nullopt;
    return Estimate{d.edge_us + rounds * rounded_cycles(heads, d, 1) / (d.clock_ghz * 1e3)};
  }
  return Estimate{d.edge_us + rounds * cycles_of(heads, d, 1) / (d.clock_ghz * 1e3)};
}

Bytes pack(const Graph& graph, const ROperator& rop, const RKernel&, int) { return packed_bytes(table_of(graph, rop)); }

}  // namespace

Family attention() {
  return {"attention", offers, pack, accesses, estimate_unplaced, Narrowed::computes, /*takes_sums=*/false, /*takes_bytes=*/true};
}

}  // namespace tamp::kernels
