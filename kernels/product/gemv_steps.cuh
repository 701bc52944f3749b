// Elementwise steps that make the rows of gemv_of_rows.cuh: template arguments (static_steps.cuh). In front of the first step the
// result is in0. A file of its own, so that programs whose products take plain rows are not longer by it.
#pragma once

#include "kernels/product/gemv_of_rows.cuh"
#include "kernels/tile/static_steps.cuh"

namespace rk {

// A step of the chain. The sigmoid of gated products by the GPU's fast functions: the library's is long code that would run once.
template <uint64_t STEP, int COUNT, class Values>
RK_INLINE void gemv_step(const GemvOfRowsArgs& args, Values& values) {
  if constexpr (static_step_byte(STEP, 0) == kOp_sigmoid) {
    float4 v[COUNT];
    static_operand<static_step_byte(STEP, 1)>(args, values, v);
#pragma unroll
    for (int g = 0; g < COUNT; ++g) values.acc[g] = float4{sigmoid(v[g].x), sigmoid(v[g].y), sigmoid(v[g].z), sigmoid(v[g].w)};
    static_keep<STEP, COUNT>(values);
  } else {
    static_step<STEP, COUNT>(args, values);
  }
}

template <int TEMPORARIES, uint64_t... STEPS>
struct GemvSteps;  // in tables
template <int TEMPORARIES, uint64_t... STEPS>
struct GemvSteps {
  static constexpr bool kNone = false;
  template <int INPUTS, int COUNT>
  RK_INLINE static void make(const GemvOfRowsArgs& args, const float4 (&in)[INPUTS][COUNT], float4 (&to)[COUNT]) {
    StaticValues<INPUTS, TEMPORARIES, COUNT> values;
#pragma unroll
    for (int i = 0; i < INPUTS; ++i) {
#pragma unroll
      for (int g = 0; g < COUNT; ++g) values.inputs[i][g] = in[i][g];
    }
#pragma unroll
    for (int g = 0; g < COUNT; ++g) values.acc[g] = in[0][g];
    (gemv_step<STEPS, COUNT>(args, values), ...);
#pragma unroll
    for (int g = 0; g < COUNT; ++g) to[g] = values.acc[g];
  }
};

}  // namespace rk
