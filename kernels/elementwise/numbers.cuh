// Numbers that both halves of the elementwise families know (kernels/vdevice/numbers.cuh).
#pragma once

#include <stdint.h>

namespace rk {

// --- elementwise ---------------------------------------------------------------------------------------------------------

inline constexpr int kChainRank = 8, kChainInputs = 8, kChainSteps = 16, kChainConstants = 24;  // most that the arguments hold

// Operand codes of a step: the result of the step before, a temporary, an input, a constant, nothing.
inline constexpr uint32_t kAcc = 0, kFirstTemp = 1, kFirstInput = 32, kFirstConstant = 64, kUnused = 255;

// --- static_chain --------------------------------------------------------------------------------------------------------

inline constexpr int kStaticInputs = 6, kStaticConstants = 8;

// --- both ----------------------------------------------------------------------------------------------------------------

// Which operands are 16 bits in memory: bit i is for input i, and this bit for the output.
inline constexpr uint32_t kNarrowOut = 1u << 31;

// --- indexed_copy --------------------------------------------------------------------------------------------------------

inline constexpr int kCopyRank = 8;
inline constexpr int32_t kOutside = INT32_MIN;  // in a table: the constant, not x

}  // namespace rk
