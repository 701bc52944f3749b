// Host side of indexed_copy.cuh: turns Pad and Gather into strides and tables.
#include <algorithm>
#include <cstring>
#include <optional>

#include "compiler/support/error.h"
#include "compiler/support/text.h"
#include "kernels/any_type.h"
#include "kernels/args.h"
#include "kernels/elementwise/numbers.cuh"
#include "kernels/family.h"
#include "kernels/loop.h"
#include "kernels/shared/numbers.h"

namespace tamp::kernels {
namespace {

constexpr size_t kRank = rk::kCopyRank;
constexpr int32_t kOutside = rk::kOutside;

// Strides that mark a dimension as one with a table of its own, or as part of the joint one, so that it merges with no other.
constexpr int64_t kOwnTable = int64_t{1} << 40, kJoint = int64_t{1} << 41;

// Operands of the loop: output, input, mark (kOwnTable plus the number of the table, or kJoint), step in the joint table.
struct Map {
  Loop loop;
  std::vector<int32_t> tables;
  std::vector<int64_t> starts;  // of each dimension's own table
  int64_t joint_at = -1;
  float value = 0;
};

// The input coordinate for coordinate i (counted from the input's first element), or -1.
int64_t padded_from(int64_t i, int64_t extent, PadMode mode) {
  if (i >= 0 && i < extent) return i;
  if (mode == PadMode::constant || extent == 0) return -1;
  if (mode == PadMode::edge) return std::clamp<int64_t>(i, 0, extent - 1);
  if (mode == PadMode::wrap) return ((i % extent) + extent) % extent;
  if (extent == 1) return 0;
  const int64_t period = 2 * (extent - 1);
  const int64_t j = ((i % period) + period) % period;
  return j < extent ? j : period - j;
}

std::optional<Map> pad_map(const Graph& graph, const ROperator& rop, const Pad& attrs) {
  const Tensor& in = graph.tensor(rop.inputs[0]);
  const Tensor& out = graph.tensor(rop.outputs[0]);
  Map map;
  map.value = attrs.value;
  for (size_t d = 0; d < out.shape.size(); ++d) {
    if (attrs.before[d] == 0 && attrs.after[d] == 0) {
      map.loop.push_back({out.shape[d], {out.place.strides[d], in.place.strides[d], 0, 0}});
      continue;
    }
    map.loop.push_back({out.shape[d], {out.place.strides[d], 0, kOwnTable + static_cast<int64_t>(map.starts.size()), 0}});
    map.starts.push_back(static_cast<int64_t>(map.tables.size()));
    for (int64_t o = 0; o < out.shape[d]; ++o) {
      const int64_t from = padded_from(o - attrs.before[d], in.shape[d], attrs.mode);
      map.tables.push_back(from < 0 ? kOutside : static_cast<int32_t>(from * in.place.strides[d]));
    }
  }
  return map;
}

std::vector<int64_t> index_values(const Tensor& indices) {
  const int64_t count = element_count(indices.shape);
  std::vector<int64_t> values(static_cast<size_t>(count));
  if (indices.dtype == DType::i64) {
    std::copy_n(i64_data(indices), count, values.begin());
  } else {
    for (int64_t i = 0; i < count; ++i) {
      int32_t value = 0;
      std::memcpy(&value, indices.data->data() + i * 4, 4);
      values[static_cast<size_t>(i)] = value;
    }
  }
  return values;
}

std::optional<Map> gather_map(const Graph& graph, const ROperator& rop, const Gather& attrs) {
  const Tensor& in = graph.tensor(rop.inputs[0]);
  const Tensor& indices = graph.tensor(rop.inputs[1]);
  const Tensor& out = graph.tensor(rop.outputs[0]);
  if (indices.role != Role::constant || (indices.dtype != DType::i64 && indices.dtype != DType::i32)) return std::nullopt;
  const size_t axis = static_cast<size_t>(attrs.axis), index_rank = indices.shape.size();
  const std::vector<int64_t> index_strides = row_major_strides(indices.shape);
  Map map;
  for (size_t d = 0; d < out.shape.size(); ++d) {
    const bool selects = d >= axis && d < axis + index_rank;
    const size_t from = d < axis ? d : d - index_rank + 1;
    const std::vector<int64_t> strides = selects ? std::vector<int64_t>{out.place.strides[d], 0, kJoint, index_strides[d - axis]}
                                                 : std::vector<int64_t>{out.place.strides[d], in.place.strides[from], 0, 0};
    map.loop.push_back({out.shape[d], strides});
  }
  map.joint_at = 0;
  const int64_t extent = in.shape[axis];
  for (const int64_t value : index_values(indices)) {
    if (value < -extent || value >= extent)
      throw bad_input("node '{}' (Gather): index {} is outside dimension {} of extent {}", printable(rop.name), value, attrs.axis, extent);
    map.tables.push_back(static_cast<int32_t>((value < 0 ? value + extent : value) * in.place.strides[axis]));
  }
  return map;
}

// A dimension of extent 1 disappears from the loop; its table's one entry goes to the joint table.
void move_unit_tables(Map& map) {
  TAMP_CHECK(map.joint_at < 0 || map.starts.empty(), "own and joint tables in one map");
  int64_t offset = 0;
  bool outside = false, any = false;
  for (const LoopDim& dim : map.loop) {
    if (dim.extent != 1 || dim.strides[2] < kOwnTable || dim.strides[2] >= kJoint) continue;
    const int32_t entry = map.tables[static_cast<size_t>(map.starts[static_cast<size_t>(dim.strides[2] - kOwnTable)])];
    any = true;
    outside |= entry == kOutside;
    offset += entry == kOutside ? 0 : entry;
  }
  if (!any) return;
  map.joint_at = static_cast<int64_t>(map.tables.size());
  map.tables.push_back(outside ? kOutside : static_cast<int32_t>(offset));
}

std::optional<Map> map_of(const Graph& graph, const ROperator& rop) {
  std::optional<Map> map;
  if (const auto* attrs = std::get_if<Pad>(&rop.attrs)) map = pad_map(graph, rop, *attrs);
  if (const auto* attrs = std::get_if<Gather>(&rop.attrs)) map = gather_map(graph, rop, *attrs);
  if (!map) return map;
  move_unit_tables(*map);
  map->loop = normalised(map->loop);
  return map;
}

// How many elements are 16 bytes, if there is a body for vectors of such elements: f32, and 16-bit elements that are only moved, which
// the body takes in pairs as if they were f32.
int64_t vector_elements(const Graph& graph, const ROperator& rop) {
  const DType dtype = graph.tensor(rop.outputs[0]).dtype;
  if (dtype == DType::f32) return 4;
  return std::holds_alternative<Gather>(rop.attrs) && bytes_of(dtype) == 2 ? 8 : 0;
}

// Vectors of 16 bytes: the innermost dimension is walked densely by both, and nothing begins in the middle of one.
bool is_vector(const Graph& graph, const ROperator& rop, const Map& map) {
  const int64_t each = vector_elements(graph, rop);
  if (map.loop.empty() || each == 0) return false;
  const LoopDim& inner = map.loop.back();
  if (inner.strides[0] != 1 || inner.strides[1] != 1 || inner.strides[2] != 0 || inner.extent % each != 0) return false;
  if (graph.tensor(rop.inputs[0]).place.offset % each != 0 || graph.tensor(rop.outputs[0]).place.offset % each != 0) return false;
  for (size_t d = 0; d + 1 < map.loop.size(); ++d) {
    if (map.loop[d].strides[0] % each != 0 || map.loop[d].strides[1] % each != 0) return false;
  }
  return std::all_of(map.tables.begin(), map.tables.end(), [&](int32_t entry) { return entry % each == 0; });
}

// Steps are of vectors, strides of f32.
Loop in_vectors(Loop loop, int64_t each) {
  loop.back().extent /= each;
  for (int64_t& stride : loop.back().strides) stride *= each;
  for (LoopDim& dim : loop) {
    for (const size_t operand : {size_t{0}, size_t{1}}) dim.strides[operand] = dim.strides[operand] * 4 / each;
  }
  return loop;
}

Phase phase_of(const Request& request, const Map& map, bool vector, int64_t per_rtask) {
  const ROperator& rop = request.rop;
  const Loop loop = vector ? in_vectors(map.loop, vector_elements(request.graph, rop)) : map.loop;
  const int64_t items = loop_elements(loop);
  std::vector<int64_t> table_at(kRank, -1), joint_steps(kRank, 0);
  for (size_t d = 0; d < loop.size(); ++d) {
    const int64_t mark = map.loop[d].strides[2];
    if (mark >= kOwnTable && mark < kJoint) table_at[d] = map.starts[static_cast<size_t>(mark - kOwnTable)];
    joint_steps[d] = map.loop[d].strides[3];
  }
  Phase phase = early_phase("kernels/elementwise/indexed_copy.cuh", "rk::indexed_copy", "rk::IndexedCopyArgs");
  phase.template_args = {{"kVector", vector ? "4" : "1"}};
  phase.args = {{"out", arg(TensorArg{rop.outputs[0]})},
                {"in", arg(TensorArg{rop.inputs[0]})},
                {"tables", map.tables.empty() ? null_arg() : ArgValue{PackedArg{0}}},
                {"out_strides", array_arg(strides(loop, 0), kRank)},
                {"in_strides", array_arg(strides(loop, 1), kRank)},
                {"table_at", array_arg(table_at, kRank)},
                {"joint_steps", array_arg(joint_steps, kRank)},
                {"joint_at", arg(map.joint_at)},
                {"divisors", divisors_arg(inner_extents(loop), kRank - 1)},
                {"rank", arg(static_cast<int64_t>(loop.size()))},
                {"items", arg(items)},
                {"items_per_rtask", arg(per_rtask)},
                {"value", float_arg(map.value)}};
  phase.rtasks = std::max<int64_t>(1, ceil_div(items, per_rtask));
  const double share = static_cast<double>(items) / static_cast<double>(phase.rtasks);
  phase.cost.activation_bytes = share * (vector ? 32 : 16);
  phase.cost.flops = share * 30;  // index arithmetic
  phase.cost.efficiency = request.vdevice.cost("indexed_copy.efficiency");
  return phase;
}

// The same of elements of another type (kernels/elementwise/pad.cuh).
Phase typed_phase(Phase phase, DType dtype, float value) {
  ArgList copy;
  for (const Arg& one : phase.args) copy.push_back(one.value);
  const uint64_t bits = rk::element_bits<double>(value, static_cast<uint32_t>(dtype));
  set_body(phase, "kernels/elementwise/pad.cuh", "rk::typed_pad", "rk::TypedPadArgs");
  phase.awaits_inputs = false;
  phase.template_args = {{"Cell", cell_text(dtype)}};
  phase.args = {{"copy", ArgValue{copy}},
                {"value_low", arg(static_cast<int64_t>(bits & 0xffffffff))},
                {"value_high", arg(static_cast<int64_t>(bits >> 32))}};
  return phase;
}

std::vector<RKernel> offers(const Request& request) {
  const ROperator& rop = request.rop;
  if (!std::holds_alternative<Pad>(rop.attrs) && !std::holds_alternative<Gather>(rop.attrs)) return {};
  if (ends_at_length(rop.attrs)) return {};
  const DType dtype = request.graph.tensor(rop.outputs[0]).dtype;
  if (has_epilogue(rop) || !is_plain(request.graph.tensor(rop.inputs[0])) || !is_plain(request.graph.tensor(rop.outputs[0]))) return {};
  const std::optional<Map> map = map_of(request.graph, rop);
  if (!map || map->loop.size() > kRank) return {};
  const bool vector = is_vector(request.graph, rop, *map);
  const int64_t each = vector ? vector_elements(request.graph, rop) : 1;
  const int64_t items = loop_elements(map->loop) / each;
  const int64_t per_rtask = std::max(request.vdevice.compute_threads, ceil_div(items, request.vdevice.veus()));
  Phase phase = phase_of(request, *map, vector, per_rtask);
  if (dtype != DType::f32 && !vector) phase = typed_phase(phase, dtype, map->value);
  return {one_phase(vector ? "indexed_copy<vector>" : "indexed_copy<scalar>", {{"elements_per_rtask", per_rtask * each}}, phase)};
}

Bytes pack(const Graph& graph, const ROperator& rop, const RKernel&, int) {
  const std::optional<Map> map = map_of(graph, rop);
  std::vector<int32_t> tables = map->tables;
  if (is_vector(graph, rop, *map)) {  // strides are of f32
    const int64_t narrow = vector_elements(graph, rop) / 4;
    for (int32_t& entry : tables) entry = entry == kOutside ? entry : static_cast<int32_t>(entry / narrow);
  }
  return packed_bytes(tables);
}

void accesses(const Graph& graph, const ROperator& rop, const RKernel& rkernel, int, int64_t index, Accesses& out) {
  append_share(graph, rop, rkernel, map_of(graph, rop)->loop, index, out.writes);
  append_whole(graph, rop.inputs[0], out.reads);
}

}  // namespace

Family indexed_copy() { return {"indexed_copy", offers, pack, accesses, nullptr, Narrowed::moves}; }

}  // namespace tamp::kernels
