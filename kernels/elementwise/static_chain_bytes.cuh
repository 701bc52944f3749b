// static_chain where operands are whole numbers in bytes; any of them may be so, and the others fp32 or 16 bits of one type. There is one
// body for short and long chains.
#pragma once

#include "kernels/elementwise/static_chain.cuh"
#include "kernels/tile/byte_operands.cuh"

namespace rk {

struct ByteChainArgs {  // in tables
  TensorRef out;
  TensorRef inputs[kStaticInputs];
  int32_t out_row;
  int32_t in_rows[kStaticInputs], in_steps[kStaticInputs];
  Divisor row_groups;     // groups of a row
  uint32_t row_elements;  // kPartial only
  uint32_t groups, groups_per_rtask;
  float constants[kLongConstants];
  float in_lows[kStaticInputs]{}, out_low{};  // the numbers that bytes of 0 stand for, in Unsigned8
};

template <class Value, uint32_t kNarrow, uint32_t kSigned, uint32_t kUnsigned>
struct ByteChainOperands {
  using Operands = ByteOperands<Value, kNarrow, kSigned, kUnsigned>;
  using Out = typename Operands::template TypeOf<kNarrowOut>;

  template <class Veu, class Load>
  RK_INLINE static void with(const Task<Veu>& task, const ByteChainArgs& args, int i, const Load& load) {
    Operands::at(task, args.inputs[i], i, load);
  }
  template <int kGroups>
  RK_INLINE static void raise(const ByteChainArgs& args, int i, float4 (&v)[kGroups]) {
    Operands::raise_by(args.in_lows[i], i, v);
  }
  RK_INLINE static float4 lowered(const ByteChainArgs& args, const float4& v) {
    if constexpr (!std::is_same_v<Out, Unsigned8>) return v;
    const float low = args.out_low;
    return float4{v.x - low, v.y - low, v.z - low, v.w - low};
  }
};

template <class Veu, class Value, uint32_t kNarrow, uint32_t kSigned, uint32_t kUnsigned, int kInputs, uint32_t kScalars, uint32_t kNear,
          int kTemporaries, bool kPartial, int kGroups, uint64_t... kSteps>
RK_BODY void static_chain_bytes(const Task<Veu>& task) {
  static_chain_of<Veu, ByteChainArgs, ByteChainOperands<Value, kNarrow, kSigned, kUnsigned>, kInputs, kScalars, kNear, kTemporaries,
                  kPartial, kGroups, kSteps...>(task);
}

}  // namespace rk
