// Numbers of gated_feed_forward that host and device code both know (kernels/vdevice/numbers.cuh).
#pragma once

#include "kernels/vdevice/numbers.cuh"

namespace rk {

// A unit is 16 k of sixteen columns for each warp, a step 64 k. Of the first product's columns half are the gate's and half the factor's,
// so a block of it makes 64 columns of y, which are a step of the second one.
inline constexpr int kGatedUnits = 4, kGatedDepth = 16 * kGatedUnits;
inline constexpr int kGatedInner = 8 * kComputeWarps, kGatedOuter = 16 * kComputeWarps;  // columns of a block of y, and of z
inline constexpr int kGatedUnitBytes = kComputeWarps * kWarp * 16, kGatedStepBytes = kGatedUnits * kGatedUnitBytes;  // of weights
static_assert(kGatedInner == kGatedDepth);

// Columns of x, y and z.
struct GatedSizes {
  int32_t k, inner, columns;

  RK_NUMBER int in_steps() const { return (k + kGatedDepth - 1) / kGatedDepth; }
  RK_NUMBER int inner_steps() const { return (inner + kGatedDepth - 1) / kGatedDepth; }
  RK_NUMBER int outer_blocks() const { return (columns + kGatedOuter - 1) / kGatedOuter; }
  RK_NUMBER int steps() const { return inner_steps() * (in_steps() + outer_blocks()); }
  // Bytes of a row of x and of y: an odd number of cells of 16 bytes, so that eight rows lie in different banks.
  RK_NUMBER int in_pitch() const { return in_steps() * kGatedDepth * 2 + 16; }
  RK_NUMBER int inner_pitch() const { return inner_steps() * kGatedDepth * 2 + 16; }
};

}  // namespace rk
