// Host side of gated_feed_forward.cuh. rTask t is tile t of rows.
#include "kernels/chain/gated_feed_forward.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <utility>

#include "compiler/ir/over_inputs.h"
#include "kernels/args.h"
#include "kernels/chain/gated_feed_forward_numbers.cuh"
#include "kernels/half_columns.h"
#include "kernels/loop.h"
#include "kernels/narrow.h"

namespace tamp::kernels {
namespace {

// --- the rOperator -----------------------------------------------------------------------------------------------------

// Constant weights, [K, N] or with `turned` [N, K], `alpha` times.
struct GatedWeights {
  TensorId id;
  int64_t k = 0, n = 0;
  bool turned = false;
  float alpha = 1;

  float at(const float* data, int64_t row, int64_t column) const {
    return row < k && column < n ? alpha * data[turned ? column * k + row : row * n + column] : 0.0F;
  }
};

struct Gated {
  TensorId x, residual, z;
  GatedWeights gate{}, up{}, down{};
  int64_t rows = 0;
  int64_t x_row = 0, residual_row = 0, z_row = 0;  // elements from a row to the next

  rk::GatedSizes sizes() const { return {static_cast<int>(gate.k), static_cast<int>(gate.n), static_cast<int>(down.n)}; }
  int64_t work_bytes(int64_t tile_rows) const { return tile_rows * (sizes().in_pitch() + sizes().inner_pitch()); }
};

std::optional<Gated> gated_of(const Graph& graph, const ROperator& rop) {
  const std::optional<FusedView> steps = gated_feed_forward_steps(rop);
  if (!steps) return std::nullopt;
  Gated g{steps->input(0, 0), steps->residual(3), rop.outputs[0]};
  for (const auto& [step, weights] : {std::pair(size_t{0}, &g.gate), std::pair(size_t{1}, &g.up), std::pair(size_t{3}, &g.down)}) {
    const MatMul& product = *steps->as<MatMul>(step);
    const TensorId id = steps->input(step, 1);
    const Shape& shape = graph.tensor(id).shape;
    if (!is_f32_constant(graph, id) || shape.size() != 2) return std::nullopt;
    *weights = {id, shape[product.trans_b ? 1 : 0], shape[product.trans_b ? 0 : 1], product.trans_b, product.alpha};
  }
  if (!has_gated_body(g.gate.k, g.gate.n, g.down.n)) return std::nullopt;
  g.rows = element_count(graph.tensor(g.x).shape) / g.gate.k;
  const std::pair<TensorId, int64_t*> places[] = {{g.x, &g.x_row}, {g.residual, &g.residual_row}, {g.z, &g.z_row}};
  for (const auto& [id, stride] : places) {
    if (!id.valid()) continue;
    const std::optional<int64_t> found = row_stride(graph.tensor(id), id == g.x ? 4 : 2);
    if (!found || !is_plain_values(graph.tensor(id))) return std::nullopt;
    *stride = *found;
  }
  return g;
}

// --- packed data: the chunks of the ring -------------------------------------------------------------------------------

Bytes pack(const Graph& graph, const ROperator& rop, const RKernel& rkernel, int) {
  const Gated g = *gated_of(graph, rop);
  const rk::GatedSizes s = g.sizes();
  const auto to_value = rkernel.config_value("halves") != 0 ? half_of : bfloat_of;
  Bytes bytes(static_cast<size_t>(rkernel.phases[0].ring.chunk_bytes * rkernel.phases[0].ring.chunks_per_rtask));
  std::byte* to = bytes.data();
  // A block of steps: each warp has eight columns of both weights, or, where these are the same, sixteen of them.
  const auto put = [&](const std::array<const GatedWeights*, 2>& weights, int64_t steps, int64_t first_column) {
    const float* const data[] = {f32_data(graph.tensor(weights[0]->id)), f32_data(graph.tensor(weights[1]->id))};
    const int64_t eights = weights[0] == weights[1] ? 2 : 1;  // of a warp
    for (int64_t k = 0; k < steps * rk::kGatedDepth; k += 16) {
      for (int64_t lane = 0; lane < rk::kComputeWarps * rk::kWarp; ++lane) {
        for (int64_t pair = 0; pair < 4; ++pair, to += 4) {
          const int64_t eight = pair / 2, row = k + lane % 4 * 2 + pair % 2 * 8;
          const int64_t column = first_column + (lane / rk::kWarp * eights + eight % eights) * 8 + lane % rk::kWarp / 4;
          const auto at = [&](int64_t i) { return to_value(weights[eight]->at(data[eight], row + i, column)); };
          const uint16_t values[] = {at(0), at(1)};
          std::memcpy(to, values, 4);
        }
      }
    }
  };
  for (int64_t block = 0; block < s.inner_steps(); ++block) put({&g.gate, &g.up}, s.in_steps(), block * rk::kGatedInner);
  for (int64_t block = 0; block < s.outer_blocks(); ++block) put({&g.down, &g.down}, s.inner_steps(), block * rk::kGatedOuter);
  return bytes;
}

// --- candidates --------------------------------------------------------------------------------------------------------

// The type of the operands. None where x, z and the residual have other types, or where fp16 cannot hold the weights. There is none in
// tf32: nothing proves that fp16 keeps y.
std::optional<DType> operands_of(const Request& request, const Gated& g) {
  const auto dtype = [&](TensorId id) { return id.valid() ? request.graph.tensor(id).dtype : DType::f32; };
  const std::optional<DType> type = operand_type(request.vdevice, request.precision, dtype(g.x), dtype(g.z), [] { return false; });
  if (!type || (dtype(g.residual) != DType::f32 && dtype(g.residual) != *type)) return std::nullopt;
  for (const GatedWeights* weights : {&g.gate, &g.up, &g.down}) {
    if (*type == DType::f16 && !halves_hold(request.graph.tensor(weights->id).data, weights->alpha)) return std::nullopt;
  }
  return type;
}

// All operands come from shared memory, 128 bytes a cycle: in a unit the weights once, and the rows once for each warp, as many bytes for
// 16 rows. Loads wait for each other about half of the time, and between blocks nothing is multiplied.
void set_cost(const Request& request, const Gated& g, int64_t tile_rows, Phase& phase) {
  constexpr double kBytesOfCycle = 128, kShare = 0.5, kRowsUs = 0.8, kBlockUs = 0.1;
  const ShapedVDevice& d = request.vdevice;
  const rk::GatedSizes s = g.sizes();
  const auto bytes = [&](TensorId id, int64_t columns) {
    return id.valid() ? static_cast<double>(tile_rows * columns * bytes_of(request.graph.tensor(id).dtype)) : 0.0;
  };
  const double step_cycles = static_cast<double>(rk::kGatedStepBytes) / kBytesOfCycle * static_cast<double>(1 + tile_rows / 16) / kShare;
  const double step_flops = 2.0 * static_cast<double>(tile_rows) * rk::kGatedDepth * rk::kGatedOuter;
  const double peak_of_cycle = d.tf32_tflops * 1e3 / d.clock_ghz / static_cast<double>(d.veus());
  phase.cost.flops = s.steps() * step_flops;
  phase.cost.tensor_core = true;
  phase.cost.efficiency = step_flops / (step_cycles * peak_of_cycle);
  phase.cost.latency_us = kRowsUs + kBlockUs * (s.inner_steps() + s.outer_blocks());
  phase.cost.activation_bytes = bytes(g.x, s.k) + bytes(g.residual, s.columns) + bytes(g.z, s.columns);
  phase.cost.weight_bytes = static_cast<double>(phase.ring.chunk_bytes * phase.ring.chunks_per_rtask);
}

Phase phase_of(const Request& request, const Gated& g, DType operands, int64_t tile_rows, int64_t chunk_steps) {
  const auto type = [&](TensorId id) { return value_type(request.graph.tensor(id).dtype); };
  Phase phase = body_phase("kernels/chain/gated_feed_forward.cuh", "rk::gated_feed_forward", "rk::GatedFeedForwardArgs");
  phase.template_args = {{"In", type(g.x)},
                         {"Value", value_type(operands)},
                         {"Out", type(g.z)},
                         {"Added", type(g.residual.valid() ? g.residual : g.z)},
                         {"TILES", std::to_string(tile_rows / 16)}};
  phase.args = {{"in", tensor_arg(g.x)},
                {"residual", tensor_arg(g.residual)},
                {"out", tensor_arg(g.z)},
                {"in_row", arg(g.x_row)},
                {"residual_row", arg(g.residual_row)},
                {"out_row", arg(g.z_row)},
                {"rows", arg(g.rows)},
                {"chunk_steps", arg(chunk_steps)},
                {"k", arg(g.gate.k)},
                {"inner", arg(g.gate.n)},
                {"columns", arg(g.down.n)}};
  phase.rtasks = ceil_div(g.rows, tile_rows);
  phase.work_bytes = g.work_bytes(tile_rows);
  phase.ring = {chunk_steps * rk::kGatedStepBytes, ceil_div(g.sizes().steps(), chunk_steps), phase.rtasks, 1};
  set_cost(request, g, tile_rows, phase);
  return phase;
}

std::vector<RKernel> offers(const Request& request) {
  const ShapedVDevice& d = request.vdevice;
  if (!d.tf32 || d.compute_threads != rk::kComputeWarps * rk::kWarp) return {};  // the same GPUs multiply 16 bits
  const std::optional<Gated> g = gated_of(request.graph, request.rop);
  const std::optional<DType> operands = g && g->rows > 0 ? operands_of(request, *g) : std::nullopt;
  const int64_t steps_of_stage = d.weight_stage_bytes / rk::kGatedStepBytes;
  if (!operands || steps_of_stage == 0) return {};
  const int64_t room = d.input_stages > 0 ? over_inputs(d).work_bytes() : d.work_bytes();
  std::vector<RKernel> rkernels;
  for (const int64_t tile_rows : {16, 32}) {
    if (g->work_bytes(tile_rows) > room) continue;
    const std::string name = fmt::format("gated_feed_forward_{}<{} rows, {} x {} x {}>", *operands == DType::f16 ? "fp16" : "bf16",
                                         tile_rows, g->gate.k, g->gate.n, g->down.n);
    rkernels.push_back(one_phase(name, {{"tile_rows", tile_rows}, {"halves", *operands == DType::f16 ? 1 : 0}},
                                 phase_of(request, *g, *operands, tile_rows, std::min<int64_t>(steps_of_stage, g->sizes().steps()))));
  }
  return rkernels;
}

// --- accesses ----------------------------------------------------------------------------------------------------------

void accesses(const Graph& graph, const ROperator& rop, const RKernel& rkernel, int, int64_t index, Accesses& out) {
  const Gated g = *gated_of(graph, rop);
  const int64_t tile_rows = rkernel.config_value("tile_rows"), first = index * tile_rows, count = std::min(tile_rows, g.rows - first);
  const auto rows = [&](TensorId id, int64_t stride, int64_t columns, std::vector<Region>& regions) {
    if (id.valid()) regions.push_back({id, {graph.tensor(id).place.offset + first * stride, count, stride, columns}});
  };
  rows(g.x, g.x_row, g.gate.k, out.reads);
  rows(g.residual, g.residual_row, g.down.n, out.reads);
  rows(g.z, g.z_row, g.down.n, out.writes);
}

}  // namespace

// Beyond these, each rTask would read megabytes of weights, and rows would not fit.
bool has_gated_body(int64_t k, int64_t inner, int64_t columns) {
  return k > 0 && k <= 1024 && k % 4 == 0 && inner > 0 && inner <= 4096 && columns > 0 && columns <= 1024 && columns % 2 == 0;
}

Family gated_feed_forward() { return {"gated_feed_forward", offers, pack, accesses}; }

}  // namespace tamp::kernels
