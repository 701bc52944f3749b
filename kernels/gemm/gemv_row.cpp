// Host side of gemv_row.cuh, as far as it is not gemv's (gemv.cpp). rTask t is columns [t * columns * chunks, (t + 1) * columns * chunks).
#include "kernels/gemm/gemv_row.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <set>

#include "kernels/args.h"
#include "kernels/gemm/gemv_of_rows.h"
#include "kernels/gemm/numbers.cuh"
#include "kernels/narrow.h"

namespace tamp::kernels {
namespace {

constexpr int64_t kThreads = rk::kComputeWarps * rk::kWarp, kFour = rk::kGemvLaneK;
constexpr int64_t kMostColumns = 16, kFewColumns = 4;  // of a chunk; fewer than the latter only where no more fit
constexpr int64_t kMoreChunks = 3;  // so many numbers of chunks are tried, from the least that lets all rTasks run at once

bool is_centred(const ROperator& rop) {
  const auto* const op = std::get_if<PrologueMatMul>(&rop.attrs);
  return op != nullptr && op->normalize && op->centered;
}

bool normalises(const ROperator& rop) {
  const auto* const op = std::get_if<PrologueMatMul>(&rop.attrs);
  return op != nullptr && op->normalize;
}

float float_of_half(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000U) << 16, rest = static_cast<uint32_t>(half & 0x7fffU) << 13;
  if ((half & 0x7c00U) == 0x7c00U) return std::bit_cast<float>(sign | 0x7f800000U | rest);  // infinite or NaN
  return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(std::bit_cast<float>(rest) * 0x1p112F));
}

// The columns of a chunk as they lie there.
class ChunkWriter {
 public:
  ChunkWriter(const RowTile& tile, std::byte* chunk, int64_t column)
      : tile_(tile), at_(chunk + (column / at_once() * tile.fours() * at_once() + column % at_once()) * kFour * bytes()) {}

  // Four of k, as they are or as halves; returns their sum.
  float write(int64_t four, const float* weights, int64_t count, float up) {
    std::byte* const to = at_ + four * at_once() * kFour * bytes();
    float sum = 0;
    for (int64_t j = 0; j < count; ++j) {
      const uint16_t half = tile_.narrow ? half_of(weights[j] * up) : uint16_t{0};
      std::memcpy(to + j * bytes(), tile_.narrow ? static_cast<const void*>(&half) : weights + j, static_cast<size_t>(bytes()));
      sum += tile_.narrow ? float_of_half(half) : weights[j];
    }
    return sum;
  }

 private:
  int64_t at_once() const { return tile_.narrow ? 2 : 1; }
  int64_t bytes() const { return tile_.narrow ? 2 : 4; }

  const RowTile& tile_;
  std::byte* at_;
};

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
  std::vector<float> weights(static_cast<size_t>(tile.k)), info(static_cast<size_t>(tile.info()));
  for (int64_t n = 0; n < p.channels; ++n) {
    const WeightRow row(data, p, 0, n, 0);  // there is one tap
    for (int64_t k = 0; k < tile.k; ++k) weights[static_cast<size_t>(k)] = row[k];
    const float shifted = is_of_rows(rop) ? fold_factors(graph, rop, weights) : 0;
    const int exponent = tile.narrow ? half_exponent(weights) : 0;
    std::byte* const chunk = bytes.data() + n / tile.columns * tile.chunk_bytes();
    ChunkWriter writer(tile, chunk, n % tile.columns);
    std::fill(info.begin(), info.end(), 0.0F);
    info[0] = std::ldexp(1.0F, exponent);
    info[1] = bias[static_cast<size_t>(n)] + shifted;
    for (int64_t four = 0; four < fours; ++four) {
      const float* const from = weights.data() + four * kFour;
      const float sum = writer.write(four, from, std::min(kFour, tile.k - four * kFour), std::ldexp(1.0F, -exponent));
      if (tile.centred) info[static_cast<size_t>(2 + four % kThreads / rk::kWarp)] += sum;
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
