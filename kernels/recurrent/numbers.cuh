// Numbers that both halves of the recurrent rKernels know (kernels/vdevice/numbers.cuh).
#pragma once

#include "kernels/vdevice/numbers.cuh"

namespace rk {

// Where the input of a cell of a gang comes from: words of another cell, a tensor, or a tensor of W x + Wb.
enum GangInput : int { kFromWords, kFromTensor, kFromGates };

// What a gang's weights are in memory. In registers R is of floats always, and so is all arithmetic.
enum GangWeights : int { kFloats, kHalves, kBfloats };

inline constexpr int kRecurrentRows = 4;  // that a warp of recurrent_direct computes at once

}  // namespace rk
