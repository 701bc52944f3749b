// Host side of feed_forward.cuh. rTask t is tile t % tiles of rows, and member t / tiles of its cluster where four share a tile.
#include "kernels/chain/feed_forward.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <vector>

#include "compiler/ir/over_inputs.h"
#include "kernels/args.h"
#include "kernels/chain/numbers.cuh"
#include "kernels/half_columns.h"
#include "kernels/loop.h"
#include "kernels/narrow.h"
#include "kernels/tile/numbers.cuh"

namespace tamp::kernels {
namespace {

// --- the rOperator -----------------------------------------------------------------------------------------------------

struct Feed {
  FeedForwardSteps steps;
  TensorId x{}, first_weights{}, weights{}, first_bias{}, bias{}, residual{}, scale{}, shift{}, z{}, kept{};  // kept: moments of z, or none
  int64_t rows = 0, k = 0, h = 0, c = 0;
  int64_t x_row = 0, z_row = 0, residual_row = 0;  // elements from a row to the next
};

std::optional<Feed> feed_of(const Graph& graph, const ROperator& rop) {
  const std::optional<FeedForwardSteps> steps = feed_forward_steps(rop);
  if (!steps) return std::nullopt;
  const FusedView& view = steps->view;
  const size_t first = steps->first, second = steps->second();
  Feed f{*steps};
  f.x = view.input(0, 0);
  f.first_weights = view.input(first, 1);
  f.weights = view.input(second, 1);
  f.first_bias = view.bias(first);
  f.bias = view.bias(second);
  f.residual = view.residual(second);
  if (steps->result) {
    f.scale = view.input(second + 1, 1);
    f.shift = view.input(second + 1, 2);
  }
  f.z = rop.outputs[0];
  if (steps->keeps_moments) f.kept = rop.outputs[1];
  if (!are_f32_constants(graph, {f.first_weights, f.weights, f.first_bias, f.bias, f.scale, f.shift})) return std::nullopt;
  f.k = graph.tensor(f.first_weights).shape[0];
  f.h = graph.tensor(f.weights).shape[0];
  f.c = graph.tensor(f.weights).shape[1];
  f.rows = element_count(graph.tensor(f.z).shape) / std::max<int64_t>(1, f.c);
  const std::pair<TensorId, int64_t*> places[] = {{f.x, &f.x_row}, {f.z, &f.z_row}, {f.residual, &f.residual_row}};
  for (const auto& [id, stride] : places) {
    if (!id.valid()) continue;
    const std::optional<int64_t> found = row_stride(graph.tensor(id), 4);
    if (!found || !is_plain_values(graph.tensor(id))) return std::nullopt;
    *stride = *found;
  }
  if (f.kept.valid() && (!is_plain_f32(graph.tensor(f.kept)) || !is_row_major(graph.tensor(f.kept)))) return std::nullopt;
  if (f.residual.valid()) {
    const DType added = graph.tensor(f.residual).dtype;
    if (added != graph.tensor(f.z).dtype && !(steps->result && added == DType::f32)) return std::nullopt;
  }
  return f;
}

// --- how it is divided -------------------------------------------------------------------------------------------------

rk::FeedSizes sizes_of(const Feed& f, int64_t members) {
  return {static_cast<int>(f.k), static_cast<int>(f.h / members), static_cast<int>(f.c)};
}
int64_t tiles_of(const Feed& f) { return ceil_div(f.rows, rk::kFeedRows); }
int64_t ring_bytes(const Feed& f, int64_t members) {
  const rk::FeedSizes s = sizes_of(f, members);
  return members * s.chunks() * s.chunk_bytes();
}
int64_t result_bytes(const Feed& f) { return f.steps.result ? 2 * f.c * 4 : 0; }  // scale and shift
int64_t second_bytes(const Feed& f, int64_t members) { return members * sizes_of(f, members).second_bytes(); }

constexpr int64_t kMostInner = 512;

// One row is row_feed_forward's, which keeps it whole (keeps_rows_of_16_bits).
bool fits(const ShapedVDevice& d, const Feed& f, int64_t members) {
  if (f.rows <= 1 || f.k == 0 || f.k % 32 != 0 || f.k > kMostFeedColumns || f.c == 0 || f.c % 32 != 0 || f.c > kMostFeedColumns ||
      f.h == 0 || f.h % (64 * members) != 0 || f.h / members > kMostInner || tiles_of(f) * members > d.veus())  // costs are of one round
    return false;
  const rk::FeedSizes s = sizes_of(f, members);
  return s.chunk_bytes() <= d.weight_stage_bytes && s.work_bytes(static_cast<int>(members)) <= over_inputs(d).work_bytes();
}

// Whether fp16 keeps all of both products' operands that tf32 keeps, whatever x is (docs/adr/0026). Whether y may lose bits where the
// activation makes it small, and W2 beside a residual, depends on the graph: compiler/shape asks passes/value_bounds.
bool halves_keep_all(const Graph& graph, const Feed& f) {
  const float* const bias = f32_data_or_null(graph, f.first_bias);
  if (!f.steps.normalize || !hold_normalised_product(f32_data(graph.tensor(f.first_weights)), bias, f.k, f.h)) return false;
  const float* const second = f32_data(graph.tensor(f.weights));
  for (int64_t c = 0; c < f.c; ++c) {
    if (!held_column_length(second, f.h, f.c, c, f.residual.valid() ? 0 : kSmallestHeld)) return false;
  }
  return true;
}

// The type of both products' operands. None where they would lose what the precision keeps.
std::optional<DType> operands_of(const Request& request, const Feed& f) {
  const Graph& graph = request.graph;
  const DType x = graph.tensor(f.x).dtype, z = graph.tensor(f.z).dtype;
  const auto keep_all = [&] { return halves_keep_all(graph, f); };
  const std::optional<DType> type = operand_type(request.vdevice, request.precision, x, z, keep_all);
  if (type != DType::f16 || request.precision == Precision::tf32) return type;
  // In a program of tf32 the normalised result may be narrow, and then the rOperator is asked for in fp16.
  if (f.steps.result && x == DType::f32 && !keep_all()) return std::nullopt;
  for (const TensorId weights : {f.first_weights, f.weights}) {
    if (!halves_hold(graph.tensor(weights).data) && !is_proven(graph, f.z)) return std::nullopt;
  }
  return type;
}

// --- packed data: ring blocks, the second product's weights, the constants ----------------------------------------------

struct Packer {
  bool halves;

  uint16_t value(float x) const { return halves ? half_of(x) : bfloat_of(x); }
  // Weight of k `k` of the box and column `column` of its tile (or of all columns of z), in a box. Columns of 16 are dealt to the rows of
  // an instruction as feed_forward.cuh says.
  void put(std::byte* box, int64_t column, int64_t k, float weight) const {
    const int64_t row = column / 16 * 16 + column % 2 * 8 + column % 16 / 2;
    const uint16_t word = value(weight);
    std::memcpy(box + rk::box_cell(row, k / 8) + k % 8 * 2, &word, 2);
  }
};

Bytes pack(const Graph& graph, const ROperator& rop, const RKernel& rkernel, int) {
  const Feed f = *feed_of(graph, rop);
  const int64_t members = rkernel.config_value("members");
  const Packer packer{rkernel.config_value("halves") != 0};
  const rk::FeedSizes s = sizes_of(f, members);
  const int64_t inner = f.h / members, chunk_bytes = s.chunk_bytes();
  Bytes bytes(static_cast<size_t>(ring_bytes(f, members) + second_bytes(f, members) + (f.h + f.c) * 4 + result_bytes(f)));
  const float *const first = f32_data(graph.tensor(f.first_weights)), *const second = f32_data(graph.tensor(f.weights));
  for (int64_t member = 0; member < members; ++member) {
    std::byte* const ring = bytes.data() + member * s.chunks() * chunk_bytes;
    for (int64_t h = 0; h < inner; ++h) {
      const int64_t tile = h / 64, in_chunk = s.half() ? tile % 2 : 0;
      std::byte* const chunk = ring + (s.half() ? tile / 2 : tile) * chunk_bytes;
      for (int64_t k = 0; k < f.k; ++k) {
        const bool is_half = k / 64 >= s.full_boxes();
        std::byte* const box = chunk + (is_half ? 2 * s.tile_bytes() : in_chunk * s.tile_bytes() + k / 64 * rk::kFeedWeightBoxBytes);
        packer.put(box, h % 64, k % 64 + (is_half ? in_chunk * 32 : 0), first[k * f.h + member * inner + h]);
      }
      std::byte* const box = bytes.data() + ring_bytes(f, members) + member * s.second_bytes() + h / 64 * s.out_box_bytes();
      for (int64_t c = 0; c < f.c; ++c) packer.put(box, c, h % 64, second[(member * inner + h) * f.c + c]);
    }
  }
  std::byte* const constants = bytes.data() + ring_bytes(f, members) + second_bytes(f, members);
  if (f.first_bias.valid()) std::memcpy(constants, f32_data(graph.tensor(f.first_bias)), static_cast<size_t>(f.h * 4));
  if (f.bias.valid()) std::memcpy(constants + f.h * 4, f32_data(graph.tensor(f.bias)), static_cast<size_t>(f.c * 4));
  if (!f.steps.result) return bytes;
  std::vector<float> scale(static_cast<size_t>(f.c), 1.0F), shift(static_cast<size_t>(f.c), 0.0F);
  if (f.scale.valid()) std::copy_n(f32_data(graph.tensor(f.scale)), f.c, scale.begin());
  if (f.shift.valid()) std::copy_n(f32_data(graph.tensor(f.shift)), f.c, shift.begin());
  std::memcpy(constants + (f.h + f.c) * 4, scale.data(), static_cast<size_t>(f.c * 4));
  std::memcpy(constants + (f.h + 2 * f.c) * 4, shift.data(), static_cast<size_t>(f.c * 4));
  return bytes;
}

// --- candidates --------------------------------------------------------------------------------------------------------

Phase phase_of(const Request& request, const Feed& f, int64_t members, DType operands) {
  const Graph& graph = request.graph;
  const rk::FeedSizes s = sizes_of(f, members);
  const DType x = graph.tensor(f.x).dtype, z = graph.tensor(f.z).dtype;
  const Normalize norm = f.steps.normalize ? *f.steps.normalize : Normalize{}, result = f.steps.result ? *f.steps.result : Normalize{};
  const auto flag = [](bool on) { return on ? "true" : "false"; };
  Phase phase = early_phase("kernels/chain/feed_forward.cuh", "rk::feed_forward", "rk::FeedForwardArgs");
  phase.template_args = {{"In", value_type(x)},
                         {"Value", value_type(operands)},
                         {"Out", value_type(z)},
                         {"K", std::to_string(s.k)},
                         {"H", std::to_string(s.h)},
                         {"C", std::to_string(s.c)},
                         {"MEMBERS", std::to_string(members)},
                         {"NORMALIZES", flag(f.steps.normalize != nullptr)},
                         {"ACTIVATION", feed_activation(f.steps.between().activation)}};
  if (f.steps.result) phase.template_args.emplace_back("NORMALIZES_RESULT", "true");
  if (f.residual.valid() && graph.tensor(f.residual).dtype != z)
    phase.template_args.emplace_back("Added", value_type(graph.tensor(f.residual).dtype));
  phase.args = {{"in", tensor_arg(f.x)},
                {"residual", tensor_arg(f.residual)},
                {"out", tensor_arg(f.z)},
                {"kept", tensor_arg(f.kept)},
                {"second", ArgValue{PackedArg{ring_bytes(f, members)}}},
                {"constants", ArgValue{PackedArg{ring_bytes(f, members) + second_bytes(f, members)}}},
                {"in_row", arg(f.x_row)},
                {"residual_row", arg(f.residual_row)},
                {"out_row", arg(f.z_row)},
                {"rows", arg(f.rows)},
                {"kept_parts", arg(f.c / kMomentColumns)},
                {"inverse_k", float_arg(1.0F / static_cast<float>(f.k))},
                {"epsilon", float_arg(norm.epsilon)},
                {"centered", arg(int64_t{norm.centered})},
                {"inverse_c", float_arg(1.0F / static_cast<float>(f.c))},
                {"result_epsilon", float_arg(result.epsilon)},
                {"result_centered", arg(int64_t{result.centered})},
                {"turns", arg(int64_t{s.tiles() / s.turn_boxes()})},
                {"tiles", divisor_arg(tiles_of(f))}};
  phase.rtasks = tiles_of(f) * members;
  phase.work_bytes = s.work_bytes(static_cast<int>(members));
  phase.ring = {s.chunk_bytes(), s.chunks(), tiles_of(f), members};
  phase.cluster = members;
  const auto cost = [&](const char* name) { return request.vdevice.cost(std::string("feed_forward.") + name); };
  const double tile = rk::kFeedRows, weight_bytes = static_cast<double>(s.chunks() * s.chunk_bytes() + s.second_bytes());
  phase.cost.flops = 2 * tile * s.h * (s.k + s.c);
  phase.cost.tensor_core = true;
  const double results = tile * s.c * static_cast<double>(bytes_of(z)) / static_cast<double>(members);
  phase.cost.activation_bytes = tile * s.k * static_cast<double>(bytes_of(x)) + results * (f.residual.valid() ? 2 : 1);
  phase.cost.weight_bytes = weight_bytes / cost("shared_reads");
  phase.cost.calibrated_cycles = cost("fixed_cycles") + cost("inner_cycles") * s.h + cost("weight_byte_cycles") * weight_bytes;
  if (members > 1) phase.cost.calibrated_cycles += cost("cluster_cycles");
  if (f.steps.result) phase.cost.calibrated_cycles += cost("result_cycles");
  return phase;
}

std::vector<RKernel> offers(const Request& request) {
  const ShapedVDevice& d = request.vdevice;
  if (!d.wide_products || d.weight_stages < 2) return {};
  const std::optional<Feed> f = feed_of(request.graph, request.rop);
  if (!f || !feed_activation(f->steps.between().activation)) return {};
  const Tensor& x = request.graph.tensor(f->x);
  if (request.graph.buffers[x.place.buffer.index()].kind != BufferKind::arena) return {};
  std::vector<RKernel> rkernels;
  for (const int64_t members : {int64_t{1}, int64_t{rk::kClusterMembers}}) {
    if ((members > 1 && d.cluster_veus != members) || !fits(d, *f, members)) continue;
    const std::optional<DType> operands = operands_of(request, *f);
    if (!operands) return {};
    const std::string name = fmt::format("feed_forward_{}<{} rows, {} x {} x {}{}{}>", *operands == DType::f16 ? "fp16" : "bf16",
                                         rk::kFeedRows, f->k, f->h, f->c, members > 1 ? ", cluster" : "",
                                         f->kept.valid()   ? ", moments"
                                         : f->steps.result ? ", normalized"
                                                           : "");
    rkernels.push_back(
        one_phase(name, {{"members", members}, {"halves", *operands == DType::f16 ? 1 : 0}}, phase_of(request, *f, members, *operands)));
  }
  return rkernels;
}

// --- accesses ----------------------------------------------------------------------------------------------------------

void accesses(const Graph& graph, const ROperator& rop, const RKernel& rkernel, int, int64_t index, Accesses& out) {
  const Feed f = *feed_of(graph, rop);
  const int64_t members = rkernel.config_value("members"), tile = index % tiles_of(f), member = index / tiles_of(f);
  const int64_t first = tile * rk::kFeedRows, last = std::min<int64_t>(first + rk::kFeedRows, f.rows);
  const auto rows = [&](TensorId id, int64_t from, int64_t step, int64_t stride, int64_t columns, std::vector<Region>& regions) {
    if (!id.valid() || from >= last) return;
    regions.push_back({id, {graph.tensor(id).place.offset + from * stride, ceil_div(last - from, step), step * stride, columns}});
  };
  rows(f.x, first, 1, f.x_row, f.k, out.reads);
  rows(f.residual, first + member, members, f.residual_row, f.c, out.reads);
  rows(f.z, first + member, members, f.z_row, f.c, out.writes);
  const int64_t parts = 2 * f.c / kMomentColumns;
  rows(f.kept, first + member, members, parts, parts, out.writes);
}

}  // namespace

Family feed_forward() { return {"feed_forward", offers, pack, accesses}; }

}  // namespace tamp::kernels
