// Operands of which some are whole numbers in bytes (kernels/vdevice/bytes.cuh): bit i of a mask is for operand i. Those of kSigned and
// kUnsigned are bytes, those of kNarrow of type Value, the others fp32. A tensor of Unsigned8 may begin at another number than 0, `low`.
#pragma once

#include "kernels/vdevice/bytes.cuh"

namespace rk {

template <class Value, uint32_t kNarrow, uint32_t kSigned, uint32_t kUnsigned>
struct ByteOperands {
  // The type of the operand whose bit is `kBit`.
  template <uint32_t kBit>
  using TypeOf =
      std::conditional_t<(kSigned & kBit) != 0, Signed8,
                         std::conditional_t<(kUnsigned & kBit) != 0, Unsigned8, std::conditional_t<(kNarrow & kBit) != 0, Value, float>>>;

  template <int kOperand>
  using Type = TypeOf<1u << kOperand>;

  RK_INLINE static constexpr int value_bytes(int i) {
    return ((kSigned | kUnsigned) >> i & 1u) != 0 ? 1 : (kNarrow >> i & 1u) != 0 ? sizeof(Value) : 4;
  }
  // Calls `load` with where operand `i` begins.
  template <class Veu, class Load>
  RK_INLINE static void at(const Task<Veu>& task, const TensorRef& operand, int i, const Load& load) {
    if ((kSigned >> i & 1u) != 0)
      load(values_at<Signed8>(task, operand));
    else if ((kUnsigned >> i & 1u) != 0)
      load(values_at<Unsigned8>(task, operand));
    else if ((kNarrow >> i & 1u) != 0)
      load(values_at<Value>(task, operand));
    else
      load(values_at<float>(task, operand));
  }
  // What the loaded bytes stand for.
  template <int kGroups>
  RK_INLINE static void raise_by(float low, int i, float4 (&v)[kGroups]) {
    if ((kUnsigned >> i & 1u) == 0) return;
#pragma unroll
    for (int g = 0; g < kGroups; ++g) v[g] = float4{v[g].x + low, v[g].y + low, v[g].z + low, v[g].w + low};
  }
};

}  // namespace rk
