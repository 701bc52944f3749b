// Numbers of gemv and matmul_direct that host and device code both know (kernels/vdevice/numbers.cuh).
#pragma once

#include "kernels/vdevice/numbers.cuh"

namespace rk {

inline constexpr int kGemvLaneK = 4;               // neighbours in `in` that a lane reads at once
inline constexpr int kGemvStepBytes = kWarp * 16;  // of a column's weights that a warp reads at once
inline constexpr int kGemvParts = 4;               // of gemv_of_sums: loads that a thread has under way
inline constexpr int kGemvRows = 8;                // at most, and of a gemv's arguments; in tables
inline constexpr int kGemvOperands = 4;            // of gemv_of_rows, at most; in tables
inline constexpr int kGemvFours = 4;               // the same: fours of k that a thread loads together
inline constexpr int kGemvBlockK = 32;             // the same: k side by side that one warp has of a row
inline constexpr int kMatmulBatchRank = 4;         // in tables
// Bits of its WORDS besides those of its operands: the residual, the result.
inline constexpr int kGemvResidualBit = kGemvOperands, kGemvOutBit = kGemvOperands + 1;                    // in tables
inline constexpr uint32_t kGemvResidualWords = 1u << kGemvResidualBit, kGemvOutWords = 1u << kGemvOutBit;  // in tables
// What gemv_of_rows does to its rows: nothing, divides them by the root of their mean square, or subtracts their mean first.
enum GemvNorm : int { kGemvAsIs, kGemvScaled, kGemvCentred };  // in tables
// rounded_head: what follows the product. Nothing or relu; a rounding and a factor; a rounding and a table.
enum GemvHeadEnd : int { kHeadPlain, kHeadFactor, kHeadTable };  // in tables
// Words of shared memory behind its rows: two sums of each row in every warp.
constexpr int gemv_sums_floats(int rows) { return 2 * rows * kComputeWarps; }
// gemv_row: whether the residual is added, and whether before the activation or after it.
enum GemvResidual : int { kGemvNoResidual, kGemvBefore, kGemvAfter };  // in tables
// gemv_row: turns of 256 fours of k, at most; floats of a column in a chunk besides its weights, which are its scale, its bias, and where
// the mean is subtracted from place kGemvRowSums on the sums of its weights for each warp.
inline constexpr int kGemvRowTurns = 5, kGemvRowFewTurns = 3, kGemvRowSums = 4;
// 16 bytes of weights that a thread has in registers before its x comes, at most; and how many 32 k of `all` the second chunk has, of
// `most`: of the same columns, or of the next ones where the first chunk has all k.
inline constexpr int kGemvRowHeld = 24;
// How weights of 16 bits, or quantised ones of 8 and 4, lie in a cell of the ring, 8 columns by 32 k (gemv_cell.cuh); its bytes.
enum GemvCell : int { kCellHalves, kCellBytes, kCellNibbles, kCellBytesFrom, kCellNibblesFrom };  // in tables
inline constexpr int kGemvCellColumns = 8;
RK_NUMBER int gemv_cell_bytes(int cell) {
  if (cell == kCellHalves) return kWarp * 16;
  const bool is_bytes = cell == kCellBytes || cell == kCellBytesFrom;
  return kWarp * (is_bytes ? 8 : 4) + kGemvCellColumns * (cell == kCellBytesFrom || cell == kCellNibblesFrom ? 4 : 2);
}
// 16 bytes of shared memory that x takes as an operand, of so many 32 k: its numbers, and of quantised weights what sums begin with.
RK_NUMBER int gemv_row_operand(int cell, int blocks) { return blocks * 8 + (cell == kCellHalves ? 0 : (blocks + 1) / 2); }
RK_NUMBER int gemv_row_second(int all, int most) { return most >= all ? all : all - most < most ? all - most : most; }
// The bytes of a chunk's weights in 16 bits or less: COLUMNS columns of chunk_k.
RK_NUMBER int gemv_row_weight_bytes(int cell, int columns, int chunk_k) {
  return columns / kGemvCellColumns * (chunk_k / kGemvBlockK) * gemv_cell_bytes(cell);
}
constexpr int gemv_row_stats_floats() { return 4 * kComputeWarps; }
constexpr int gemv_row_info(int norm) { return norm == kGemvCentred ? kGemvRowSums + kComputeWarps : 2; }
// A stage of matmul_direct: 32 of k by the rows or columns of a tile. The pitch keeps each k 16-byte aligned.
inline constexpr int kMatmulStep = 32, kMatmulStages = 2;
constexpr int matmul_pitch(int tile) { return tile + 4; }
constexpr int matmul_stage_floats(int tile) { return 2 * kMatmulStep * matmul_pitch(tile); }

}  // namespace rk
