// Numbers that both halves of the elementwise families know (kernels/vdevice/numbers.cuh).
#pragma once

#include <stdint.h>

namespace rk {

// --- elementwise, static_chain -------------------------------------------------------------------------------------------

// Which operands are 16 bits in memory: bit i is for input i, and this bit for the output.
inline constexpr uint32_t kNarrowOut = 1u << 31;

// --- indexed_copy --------------------------------------------------------------------------------------------------------

inline constexpr int kCopyRank = 8;             // in tables
inline constexpr int32_t kOutside = INT32_MIN;  // in a table: the constant, not x

}  // namespace rk
