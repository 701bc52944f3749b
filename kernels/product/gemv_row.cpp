// Host side of gemv_row.cuh, as far as it is not gemv's (gemv.cpp). rTask t is columns [t * columns * groups, (t + 1) * columns * groups).
#include "kernels/product/gemv_row.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <set>
#include <span>
#include <vector>

#include "kernels/args.h"
#include "kernels/narrow.h"
#include "kernels/product/gemv_cell.h"
#include "kernels/product/gemv_of_rows.h"
#include "kernels/product/numbers.cuh"

namespace tamp::kernels {
namespace {

constexpr int64_t kThreads = rk::kComputeWarps * rk::kWarp, kFour = rk::kGemvLaneK, kBlock = rk::kGemvBlockK;
constexpr int64_t kWarpsBlock = kBlock * rk::kComputeWarps;  // k of which each warp has as many
constexpr int64_t kMostColumns = 16, kFewColumns = 4;        // of a chunk; fewer than the latter only where no more fit
constexpr int64_t kTileColumns = 8, kMostTiles = 4;          // of products on tensor cores; of a chunk
constexpr int64_t kMoreGroups = 3;  // so many numbers of groups are tried, from the least that lets all rTasks run at once

const Normalize* normalize_of(const ROperator& rop) {
  const std::optional<StepsOfRows> of = steps_of_rows(rop);
  return of ? of->normalize : nullptr;
}

bool is_centred(const ROperator& rop) { return normalize_of(rop) && normalize_of(rop)->centered; }

// Beside boxes of inputs the ring's stages are small, and rows that are made of several ones need registers for each (docs/adr/0032).
int64_t most_turns(const Request& request) {
  const std::optional<StepsOfRows> of = steps_of_rows(request.rop);
  const bool is_short = request.vdevice.input_stages > 0 || (of && of->chain);
  return is_short ? rk::kGemvRowFewTurns : rk::kGemvRowTurns;
}

// Cuts k into as few chunks as fit a stage; false where none do. A chunk has as many k for each warp, and all chunks are of one size: k
// that are cut so that much of the last chunk is empty are not cut.
bool cut_to_fit(RowTile& tile, int64_t stage_bytes) {
  const auto is_full = [&] { return tile.pieces * tile.chunk_k() <= tile.packed_k() + tile.packed_k() / 8; };
  for (tile.pieces = 1;; ++tile.pieces) {
    if (tile.chunk_bytes() <= stage_bytes && is_full()) return true;
    if (!tile.narrow || tile.chunk_k() <= kWarpsBlock) return false;
  }
}

// Puts the k of column n where they lie in a rTask's chunks, from `group` on, the first chunk of its column.
void put_column(const std::vector<uint16_t>& column, const RowTile& tile, int64_t n, std::byte* group) {
  constexpr int64_t kBytes = kBlock * 2;
  const int64_t of_chunk = tile.chunk_k() / kBlock;
  for (int64_t block = 0; block < tile.packed_k() / kBlock; ++block) {
    std::byte* const chunk = group + block / of_chunk * tile.chunk_bytes();
    std::memcpy(chunk + (block % of_chunk * tile.columns + n) * kBytes, column.data() + block * kBlock, kBytes);
  }
}

// Columns of which two cells are made when the last one is there, or one behind the last two of a chunk.
class CellColumns {
 public:
  explicit CellColumns(const RowTile& tile) : tile_(tile), values_(static_cast<size_t>(2 * kTileColumns * tile.packed_k())) {}
  // Column n, whose chunks begin at `group`; returns what its weights are divided by.
  float add(int64_t n, std::span<const float> weights, std::byte* group) {
    const int64_t in_group = n % tile_.columns, tile = in_group / kTileColumns / 2 * 2, at = in_group - tile * kTileColumns;
    const int64_t count = std::min<int64_t>(2, tile_.columns / kTileColumns - tile);
    if (at == 0) std::fill(values_.begin(), values_.end(), 0.0F), scales_.fill(1);
    std::copy(weights.begin(), weights.end(), values_.begin() + at * tile_.packed_k());
    scales_[static_cast<size_t>(at)] = half_scale(weights);
    if (at + 1 == count * kTileColumns || n + 1 == tile_.channels) put(tile, count, group);
    return scales_[static_cast<size_t>(at)];
  }

 private:
  void put(int64_t tile, int64_t count, std::byte* group) const {
    const int64_t of_chunk = tile_.chunk_k() / kBlock, tiles = tile_.columns / kTileColumns;
    for (int64_t block = 0; block < tile_.packed_k() / kBlock; ++block) {
      std::byte* const chunk = group + block / of_chunk * tile_.chunk_bytes();
      const auto column = [&](int64_t c) {
        return CellColumn{{values_.data() + c * tile_.packed_k() + block * kBlock, kBlock}, scales_[static_cast<size_t>(c)]};
      };
      pack_cells(tile_.cell, count, column, chunk + (block % of_chunk * tiles + tile) * rk::gemv_cell_bytes(tile_.cell));
    }
  }

  const RowTile& tile_;
  std::vector<float> values_;
  std::array<float, 2 * kTileColumns> scales_{};
};

// The tiles of a product whose weights lie as those of `tile` do.
void append_row_tiles(const ShapedVDevice& d, RowTile tile, std::vector<RowTile>& tiles) {
  std::set<int64_t> known;  // columns of a rTask
  const size_t before = tiles.size();
  for (tile.columns = tile.narrow ? kMostTiles * kTileColumns : kMostColumns; tile.columns > 0;
       tile.columns = tile.narrow ? tile.columns - kTileColumns : tile.columns / 2) {
    const int64_t least_columns = tile.narrow ? kTileColumns : 1;
    if (!cut_to_fit(tile, d.weight_stage_bytes) || (tile.columns > least_columns && tile.columns >= 2 * tile.channels)) continue;
    if (tile.columns < kFewColumns && tiles.size() > before) break;
    const int64_t all = ceil_div(tile.channels, tile.columns);
    const auto fits = [&](int64_t groups) {
      tile.groups = groups;
      return tile.work_bytes() <= d.work_bytes();
    };
    int64_t least = ceil_div(all, d.veus());  // groups that let all rTasks run at once; fewer only where no more fit
    while (least > 1 && !fits(least)) --least;
    for (int64_t groups = least; groups < least + kMoreGroups && fits(groups) && (groups == 1 || groups <= all); ++groups) {
      if (known.insert(tile.rtask_columns()).second) tiles.push_back(tile);
    }
  }
}

}  // namespace

int64_t RowTile::packed_k() const { return ceil_div(k, narrow ? kBlock : kFour) * (narrow ? kBlock : kFour); }
int64_t RowTile::chunk_k() const { return pieces == 1 ? packed_k() : ceil_div(ceil_div(packed_k(), pieces), kWarpsBlock) * kWarpsBlock; }
int64_t RowTile::info() const { return rk::gemv_row_info(centred ? rk::kGemvCentred : rk::kGemvAsIs); }
int64_t RowTile::chunk_weight_bytes() const {
  return narrow ? rk::gemv_row_weight_bytes(cell, static_cast<int>(columns), static_cast<int>(chunk_k())) : columns * chunk_k() * 4;
}
int64_t RowTile::chunk_bytes() const { return ceil_div(chunk_weight_bytes() + columns * info() * 4, 16) * 16; }
int64_t RowTile::rtasks() const { return ceil_div(channels, rtask_columns()); }
int64_t RowTile::work_bytes() const {
  const int64_t sums = rtask_columns() * (rk::kComputeWarps + info()) + rk::gemv_row_stats_floats();
  return sums * 4 + (narrow ? rk::gemv_row_operand(cell, static_cast<int>(packed_k() / kBlock)) * 16 : 0);
}

std::vector<RowTile> row_tiles(const Request& request, const Product& p) {
  const ShapedVDevice& d = request.vdevice;
  RowTile tile{.narrow = request.precision != Precision::fp32, .k = p.k(), .channels = p.channels, .centred = is_centred(request.rop)};
  if (p.rows() != 1 || ceil_div(p.k(), kFour * kThreads) > most_turns(request)) return {};
  if (tile.narrow && !d.tf32) return {};  // a GPU with the mma that the body uses has tf32, too
  std::vector<RowTile> tiles;
  if (tile.narrow) tile.cell = cell_of(request.graph, {p.weights, p.k(), p.channels, p.weight_stride_channel, p.weight_stride_n});
  if (tile.cell != rk::kCellHalves) append_row_tiles(d, tile, tiles);
  tile.cell = rk::kCellHalves;  // of few weights that are quantised, too: those of the first chunks are in registers when x comes
  append_row_tiles(d, tile, tiles);
  return tiles;
}

std::optional<RowTile> row_tile_of(const ROperator& rop, const Product& p, const RKernel& rkernel) {
  if (config_or(rkernel, "row_groups", 0) == 0) return std::nullopt;
  return RowTile{.columns = rkernel.config_value("columns"),
                 .groups = rkernel.config_value("row_groups"),
                 .pieces = rkernel.config_value("row_pieces"),
                 .narrow = rkernel.config_value("narrow") != 0,
                 .cell = static_cast<rk::GemvCell>(config_or(rkernel, "cell", rk::kCellHalves)),
                 .k = p.k(),
                 .channels = p.channels,
                 .centred = is_centred(rop)};
}

bool has_row_factors(const Graph& graph, const ROperator& rop, const RowTile& tile) {
  return tile.cell != rk::kCellHalves && !factors_of_rows(graph, rop).empty();
}

int64_t row_ring_bytes(const RowTile& tile) { return tile.rtasks() * tile.groups * tile.pieces * tile.chunk_bytes(); }

Bytes pack_row(const Graph& graph, const ROperator& rop, const Product& p, const RowTile& tile) {
  const std::vector<float> bias = has_bias(p) ? bias_of(graph, p) : std::vector<float>(static_cast<size_t>(p.channels), 0.0F);
  const float* const data = f32_data(graph.tensor(p.weights));
  const bool has_cells = tile.cell != rk::kCellHalves, has_factors = has_row_factors(graph, rop, tile);
  const int64_t group_bytes = tile.pieces * tile.chunk_bytes(), ring_bytes = row_ring_bytes(tile);
  Bytes bytes = zero_bytes(static_cast<size_t>(ring_bytes + (has_factors ? tile.packed_k() * 4 : 0)));
  if (has_factors) {
    const std::span<const float> factors = factors_of_rows(graph, rop);
    std::memcpy(bytes.data() + ring_bytes, factors.data(), factors.size_bytes());
  }
  std::vector<float> info(static_cast<size_t>(tile.info()));
  std::vector<uint16_t> halves(static_cast<size_t>(tile.packed_k()));  // zeros behind k
  CellColumns cells(tile);
  WeightColumns columns(data, p);
  for (int64_t n = 0; n < p.channels; ++n) {
    const std::span<float> weights = columns.column(n);
    std::byte* const group = bytes.data() + n / tile.columns * group_bytes;
    const int64_t in_group = n % tile.columns, column_bytes = tile.packed_k() * 4;
    std::fill(info.begin(), info.end(), 0.0F);
    info[0] = 1;
    if (has_cells) info[0] = cells.add(n, weights, group);
    const float shifted = is_of_rows(rop) ? fold_factors(graph, rop, weights) : 0;
    info[1] = bias[static_cast<size_t>(n)] + shifted;
    if (tile.narrow && !has_cells) {
      info[0] = half_scale(weights);
      halves_of(weights.data(), tile.k, 1 / info[0], halves.data());
      put_column(halves, tile, in_group, group);
    } else if (!tile.narrow) {
      std::memcpy(group + in_group * column_bytes, weights.data(), weights.size_bytes());
    }
    if (tile.centred) {  // sums of what the GPU multiplies with
      for (int64_t k = 0; k < tile.k; ++k) {
        const auto at = static_cast<size_t>(k);
        info[static_cast<size_t>(rk::kGemvRowSums + k / kBlock % rk::kComputeWarps)] +=
            tile.narrow && !has_cells ? float_of_half(halves[at]) : weights[at] / info[0];
      }
    }
    std::byte* const last = group + (tile.pieces - 1) * tile.chunk_bytes() + tile.chunk_weight_bytes();
    std::memcpy(last + in_group * tile.info() * 4, info.data(), info.size() * sizeof(float));
  }
  return bytes;
}

Cost row_cost(const Request& request, const RowTile& tile, double operand_bytes, double out_bytes) {
  const ShapedVDevice& d = request.vdevice;
  const double k = static_cast<double>(tile.packed_k()), n = static_cast<double>(tile.rtask_columns());
  Cost cost;
  // Threads without k of their own wait for the others.
  const double turns = static_cast<double>(ceil_div(tile.packed_k(), kThreads * kFour) * kThreads * kFour);
  cost.flops = 2 * n * turns;
  cost.efficiency = d.cost("gemv.row_efficiency");
  cost.activation_bytes = operand_bytes * k + out_bytes * n;
  const int64_t chunks = tile.groups * tile.pieces;
  cost.weight_bytes = static_cast<double>(chunks * tile.chunk_bytes());
  cost.latency_us = d.cost("gemv.row_us") + static_cast<double>(chunks) * d.cost("gemv.row_chunk_us");
  if (tile.cell != rk::kCellHalves) cost.latency_us += d.cost("gemv.row_cells_us");
  if (normalize_of(request.rop)) cost.latency_us += d.cost("gemv.row_norm_us");
  if (const std::optional<StepsOfRows> of = steps_of_rows(request.rop); of && of->chain) cost.latency_us += d.cost("gemv.chain_us");
  cost.early_us = d.cost("gemv.row_early_us");
  return cost;
}

}  // namespace tamp::kernels
