// Numbers that both halves of the products know (kernels/vdevice/numbers.cuh).
#pragma once

#include "kernels/vdevice/numbers.cuh"

namespace rk {

inline constexpr int kGemvLaneK = 4;               // neighbours in `in` that a lane reads at once
inline constexpr int kGemvStepBytes = kWarp * 16;  // of a column's weights that a warp reads at once
inline constexpr int kMatmulBatchRank = 4;

}  // namespace rk
