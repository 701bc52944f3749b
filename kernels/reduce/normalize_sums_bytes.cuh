// normalize_rows_summed where inputs, sums or the result are whole numbers in bytes. Each input has a type of its own: bytes by the masks
// (kernels/tile/byte_operands.cuh), else fp32 or, where kNarrow says so, Value.
#pragma once

#include "kernels/reduce/normalize_sums.cuh"
#include "kernels/tile/byte_operands.cuh"

namespace rk {

template <class Veu, int kEach, class Value, uint32_t kNarrow, uint32_t kSigned, uint32_t kUnsigned, class Sum, class Out, int kInputs,
          uint32_t kNear, int kTemporaries, bool kKeeps, uint64_t... kSteps>
RK_BODY void normalize_rows_summed_bytes(const Task<Veu>& caller) {
  normalize_some_sums<Veu, kEach, ByteOperands<Value, kNarrow, kSigned, kUnsigned>, Sum, Out, kInputs, kNear, kTemporaries, kKeeps,
                      kSteps...>(caller);
}

}  // namespace rk
