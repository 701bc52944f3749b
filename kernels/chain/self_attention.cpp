// Host side of self_attention.cuh. rTask t is head t / groups, and group t % groups of windows.
#include "kernels/chain/self_attention.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numbers>
#include <optional>
#include <vector>

#include "compiler/ir/over_inputs.h"
#include "kernels/args.h"
#include "kernels/chain/numbers.cuh"
#include "kernels/half_columns.h"
#include "kernels/loop.h"
#include "kernels/narrow.h"

namespace tamp::kernels {
namespace {

// --- the rOperator -----------------------------------------------------------------------------------------------------

struct SelfHeads {
  SelfAttentionSteps steps;
  TensorId x{}, weights{}, bias{}, scores{}, table{}, out{};
  int64_t k = 0, heads = 0, windows = 1, rows = 0;  // rows: of a window
  int64_t x_row = 0, out_row = 0, out_head = 0;     // elements

  int64_t all_rows() const { return windows * rows; }
  int64_t columns() const { return 3 * heads * rk::kSelfSize; }
};

// What is known before tensors have places. None where the body has no such windows or heads.
std::optional<SelfHeads> unplaced(const Graph& graph, const ROperator& rop) {
  const std::optional<SelfAttentionSteps> steps = self_attention_steps(rop);
  if (!steps) return std::nullopt;
  const FusedView& view = steps->view;
  SelfHeads s{*steps};
  s.x = view.input(0, 0);
  s.weights = view.input(steps->kProduct, 1);
  s.bias = view.bias(steps->kProduct);
  s.scores = view.input(steps->kAttention, kAttentionBias);
  s.table = view.input(steps->kAttention, kAttentionRowTable);
  s.out = rop.outputs[0];
  if (!are_f32_constants(graph, {s.weights, s.bias, s.scores})) return std::nullopt;
  if (s.table.valid() && graph.tensor(s.table).role != Role::constant) return std::nullopt;
  const Shape& made = graph.tensor(s.out).shape;
  s.k = graph.tensor(s.weights).shape[0];
  s.heads = made[0];
  s.rows = made[1];
  if (s.table.valid()) {
    s.windows = graph.tensor(s.table).shape[0];
    s.rows = graph.tensor(s.table).shape[1];
  }
  const bool fits = s.k > 0 && s.k % 8 == 0 && made[2] == rk::kSelfSize && s.rows > 0 && s.rows <= rk::kSelfRows && s.windows > 0;
  return fits ? std::optional(s) : std::nullopt;
}

std::optional<SelfHeads> self_heads_of(const Graph& graph, const ROperator& rop) {
  std::optional<SelfHeads> s = unplaced(graph, rop);
  if (!s) return std::nullopt;
  const Tensor &x = graph.tensor(s->x), &out = graph.tensor(s->out);
  if (!is_plain_values(x) || !is_plain_values(out)) return std::nullopt;
  const std::optional<int64_t> x_row = row_stride(x, 16 / bytes_of(x.dtype));
  if (!x_row) return std::nullopt;
  s->x_row = *x_row;
  const std::vector<int64_t>& strides = out.place.strides;
  s->out_head = strides[0];
  s->out_row = strides[1];
  const int64_t of_cell = 16 / bytes_of(out.dtype);
  for (const int64_t at : {out.place.offset, s->out_head, s->out_row}) {
    if (at % of_cell != 0) return std::nullopt;
  }
  return strides[2] == 1 ? s : std::nullopt;
}

// The rows of all windows, one window behind the other.
std::vector<int32_t> table_of(const Graph& graph, const SelfHeads& s) {
  std::vector<int32_t> rows(static_cast<size_t>(s.all_rows()));
  const int64_t* const given = s.table.valid() ? i64_data(graph.tensor(s.table)) : nullptr;
  for (size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<int32_t>(given ? given[i] : static_cast<int64_t>(i));
  return rows;
}

// --- how it is divided -------------------------------------------------------------------------------------------------

struct SelfPlan {
  int64_t boxes, chunk_boxes, of_rtask, groups;  // of_rtask: windows; groups: rTasks of a head

  int64_t chunks() const { return boxes / chunk_boxes; }
  int64_t chunk_bytes() const { return chunk_boxes * rk::kSelfWeightBoxBytes; }
  rk::SelfSizes sizes() const { return {static_cast<int>(boxes), static_cast<int>(of_rtask)}; }
};

// Boxes of rows of floats, which are in registers as they come: 16 bytes of each are two registers a thread.
constexpr int64_t kMostFloatBoxes = 6;

std::optional<SelfPlan> plan_of(const Request& request, const SelfHeads& s, int64_t of_rtask) {
  const ShapedVDevice& d = request.vdevice;
  SelfPlan plan{ceil_div(s.k, 64), 1, of_rtask, ceil_div(s.windows, of_rtask)};
  if (plan.boxes % 2 == 0 && 2 * rk::kSelfWeightBoxBytes <= d.weight_stage_bytes) plan.chunk_boxes = 2;
  if (plan.chunk_bytes() > d.weight_stage_bytes || s.heads * plan.groups > d.veus()) return std::nullopt;  // costs are of one round
  if (of_rtask > 1 && s.windows < of_rtask) return std::nullopt;
  if (request.graph.tensor(s.x).dtype == DType::f32 && plan.boxes > kMostFloatBoxes) return std::nullopt;
  return plan.sizes().work_bytes() <= over_inputs(d).work_bytes() ? std::optional(plan) : std::nullopt;
}

// The type of the products' operands. None where they would lose what the precision keeps.
std::optional<DType> operands_of(const Request& request, const SelfHeads& s) {
  const Graph& graph = request.graph;
  const float* const bias = f32_data_or_null(graph, s.bias);
  const auto keep_all = [&] { return hold_normalised_product(f32_data(graph.tensor(s.weights)), bias, s.k, s.columns()); };
  const std::optional<DType> type =
      operand_type(request.vdevice, request.precision, graph.tensor(s.x).dtype, graph.tensor(s.out).dtype, keep_all);
  const bool holds = type != DType::f16 || request.precision == Precision::tf32 || halves_hold(graph.tensor(s.weights).data);
  return holds ? type : std::nullopt;
}

// --- packed data: ring blocks, constants of columns, pieces of scores, the table -------------------------------------------

struct SelfPacked {
  int64_t constants, scores, table, bytes;  // where they begin
  int64_t score_windows, score_heads;       // that have scores of their own
};
SelfPacked packed_of(const Graph& graph, const SelfHeads& s, const SelfPlan& plan) {
  SelfPacked p{};
  p.score_windows = p.score_heads = 1;
  if (s.scores.valid()) {
    const Shape& shape = graph.tensor(s.scores).shape;
    const auto extent = [&](size_t from_back) { return shape.size() < from_back ? 1 : shape[shape.size() - from_back]; };
    p.score_windows = extent(4);
    p.score_heads = extent(3);
  }
  p.constants = s.heads * plan.chunks() * plan.chunk_bytes();
  p.scores = p.constants + s.heads * rk::kSelfConstantBytes;
  p.table = p.scores + p.score_windows * p.score_heads * rk::kSelfScoresBytes;
  p.bytes = p.table + plan.groups * plan.of_rtask * rk::kSelfRows * 4;
  return p;
}

// The column of all columns of weights that is column `c` of a head's product. Those of V are dealt as self_attention.cuh says.
int64_t column_of(const SelfHeads& s, int64_t head, int64_t c) {
  const int64_t part = c / rk::kSelfSize, of_part = c % rk::kSelfSize;
  const int64_t element = part < 2 ? of_part : of_part % 8 / 2 * 8 + of_part / 8 * 2 + of_part % 2;
  return (part * s.heads + head) * rk::kSelfSize + element;
}

void pack_weights(const Graph& graph, const SelfHeads& s, const SelfPlan& plan, const SelfPacked& at, bool halves, Bytes& bytes) {
  const float* const weights = f32_data(graph.tensor(s.weights));
  const float* const bias = f32_data_or_null(graph, s.bias);
  for (int64_t head = 0; head < s.heads; ++head) {
    std::byte* const block = bytes.data() + head * plan.chunks() * plan.chunk_bytes();
    for (int64_t c = 0; c < rk::kSelfColumns; ++c) {
      const int64_t column = column_of(s, head, c);
      double sum = 0;
      for (int64_t k = 0; k < s.k; ++k) {
        const float weight = weights[k * s.columns() + column];
        const uint16_t word = halves ? half_of(weight) : bfloat_of(weight);
        sum += halves ? float_of_half(word) : float_of_bfloat(word);
        std::byte* const box = block + k / 64 * rk::kSelfWeightBoxBytes;
        std::memcpy(box + rk::box_cell(c, k % 64 / 8) + k % 8 * 2, &word, 2);
      }
      const float two[2] = {static_cast<float>(sum), bias == nullptr ? 0.0F : bias[column]};
      std::byte* const to = bytes.data() + at.constants + head * rk::kSelfConstantBytes + c / 2 * 16 + c % 2 * 4;
      std::memcpy(to, &two[0], 4);
      std::memcpy(to + 8, &two[1], 4);
    }
  }
}

// A piece has 16 queries and 32 keys; lane l of its eight j of keys has keys 8 j + 2 * (l % 4) and the next one of queries l / 4 and l / 4
// + 8.
void pack_scores(const Graph& graph, const SelfHeads& s, const SelfPacked& at, Bytes& bytes) {
  std::vector<float> given;
  if (s.scores.valid()) {
    Tensor scores = graph.tensor(s.scores);
    scores.place = {BufferId(), 0, row_major_strides(scores.shape)};
    const std::vector<int64_t> strides = broadcast_strides(scores, {at.score_windows, at.score_heads, s.rows, s.rows});
    const float* const from = f32_data(scores);
    for (int64_t w = 0; w < at.score_windows; ++w)
      for (int64_t h = 0; h < at.score_heads; ++h)
        for (int64_t m = 0; m < s.rows; ++m)
          for (int64_t n = 0; n < s.rows; ++n) given.push_back(from[w * strides[0] + h * strides[1] + m * strides[2] + n * strides[3]]);
  }
  // Finite numbers stay finite: a query whose keys are all masked by the least number has weights that are all the same.
  const auto times_log2e = [](float x) {
    constexpr float kLargest = std::numeric_limits<float>::max();
    return std::isfinite(x) ? std::clamp(x * static_cast<float>(std::numbers::log2e), -kLargest, kLargest) : x;
  };
  for (int64_t matrix = 0; matrix < at.score_windows * at.score_heads; ++matrix) {
    for (int64_t i = 0; i < rk::kSelfScoresBytes / 4; ++i) {
      const int64_t e = i % 4, lane = i / 4 % 32, j = i / 128 % 4, half = i / 512 % 2, tile = i / 1024;
      const int64_t m = tile * 16 + e / 2 * 8 + lane / 4, n = half * 32 + j * 8 + lane % 4 * 2 + e % 2;
      float value = n < s.rows ? 0.0F : -std::numeric_limits<float>::infinity();
      if (m < s.rows && n < s.rows && !given.empty()) value = times_log2e(given[static_cast<size_t>((matrix * s.rows + m) * s.rows + n)]);
      std::memcpy(bytes.data() + at.scores + matrix * rk::kSelfScoresBytes + i * 4, &value, 4);
    }
  }
}

SelfPlan plan_of(const SelfHeads& s, const RKernel& rkernel) {
  const int64_t of_rtask = rkernel.config_value("windows");
  return {ceil_div(s.k, 64), rkernel.config_value("chunk_boxes"), of_rtask, ceil_div(s.windows, of_rtask)};
}

Bytes pack(const Graph& graph, const ROperator& rop, const RKernel& rkernel, int) {
  const SelfHeads s = *self_heads_of(graph, rop);
  const SelfPlan plan = plan_of(s, rkernel);
  const SelfPacked at = packed_of(graph, s, plan);
  Bytes bytes(static_cast<size_t>(at.bytes));
  pack_weights(graph, s, plan, at, rkernel.config_value("halves") != 0, bytes);
  pack_scores(graph, s, at, bytes);
  const std::vector<int32_t> rows = table_of(graph, s);
  for (int64_t i = 0; i < plan.groups * plan.of_rtask * rk::kSelfRows; ++i) {
    const int64_t window = i / rk::kSelfRows, row = i % rk::kSelfRows;
    const int32_t number = window < s.windows && row < s.rows ? rows[static_cast<size_t>(window * s.rows + row)] : -1;
    std::memcpy(bytes.data() + at.table + i * 4, &number, 4);
  }
  return bytes;
}

// --- candidates --------------------------------------------------------------------------------------------------------

Phase phase_of(const Request& request, const SelfHeads& s, const SelfPlan& plan, DType operands) {
  const Graph& graph = request.graph;
  const DType x = graph.tensor(s.x).dtype, out = graph.tensor(s.out).dtype;
  const SelfPacked at = packed_of(graph, s, plan);
  const rk::SelfSizes sizes = plan.sizes();
  const bool floats = x == DType::f32;
  Phase phase = early_phase("kernels/chain/self_attention.cuh", "rk::self_attention", "rk::SelfAttentionArgs");
  phase.template_args = {
      {"In", value_type(x)}, {"Value", value_type(operands)}, {"Out", value_type(out)}, {"BOXES", std::to_string(floats ? plan.boxes : 0)}};
  const int64_t scores_head = at.score_heads > 1 ? 1 : 0, scores_window = at.score_windows > 1 ? at.score_heads : 0;
  phase.args = {{"in", tensor_arg(s.x)},
                {"out", tensor_arg(s.out)},
                {"constants", ArgValue{PackedArg{at.constants}}},
                {"scores", ArgValue{PackedArg{at.scores}}},
                {"table", ArgValue{PackedArg{at.table}}},
                {"in_row", arg(s.x_row)},
                {"out_row", arg(s.out_row)},
                {"out_head", arg(s.out_head)},
                {"cells", arg(s.k / 8)},
                {"boxes", arg(plan.boxes)},
                {"chunk_boxes", arg(plan.chunk_boxes)},
                {"chunks", arg(plan.chunks())},
                {"windows", arg(s.windows)},
                {"of_rtask", arg(plan.of_rtask)},
                {"scores_window", arg(scores_window)},
                {"scores_head", arg(scores_head)},
                {"inverse_k", float_arg(1.0F / static_cast<float>(s.k))},
                {"epsilon", float_arg(s.steps.normalize().epsilon)},
                {"centered", arg(int64_t{s.steps.normalize().centered})},
                {"scale", float_arg(s.steps.attention().scale * static_cast<float>(std::numbers::log2e))},
                {"weightless", arg(static_cast<int64_t>(s.steps.attention().weightless))},
                {"made_at", arg(int64_t{sizes.made_at()})},
                {"merged_at", arg(int64_t{sizes.merged_at()})},
                {"scores_at", arg(int64_t{sizes.scores_at()})},
                {"constants_at", arg(int64_t{sizes.constants_at()})},
                {"norms_at", arg(int64_t{sizes.norms_at()})},
                {"table_at", arg(int64_t{sizes.table_at()})},
                {"groups", divisor_arg(plan.groups)}};
  phase.rtasks = s.heads * plan.groups;
  phase.work_bytes = sizes.work_bytes();
  phase.ring = {plan.chunk_bytes(), plan.chunks(), plan.groups, s.heads};
  const auto cost = [&](const char* name) { return request.vdevice.cost(std::string("self_attention.") + name); };
  const auto windows = static_cast<double>(plan.of_rtask), boxes = static_cast<double>(plan.boxes);
  const double rows = windows * static_cast<double>(s.rows), padded = windows * rk::kSelfRows;
  phase.cost.flops = 2 * padded * (64 * boxes * rk::kSelfColumns + 2 * rk::kSelfRows * rk::kSelfSize);
  phase.cost.tensor_core = true;
  phase.cost.activation_bytes = rows * static_cast<double>(s.k * bytes_of(x)) + rows * static_cast<double>(rk::kSelfSize * bytes_of(out));
  phase.cost.weight_bytes =
      (static_cast<double>(plan.chunks() * plan.chunk_bytes()) + windows * rk::kSelfScoresBytes) / cost("shared_reads");
  phase.cost.calibrated_cycles =
      cost("fixed_cycles") + windows * boxes * cost(floats ? "float_box_cycles" : "box_cycles") + (windows - 1) * cost("window_cycles");
  return phase;
}

std::vector<RKernel> offers(const Request& request) {
  const ShapedVDevice& d = request.vdevice;
  if (!d.wide_products) return {};
  const std::optional<SelfHeads> s = self_heads_of(request.graph, request.rop);
  if (!s) return {};
  const Tensor& x = request.graph.tensor(s->x);
  if (request.graph.buffers[x.place.buffer.index()].kind != BufferKind::arena) return {};
  std::vector<RKernel> rkernels;
  for (const int64_t of_rtask : {int64_t{1}, int64_t{2}}) {
    const std::optional<SelfPlan> plan = plan_of(request, *s, of_rtask);
    if (!plan) continue;
    const std::optional<DType> operands = operands_of(request, *s);
    if (!operands) return {};
    const std::string name =
        fmt::format("self_attention_{}<{} x {} rows, {} columns>", *operands == DType::f16 ? "fp16" : "bf16", of_rtask, s->rows, s->k);
    rkernels.push_back(one_phase(name,
                                 {{"windows", of_rtask}, {"chunk_boxes", plan->chunk_boxes}, {"halves", *operands == DType::f16 ? 1 : 0}},
                                 phase_of(request, *s, *plan, *operands)));
  }
  return rkernels;
}

// --- accesses ----------------------------------------------------------------------------------------------------------

void accesses(const Graph& graph, const ROperator& rop, const RKernel& rkernel, int, int64_t index, Accesses& out) {
  const SelfHeads s = *self_heads_of(graph, rop);
  const SelfPlan plan = plan_of(s, rkernel);
  const std::vector<int32_t> table = table_of(graph, s);
  const int64_t head = index / plan.groups, first = index % plan.groups * plan.of_rtask;
  const int64_t x_at = graph.tensor(s.x).place.offset, out_at = graph.tensor(s.out).place.offset + head * s.out_head;
  for (int64_t window = first; window < std::min(first + plan.of_rtask, s.windows); ++window) {
    const int32_t* const rows = table.data() + window * s.rows;
    for (int64_t begin = 0, end = 0; begin < s.rows; begin = end) {  // neighbours are one region
      while (end < s.rows && rows[end] - rows[begin] == end - begin) ++end;
      out.reads.push_back({s.x, {x_at + rows[begin] * s.x_row, end - begin, s.x_row, s.k}});
      out.writes.push_back({s.out, {out_at + rows[begin] * s.out_row, end - begin, s.out_row, rk::kSelfSize}});
    }
  }
}

}  // namespace

Family self_attention() { return {"self_attention", offers, pack, accesses}; }

}  // namespace tamp::kernels
