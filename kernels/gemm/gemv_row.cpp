// Host side of gemv_row.cuh, as far as it is not gemv's (gemv.cpp). rTask t is columns [t * columns * chunks, (t + 1) * columns * chunks).
#include "kernels/gemm/gemv_row.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>
#include <span>
#include <vector>

#include "kernels/args.h"
#include "kernels/gemm/gemv_of_rows.h"
#include "kernels/gemm/numbers.cuh"
#include "kernels/narrow.h"

namespace tamp::kernels {
namespace {

constexpr int64_t kThreads = rk::kComputeWarps * rk::kWarp, kFour = rk::kGemvLaneK;
constexpr int64_t kMostColumns = 16, kFewColumns = 4;  // of a chunk; fewer than the latter only where no more fit
constexpr int64_t kNarrowColumnsAtOnce = 2;            // a thread reads eight halves, four of two columns
constexpr int64_t kMoreChunks = 3;  // so many numbers of chunks are tried, from the least that lets all rTasks run at once

bool is_centred(const ROperator& rop) {
  const auto* const op = std::get_if<PrologueMatMul>(&rop.attrs);
  return op != nullptr && op->normalize && op->centered;
}

bool normalises(const ROperator& rop) {
  const auto* const op = std::get_if<PrologueMatMul>(&rop.attrs);
  return op != nullptr && op->normalize;
}

// Puts fours of k where they lie in a chunk: of narrow columns, those of two neighbours take turns.
template <class Number>
void put_column(const std::vector<Number>& column, int64_t columns_at_once, int64_t n, std::byte* chunk) {
  constexpr int64_t kBytes = kFour * static_cast<int64_t>(sizeof(Number));
  const int64_t fours = static_cast<int64_t>(column.size()) / kFour;
  std::byte* const to = chunk + (n / columns_at_once * fours * columns_at_once + n % columns_at_once) * kBytes;
  for (int64_t four = 0; four < fours; ++four) std::memcpy(to + four * columns_at_once * kBytes, column.data() + four * kFour, kBytes);
}

}  // namespace

int64_t RowTile::fours() const { return ceil_div(k, kFour); }
int64_t RowTile::info() const { return rk::gemv_row_info(centred ? rk::kGemvCentred : rk::kGemvAsIs); }
int64_t RowTile::chunk_bytes() const {
  const int64_t bytes = columns * (fours() * kFour * (narrow ? 2 : 4) + info() * 4);
  return ceil_div(bytes, 16) * 16;
}
int64_t RowTile::rtasks() const { return ceil_div(channels, rtask_columns()); }
int64_t RowTile::work_bytes() const { return (rtask_columns() * (rk::kComputeWarps + info()) + 2 * rk::kComputeWarps) * 4; }

std::vector<RowTile> row_tiles(const Request& request, const Product& p) {
  const VDevice& d = request.vdevice;
  if (p.rows() != 1 || ceil_div(p.k(), kFour * kThreads) > rk::kGemvRowTurns || d.compute_threads != kThreads) return {};
  std::vector<RowTile> tiles;
  RowTile tile{.narrow = request.precision != Precision::fp32, .k = p.k(), .channels = p.channels, .centred = is_centred(request.rop)};
  std::set<int64_t> known;  // columns of a rTask
  const int64_t least_columns = tile.narrow ? 2 : 1;
  for (tile.columns = kMostColumns; tile.columns >= least_columns; tile.columns /= 2) {
    if (tile.chunk_bytes() > d.weight_stage_bytes || (tile.columns > least_columns && tile.columns >= 2 * p.channels)) continue;
    if (tile.columns < kFewColumns && !tiles.empty()) break;
    const int64_t blocks = ceil_div(p.channels, tile.columns);
    const int64_t least = ceil_div(blocks, d.veus());  // chunks that let all rTasks run at once
    for (tile.chunks = least; tile.chunks < least + kMoreChunks; ++tile.chunks) {
      if (tile.work_bytes() > d.work_bytes() || (tile.chunks > 1 && tile.chunks > blocks)) break;
      if (known.insert(tile.rtask_columns()).second) tiles.push_back(tile);
    }
  }
  return tiles;
}

std::optional<RowTile> row_tile_of(const ROperator& rop, const Product& p, const RKernel& rkernel) {
  const auto is_row = [](const std::pair<std::string, int64_t>& entry) { return entry.first == "row_chunks"; };
  if (std::none_of(rkernel.config.begin(), rkernel.config.end(), is_row)) return std::nullopt;
  return RowTile{.columns = rkernel.config_value("columns"),
                 .chunks = rkernel.config_value("row_chunks"),
                 .narrow = rkernel.config_value("narrow") != 0,
                 .k = p.k(),
                 .channels = p.channels,
                 .centred = is_centred(rop)};
}

Bytes pack_row(const Graph& graph, const ROperator& rop, const Product& p, const RowTile& tile) {
  const std::vector<float> bias = has_bias(p) ? bias_of(graph, p) : std::vector<float>(static_cast<size_t>(p.channels), 0.0F);
  const float* const data = f32_data(graph.tensor(p.weights));
  const int64_t fours = tile.fours();
  Bytes bytes(static_cast<size_t>(tile.rtasks() * tile.chunks * tile.chunk_bytes()));
  std::vector<float> column(static_cast<size_t>(fours * kFour)), info(static_cast<size_t>(tile.info()));  // zeros behind k
  std::vector<uint16_t> halves(column.size());
  const std::span<float> weights(column.data(), static_cast<size_t>(tile.k));
  for (int64_t n = 0; n < p.channels; ++n) {
    WeightRow(data, p, 0, n, 0).copy(weights);  // there is one tap
    const float shifted = is_of_rows(rop) ? fold_factors(graph, rop, weights) : 0;
    std::fill(info.begin(), info.end(), 0.0F);
    info[0] = 1;
    info[1] = bias[static_cast<size_t>(n)] + shifted;
    std::byte* const chunk = bytes.data() + n / tile.columns * tile.chunk_bytes();
    if (tile.narrow) {
      const int exponent = half_exponent(weights);
      info[0] = std::ldexp(1.0F, exponent);
      halves_of(weights.data(), tile.k, std::ldexp(1.0F, -exponent), halves.data());
      put_column(halves, kNarrowColumnsAtOnce, n % tile.columns, chunk);
    } else {
      put_column(column, 1, n % tile.columns, chunk);
    }
    if (tile.centred) {  // sums of what the GPU multiplies with
      for (int64_t four = 0; four < fours; ++four) {
        float sum = 0;
        for (auto k = static_cast<size_t>(four * kFour); k < static_cast<size_t>((four + 1) * kFour); ++k)
          sum += tile.narrow ? float_of_half(halves[k]) : column[k];
        info[static_cast<size_t>(2 + four % kThreads / rk::kWarp)] += sum;
      }
    }
    const int64_t column_bytes = fours * kFour * (tile.narrow ? 2 : 4);
    std::memcpy(chunk + tile.columns * column_bytes + n % tile.columns * tile.info() * 4, info.data(), info.size() * sizeof(float));
  }
  return bytes;
}

Cost row_cost(const Request& request, const RowTile& tile, double operand_bytes, double out_bytes) {
  const VDevice& d = request.vdevice;
  const double k = static_cast<double>(tile.fours() * kFour), n = static_cast<double>(tile.rtask_columns());
  Cost cost;
  // Threads without k of their own wait for the others.
  const double turns = static_cast<double>(ceil_div(tile.fours(), kThreads) * kThreads * kFour);
  cost.flops = 2 * n * turns;
  cost.efficiency = d.cost("gemv.row_efficiency");
  cost.activation_bytes = operand_bytes * k + out_bytes * n;
  cost.weight_bytes = static_cast<double>(tile.chunks * tile.chunk_bytes());
  cost.latency_us = d.cost("gemv.row_us") + static_cast<double>(tile.chunks) * d.cost("gemv.row_chunk_us");
  if (normalises(request.rop)) cost.latency_us += d.cost("gemv.row_norm_us");
  if (const auto* const op = std::get_if<PrologueMatMul>(&request.rop.attrs); op != nullptr && !op->steps.empty())
    cost.latency_us += d.cost("gemv.chain_us");
  cost.early_us = d.cost("gemv.row_early_us");
  return cost;
}

}  // namespace tamp::kernels
