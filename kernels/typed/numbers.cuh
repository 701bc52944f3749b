// Numbers that both halves of the families for any element type know (kernels/vdevice/numbers.cuh).
#pragma once

#include <stdint.h>

#include "kernels/vdevice/numbers.cuh"

namespace rk {

inline constexpr int kMapInputs = 8, kMapConstants = 32;  // most that the arguments of typed_map hold; in tables
// Operand codes of a step of typed_map: s = result of step s, then inputs, constants, nothing.
inline constexpr uint32_t kMapFirstInput = 32, kMapFirstConstant = 64, kMapNone = 255;

enum Reduction : int32_t {
  kReduceSum,
  kReduceMean,
  kReduceMax,
  kReduceMin,
  kReduceProd,
  kReduceL1,
  kReduceL2,
  kReduceSumSquare,
  kReduceLogSum,
  kReduceLogSumExp,
};

}  // namespace rk
