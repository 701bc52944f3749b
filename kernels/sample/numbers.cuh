// What both halves of this folder's families must agree on; see kernels/vdevice/numbers.cuh.
#pragma once

#include <cstdint>

namespace rk {

constexpr int kSampleRank = 4;
enum SampleMode { kSampleLinear, kSampleNearest, kSampleCubic };
enum SamplePadding { kSampleZeros, kSampleBorder, kSampleReflection };

constexpr int kResampleAxes = 3;
constexpr int32_t kResampleOutside = INT32_MIN;

}  // namespace rk
