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
  GatedWeights gate, up, down;
  int64_t rows = 0;
  int64_t x_row = 0, residual_row = 0, z_row = 0;  // elements from a row to the next

  int64_t in_steps() const { return ceil_div(gate.k, rk::kGatedDepth); }
  int64_t inner_steps() const { return ceil_div(gate.n, rk::kGatedDepth); }
  int64_t inner_blocks() const { return ceil_div(gate.n, rk::kGatedInner); }
  int64_t outer_blocks() const { return ceil_div(down.n, rk::kGatedOuter); }
  int64_t steps() const { return inner_blocks() * in_steps() + outer_blocks() * inner_steps(); }
  int64_t tiles(int64_t tile_rows) const { return ceil_div(rows, tile_rows); }
  int64_t work_bytes(int64_t tile_rows) const {
    return tile_rows * (rk::gated_pitch(static_cast<int>(in_steps())) + rk::gated_pitch(static_cast<int>(inner_steps())));
  }
};

std::optional<GatedWeights> gated_weights(const Graph& graph, const FusedView& steps, size_t step) {
  const MatMul& product = *steps.as<MatMul>(step);
  const TensorId id = steps.input(step, 1);
  const Tensor& weights = graph.tensor(id);
  if (weights.role != Role::constant || weights.dtype != DType::f32 || weights.shape.size() != 2) return std::nullopt;
  return GatedWeights{id, weights.shape[product.trans_b ? 1 : 0], weights.shape[product.trans_b ? 0 : 1], product.trans_b, product.alpha};
}

std::optional<Gated> gated_of(const Graph& graph, const ROperator& rop) {
  const std::optional<FusedView> steps = gated_feed_forward_steps(rop);
  if (!steps) return std::nullopt;
  Gated g;
  g.x = steps->input(0, 0);
  g.residual = steps->residual(3);
  g.z = rop.outputs[0];
  for (const auto& [step, weights] : {std::pair(size_t{0}, &g.gate), std::pair(size_t{1}, &g.up), std::pair(size_t{3}, &g.down)}) {
    const std::optional<GatedWeights> found = gated_weights(graph, *steps, step);
    if (!found) return std::nullopt;
    *weights = *found;
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
  const bool halves = rkernel.config_value("halves") != 0;
  const int64_t chunk_steps = rkernel.config_value("chunk_steps");
  Bytes bytes(static_cast<size_t>(ceil_div(g.steps(), chunk_steps) * chunk_steps * rk::kGatedStepBytes));
  std::byte* to = bytes.data();
  // A step from k `k` on: each warp has `apart` columns from `column` on of both weights.
  const auto put = [&](const std::array<const GatedWeights*, 2>& weights, int64_t k, int64_t column, int64_t apart) {
    const float* const data[] = {f32_data(graph.tensor(weights[0]->id)), f32_data(graph.tensor(weights[1]->id))};
    for (int64_t lane = 0; lane < rk::kComputeWarps * rk::kWarp; ++lane) {
      for (size_t word = 0; word < 4; ++word, to += 4) {
        const size_t eight = word / 2;
        const int64_t row = k + lane % 4 * 2 + static_cast<int64_t>(word % 2) * 8;
        const int64_t n = column + lane / rk::kWarp * apart + (apart > 8 ? static_cast<int64_t>(eight) * 8 : 0) + lane % rk::kWarp / 4;
        const float low = weights[eight]->at(data[eight], row, n), high = weights[eight]->at(data[eight], row + 1, n);
        const uint16_t pair[] = {halves ? half_of(low) : bfloat_of(low), halves ? half_of(high) : bfloat_of(high)};
        std::memcpy(to, pair, 4);
      }
    }
  };
  for (int64_t block = 0; block < g.inner_blocks(); ++block) {
    for (int64_t step = 0; step < g.in_steps(); ++step) put({&g.gate, &g.up}, step * rk::kGatedDepth, block * rk::kGatedInner, 8);
  }
  for (int64_t block = 0; block < g.outer_blocks(); ++block) {
    for (int64_t step = 0; step < g.inner_steps(); ++step) put({&g.down, &g.down}, step * rk::kGatedDepth, block * rk::kGatedOuter, 16);
  }
  return bytes;
}

// --- candidates --------------------------------------------------------------------------------------------------------

// The type of the operands. None where x, z and the residual have other types, or where fp16 cannot hold the weights.
std::optional<DType> operands_of(const Request& request, const Gated& g) {
  if (!has_narrow_activations(request.precision)) return std::nullopt;
  const DType own = request.precision == Precision::fp16 ? DType::f16 : DType::bf16;
  for (const TensorId id : {g.x, g.residual, g.z}) {
    if (id.valid() && request.graph.tensor(id).dtype != DType::f32 && request.graph.tensor(id).dtype != own) return std::nullopt;
  }
  for (const GatedWeights* weights : {&g.gate, &g.up, &g.down}) {
    if (own == DType::f16 && !halves_hold(request.graph.tensor(weights->id).data, weights->alpha)) return std::nullopt;
  }
  return own;
}

// All operands come from shared memory, 128 bytes a cycle: in a step the weights once, and the rows once for each warp, as many bytes for
// 16 rows. Loads wait for each other about half of the time, and between blocks nothing is multiplied.
void set_cost(const Request& request, const Gated& g, int64_t tile_rows, Phase& phase) {
  constexpr double kBytesOfCycle = 128, kShare = 0.5, kRowsUs = 0.8, kBlockUs = 0.1;
  const ShapedVDevice& d = request.vdevice;
  const auto bytes = [&](TensorId id, int64_t columns) {
    return id.valid() ? static_cast<double>(tile_rows * columns * bytes_of(request.graph.tensor(id).dtype)) : 0.0;
  };
  const double steps = static_cast<double>(g.steps());
  const double step_cycles = static_cast<double>(rk::kGatedStepBytes) / kBytesOfCycle * static_cast<double>(1 + tile_rows / 16) / kShare;
  const double step_flops = 2.0 * static_cast<double>(tile_rows) * rk::kGatedDepth * rk::kGatedOuter;
  const double peak_of_cycle = d.tf32_tflops * 1e3 / d.clock_ghz / static_cast<double>(d.veus());
  phase.cost.flops = steps * step_flops;
  phase.cost.tensor_core = true;
  phase.cost.efficiency = step_flops / (step_cycles * peak_of_cycle);
  phase.cost.latency_us = kRowsUs + kBlockUs * static_cast<double>(g.inner_blocks() + g.outer_blocks());
  phase.cost.activation_bytes = bytes(g.x, g.gate.k) + bytes(g.residual, g.down.n) + bytes(g.z, g.down.n);
  phase.cost.weight_bytes = static_cast<double>(phase.ring.chunk_bytes * phase.ring.chunks_per_rtask);
}

Phase phase_of(const Request& request, const Gated& g, DType operands, int64_t tile_rows, int64_t chunk_steps) {
  const auto type = [&](TensorId id) { return value_type(request.graph.tensor(id).dtype); };
  Phase phase;
  phase.header = "kernels/chain/gated_feed_forward.cuh";
  phase.body = "rk::gated_feed_forward";
  phase.template_args = {{"In", type(g.x)},
                         {"Value", value_type(operands)},
                         {"Out", type(g.z)},
                         {"Added", type(g.residual.valid() ? g.residual : g.z)},
                         {"TILES", std::to_string(tile_rows / 16)}};
  phase.args_type = "rk::GatedFeedForwardArgs";
  phase.args = {{"in", tensor_arg(g.x)},
                {"residual", tensor_arg(g.residual)},
                {"out", tensor_arg(g.z)},
                {"in_row", arg(g.x_row)},
                {"residual_row", arg(g.residual_row)},
                {"out_row", arg(g.z_row)},
                {"rows", arg(g.rows)},
                {"k", arg(g.gate.k)},
                {"columns", arg(g.down.n)},
                {"in_steps", arg(g.in_steps())},
                {"inner_steps", arg(g.inner_steps())},
                {"inner_blocks", arg(g.inner_blocks())},
                {"outer_blocks", arg(g.outer_blocks())},
                {"chunk_steps", arg(chunk_steps)}};
  phase.rtasks = g.tiles(tile_rows);
  phase.work_bytes = g.work_bytes(tile_rows);
  phase.ring = {chunk_steps * rk::kGatedStepBytes, ceil_div(g.steps(), chunk_steps), phase.rtasks, 1};
  set_cost(request, g, tile_rows, phase);
  return phase;
}

std::vector<RKernel> offers(const Request& request) {
  const ShapedVDevice& d = request.vdevice;
  if (!d.tf32 || d.compute_threads != rk::kComputeWarps * rk::kWarp) return {};  // the same GPUs multiply 16 bits
  const std::optional<Gated> g = gated_of(request.graph, request.rop);
  const std::optional<DType> operands = g && g->rows > 0 ? operands_of(request, *g) : std::nullopt;
  if (!operands) return {};
  const int64_t room = d.input_stages > 0 ? over_inputs(d).work_bytes() : d.work_bytes();
  const int64_t chunk_steps = std::min(d.weight_stage_bytes / rk::kGatedStepBytes, g->steps());
  std::vector<RKernel> rkernels;
  for (const int64_t tile_rows : {16, 32}) {
    if (chunk_steps == 0 || g->work_bytes(tile_rows) > room) continue;
    RKernel rkernel;
    rkernel.family = "gated_feed_forward";
    rkernel.name = fmt::format("gated_feed_forward_{}<{} rows, {} x {} x {}>", *operands == DType::f16 ? "fp16" : "bf16", tile_rows,
                               g->gate.k, g->gate.n, g->down.n);
    rkernel.config = {{"tile_rows", tile_rows}, {"chunk_steps", chunk_steps}, {"halves", *operands == DType::f16 ? 1 : 0}};
    rkernel.phases = {phase_of(request, *g, *operands, tile_rows, chunk_steps)};
    rkernels.push_back(std::move(rkernel));
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

const Family& gated_feed_forward() {
  static const Family family = {"gated_feed_forward", offers, pack, accesses};
  return family;
}

}  // namespace tamp::kernels
