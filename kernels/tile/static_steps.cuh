// Elementwise steps that nvcc knows: template arguments of a body, whose values stay in registers.
#pragma once

#include "kernels/tile/numbers.cuh"
#include "kernels/vdevice/functions.cuh"

namespace rk {

// A step as a template argument: op, x, y, z, to, from the lowest byte on; operand codes as of elementwise.
// Example: 0xff212019 is op 0x19 = 25 (add) with x = 0x20 (input 0), y = 0x21 (input 1), z = 0xff (unused), to = 0 (no temporary).
RK_INLINE constexpr uint32_t static_step_byte(uint64_t step, int byte) { return static_cast<uint32_t>(step >> (8 * byte)) & 255u; }

// The values that steps read: the result of the step before, temporaries, inputs.
template <int kInputs, int kTemporaries, int kGroups>
struct StaticValues {
  float4 acc[kGroups];
  float4 temporaries[kTemporaries + 1][kGroups];
  float4 inputs[kInputs][kGroups];
};

// Args: of any body that has the chain's constants.
template <uint32_t kCode, class Args, class Values, int kGroups>
RK_INLINE void static_operand(const Args& args, const Values& values, float4 (&to)[kGroups]) {
  float constant = 0.0f;
  if constexpr (kCode >= 64 && kCode < 64 + kChainConstants) constant = args.constants[kCode - 64];
#pragma unroll
  for (int g = 0; g < kGroups; ++g) {
    if constexpr (kCode == 0)
      to[g] = values.acc[g];
    else if constexpr (kCode < 32)
      to[g] = values.temporaries[kCode - 1][g];
    else if constexpr (kCode < 64)
      to[g] = values.inputs[kCode - 32][g];
    else
      to[g] = float4{constant, constant, constant, constant};
  }
}

// Keeps the step's result as a temporary if a later step than the next reads it.
template <uint64_t kStep, int kGroups, class Values>
RK_INLINE void static_keep(Values& values) {
  if constexpr (static_step_byte(kStep, 4) != 0) {
#pragma unroll
    for (int g = 0; g < kGroups; ++g) values.temporaries[static_step_byte(kStep, 4) - 1][g] = values.acc[g];
  }
}

template <uint64_t kStep, int kGroups, class Args, class Values>
RK_INLINE void static_step(const Args& args, Values& values) {
  float4 x[kGroups], y[kGroups], z[kGroups];
  static_operand<static_step_byte(kStep, 1)>(args, values, x);
  static_operand<static_step_byte(kStep, 2)>(args, values, y);
  static_operand<static_step_byte(kStep, 3)>(args, values, z);
  chain_function<kGroups>(static_step_byte(kStep, 0), x, y, z, values.acc);
  static_keep<kStep, kGroups>(values);
}

}  // namespace rk
