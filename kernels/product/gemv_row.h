// What gemv.cpp needs to know of gemv_row.cuh, the body of products of one row.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "kernels/family.h"
#include "kernels/product/numbers.cuh"
#include "kernels/tile/product.h"

namespace tamp::kernels {

struct RowTile {
  int64_t columns = 1, groups = 1, pieces = 1;  // of a chunk; so many columns, of a rTask; chunks that all k of them take
  bool narrow = false;
  rk::GemvCell cell = rk::kCellHalves;  // how narrow weights lie
  int64_t k = 0, channels = 0;          // the product's
  bool centred = false;                 // the row's mean is subtracted

  int64_t packed_k() const;  // with zeros
  int64_t chunk_k() const;   // `pieces` of it are at least packed_k
  int64_t chunk_bytes() const;
  int64_t chunk_weight_bytes() const;
  int64_t rtask_columns() const { return columns * groups; }
  int64_t rtasks() const;
  int64_t work_bytes() const;
  int64_t info() const;  // floats of a column in a chunk
};

// Tiles of a product of one row; none where the body cannot compute it.
std::vector<RowTile> row_tiles(const Request& request, const Product& product);

// The tile of an rKernel whose body is gemv_row.cuh; none of others.
std::optional<RowTile> row_tile_of(const ROperator& rop, const Product& product, const RKernel& rkernel);

// The ring's chunks; behind them, of weights that are packed without the scale of their normalisation, that scale for each k.
Bytes pack_row(const Graph& graph, const ROperator& rop, const Product& product, const RowTile& tile);

// Whether the body multiplies x by the scale of the normalisation.
bool has_row_factors(const Graph& graph, const ROperator& rop, const RowTile& tile);
int64_t row_ring_bytes(const RowTile& tile);

Cost row_cost(const Request& request, const RowTile& tile, double operand_bytes, double out_bytes);

}  // namespace tamp::kernels
