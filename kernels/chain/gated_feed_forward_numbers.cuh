// Numbers of gated_feed_forward that host and device code both know (kernels/vdevice/numbers.cuh).
#pragma once

#include "kernels/vdevice/numbers.cuh"

namespace rk {

// Columns of y that a step of the first product has, and columns of z that one of the second has: eight or sixteen for each warp.
inline constexpr int kGatedInner = 8 * kComputeWarps, kGatedOuter = 16 * kComputeWarps;
inline constexpr int kGatedDepth = 16;                              // k of a step
inline constexpr int kGatedStepBytes = kComputeWarps * kWarp * 16;  // of weights
// Bytes of a row of operands for so many steps: an odd number of cells of 16 bytes, so that eight rows lie in different banks.
RK_NUMBER int gated_pitch(int steps) { return steps * kGatedDepth * 2 + 16; }

}  // namespace rk
