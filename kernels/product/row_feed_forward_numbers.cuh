// Numbers of row_feed_forward that host and device code both know (kernels/vdevice/numbers.cuh).
#pragma once

#include "kernels/product/numbers.cuh"

namespace rk {

inline constexpr int kRowFeedDepth = 32, kRowFeedTile = 8;     // k and columns of a cell of the first products' weights
inline constexpr int kRowFeedStep = 16, kRowFeedColumns = 16;  // the same of the second one's
inline constexpr int kRowFeedSumColumns = 16;                  // of z, of a rTask that adds up
inline constexpr int kRowFeedHeld = 18;                        // vectors of weights that a lane has in registers before x is there, at most

// What a rTask of the first phase multiplies: `columns` columns of y.
struct RowFeedSlice {
  int k, columns, factors;  // factors: two where y is a gated product
  int first, second;        // how weights lie in the cells of the first products, and of the second one: a GemvCell

  RK_NUMBER int tiles() const { return columns / kRowFeedTile; }
  // Where there are fewer tiles than warps, so many warps share the k of a tile.
  RK_NUMBER int parts() const { return tiles() >= kComputeWarps ? 1 : kComputeWarps / tiles(); }
  RK_NUMBER int blocks() const { return (k + kRowFeedDepth - 1) / kRowFeedDepth; }
  RK_NUMBER int block_bytes() const { return tiles() * factors * gemv_cell_bytes(first, kRowFeedTile); }
  RK_NUMBER int info_bytes() const { return columns * factors * 8; }
  RK_NUMBER int steps() const { return (columns + kRowFeedStep - 1) / kRowFeedStep; }
  RK_NUMBER int step_bytes() const { return kComputeWarps * gemv_cell_bytes(second, kRowFeedColumns); }
  // Floats of shared memory: x as operands, sums of the first products, y, y as operands, and what warps know of x.
  RK_NUMBER int work_floats() const {
    return blocks() * kRowFeedDepth + parts() * factors * columns + 2 * steps() * kRowFeedStep + 4 * kComputeWarps;
  }
};

// The columns of z that a turn of all warps makes in the second product.
inline constexpr int kRowFeedTurn = kComputeWarps * kRowFeedColumns;

}  // namespace rk
