// Numbers that both the host code and the bodies of this folder's families use; see kernels/vdevice/numbers.cuh.
#pragma once

#include <cstdint>

namespace rk {

inline constexpr int kSampleRank = 4;  // in tables
enum SampleMode { kSampleLinear, kSampleNearest, kSampleCubic };
enum SamplePadding { kSampleZeros, kSampleBorder, kSampleReflection };

inline constexpr int kResampleAxes = 3;  // in tables
inline constexpr int32_t kResampleOutside = INT32_MIN;

}  // namespace rk
