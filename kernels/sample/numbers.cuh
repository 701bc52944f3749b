// What both halves of this folder's families must agree on; see kernels/vdevice/numbers.cuh.
#pragma once

namespace rk {

constexpr int kSampleRank = 4;
enum SampleMode { kSampleLinear, kSampleNearest, kSampleCubic };
enum SamplePadding { kSampleZeros, kSampleBorder, kSampleReflection };

}  // namespace rk
