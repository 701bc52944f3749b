// Numbers that host and device both know, each in one place: kernels/*/numbers.cuh are the only device headers that host code includes,
// so there is nothing of CUDA in them.
#pragma once

namespace rk {

inline constexpr int kWarp = 32;
inline constexpr int kComputeWarps = 8;  // of a vEU
inline constexpr int kBoxChannels = 32;  // of a box of input values

// What rounding to tf32 by cutting takes from a number on average: 2^-11 over the mean mantissa of a logarithmic distribution, 1 / ln 2.
inline constexpr float kTf32Share = 3.384e-4f;

}  // namespace rk
