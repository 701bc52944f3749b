// Numbers that both halves of the reductions know (kernels/vdevice/numbers.cuh).
#pragma once

namespace rk {

inline constexpr int kRowsRank = 8, kLrnRank = 6;  // dimensions that the arguments have room for

}  // namespace rk
