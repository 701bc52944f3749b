// Numbers that both halves of the reductions know (kernels/vdevice/numbers.cuh).
#pragma once

#include <stdint.h>

#include "kernels/vdevice/numbers.cuh"

namespace rk {

inline constexpr int kRowsRank = 8, kLrnRank = 6;                        // dimensions that the arguments have room for; in tables
inline constexpr int kNormalizeRowsRank = 4, kNormalizeLargestEach = 8;  // of normalize_rows; vectors of a thread; in tables
inline constexpr int kSummedInputs = 4;                                  // of the chain in front of a normalisation; in tables

// normalize_rows_summed: words of warps, then for each of a thread's vectors room for four floats and for what is loaded of further inputs,
// then rows of constants.
constexpr int sums_work_bytes(int each, int further_bytes, int rows, int vectors) {
  return 2 * kComputeWarps * 4 + each * kComputeWarps * kWarp * (16 + further_bytes) + rows * vectors * 16;
}

// What reduce does to each element, how it combines two results, and what it does to the final result; in tables
enum ReducePrepare : int32_t { kPrepareNone, kPrepareAbs, kPrepareSquare, kPrepareExp /*of x - max, which a first pass finds*/ };
enum ReduceCombine : int32_t { kCombineSum, kCombineMax, kCombineMin, kCombineProduct };                 // in tables
enum ReduceFinish : int32_t { kFinishNone, kFinishDivide, kFinishSqrt, kFinishLog, kFinishLogPlusMax };  // in tables

}  // namespace rk
