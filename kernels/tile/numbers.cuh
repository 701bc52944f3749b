// Numbers of what several families use, which host and device code both know (kernels/vdevice/numbers.cuh).
#pragma once

#include <stdint.h>

#include "kernels/vdevice/numbers.cuh"

namespace rk {

// --- products ----------------------------------------------------------------------------------------------------------

inline constexpr int kSumPad = 4;       // floats behind a pixel's sums in shared memory, against bank conflicts
inline constexpr int kGroupK = 32;      // k of a step of one group of warps
inline constexpr int kSumColumns = 64;  // channels of a rTask of split_k_sum
inline constexpr int kSumRows = kComputeWarps * kWarp / (kSumColumns / 4);  // rows of a rTask of split_k_sum at once
inline constexpr int kSumLoads = 8;             // loads of partial sums that a thread of split_k_sum_rows has under way
inline constexpr int kMostTapDistance = 32767;  // of rows or of columns: the two share a word of a Tap
inline constexpr int kClusterMembers = 4;       // vEUs that share the k of a tile, in a cluster
inline constexpr int kMomentColumns = 32;       // neighbours that have moments of their own (moments.cuh; compiler/ir/ops.h, too)

struct StagedUnits {
  int units, loads;  // of a box; ldmatrix of a unit
  int words;         // of weights: of a lane, 16 channels and a unit
};
inline constexpr StagedUnits kStagedTf32{4, 1, 2}, kStaged16Bits{2, 2, 4}, kStagedNarrow{4, 1, 4};  // narrow: inputs of 16 bits

// Bytes of a pixel's sums of 16 bits. 8 values of padding: 4-byte stores of a warp to four pairs of pixels hit a bank twice at most.
constexpr int rounded_pitch(int channels) { return (channels + 8) * 2; }

// --- attention ---------------------------------------------------------------------------------------------------------

// What a query gets whose weights are not numbers: Weightless of compiler/ir/ops.h.
enum AttentionWeightless : int { kWeightlessNan, kWeightlessZeroIfMasked, kWeightlessZero };  // in tables

// --- elementwise steps -------------------------------------------------------------------------------------------------

inline constexpr int kChainRank = 8, kChainInputs = 8, kChainSteps = 16, kChainConstants = 24;  // most that the arguments hold; in tables

// Operand codes of a step: the result of the step before, a temporary, an input, a constant, nothing.
inline constexpr uint32_t kAcc = 0, kFirstTemp = 1, kFirstInput = 32, kFirstConstant = 64, kUnused = 255;

// The same of steps that are template arguments.
inline constexpr int kStaticInputs = 6, kStaticConstants = 8;  // in tables
inline constexpr int kLongConstants = 16;                      // of a long chain between quantisations; in tables

// Weights are mma's operand A, channels its rows. Of the channels of a warp's `tiles` tiles, the one that is row `row` of tile `tile`: rows
// g and g + 8 of all tiles are neighbours, so that a lane has the sums of 2 * tiles neighbouring channels.
template <class Int>
RK_NUMBER Int dealt_channel(Int tiles, Int tile, Int row) {
  return (row % 8 * tiles + tile) * 2 + row / 8;
}

// Products of whole numbers, as quantised models have them: the weights of a channel are whole multiples of its scale, and kWholeResults
// are rounded to whole numbers, too. Then they may be rounded once more: scaled and added to a residual (kWholeSums, SumArgs), or scaled
// and added to a row (kWholeRow, AgainArgs); and be numbers of a table (kWholeTable; kWholeRowTable: both).
enum Whole : int32_t { kNotWhole, kWholeOperands, kWholeResults, kWholeSums, kWholeRow, kWholeTable, kWholeRowTable };  // in tables
// Whether results are rounded by a row, and found in a table.
constexpr bool has_row(int whole) { return whole == kWholeRow || whole == kWholeRowTable; }
constexpr bool has_table(int whole) { return whole == kWholeTable || whole == kWholeRowTable; }
inline constexpr int kTableNumbers = 256, kTableBytes = kTableNumbers;

}  // namespace rk
