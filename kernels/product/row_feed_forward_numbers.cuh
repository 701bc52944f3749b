// Numbers of row_feed_forward that host and device code both know (kernels/vdevice/numbers.cuh).
#pragma once

#include "kernels/product/numbers.cuh"

namespace rk {

inline constexpr int kRowFeedDepth = 32, kRowFeedTile = 8;     // k and columns of a cell of the first products' weights
inline constexpr int kRowFeedStep = 16, kRowFeedColumns = 16;  // the same of the second one's; quantised ones have those of the first
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
  RK_NUMBER int block_bytes() const { return tiles() * factors * gemv_cell_bytes(first); }
  RK_NUMBER int info_bytes() const { return columns * factors * 8; }
  RK_NUMBER bool is_second_packed() const { return second != kCellHalves; }
  RK_NUMBER int step_rows() const { return is_second_packed() ? kRowFeedDepth : kRowFeedStep; }
  RK_NUMBER int steps() const { return (columns + step_rows() - 1) / step_rows(); }
  // Steps that lie in one chunk: those of a turn, where weights are quantised.
  RK_NUMBER int together() const { return is_second_packed() ? steps() : 1; }
  RK_NUMBER int step_bytes() const { return kComputeWarps * (is_second_packed() ? 2 : 1) * gemv_cell_bytes(second); }
  // 16 bytes that x and y take as operands.
  RK_NUMBER int x_operand() const { return gemv_row_operand(first, blocks()); }
  RK_NUMBER int y_operand() const { return is_second_packed() ? gemv_row_operand(second, steps()) : steps() * 4; }
  // Floats of shared memory: x as operands, sums of the first products, y, y as operands, and what warps know of x.
  RK_NUMBER int work_floats() const {
    return 4 * (x_operand() + y_operand()) + steps() * step_rows() + parts() * factors * columns + 4 * kComputeWarps;
  }
};

// The columns of z that a turn of all warps makes in the second product.
inline constexpr int kRowFeedTurn = kComputeWarps * kRowFeedColumns;

}  // namespace rk
