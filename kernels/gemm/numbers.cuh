// Numbers that both halves of the products know (kernels/vdevice/numbers.cuh).
#pragma once

#include "kernels/vdevice/numbers.cuh"

namespace rk {

inline constexpr int kGemvLaneK = 4;               // neighbours in `in` that a lane reads at once
inline constexpr int kGemvStepBytes = kWarp * 16;  // of a column's weights that a warp reads at once
inline constexpr int kMatmulBatchRank = 4;
// A stage of matmul_direct: 32 of k, of a tile's rows and columns, whose pitch keeps them 16-byte aligned.
inline constexpr int kMatmulStep = 32, kMatmulStages = 2;
constexpr int matmul_pitch(int tile) { return tile + 4; }
constexpr int matmul_stage_floats(int tile) { return 2 * kMatmulStep * matmul_pitch(tile); }

}  // namespace rk
