// Activations, and the epilogue y = act(acc + bias + residual) or act(acc + bias) + residual (compiler/ir/graph.h).
#pragma once

#include "kernels/vdevice/fast_math.cuh"
#include "kernels/vdevice/half.cuh"
#include "kernels/vdevice/task.cuh"

namespace rk {

// The error is at most 3e-7. For negative x, where the result is small, the relative error is up to -x * 1e-7. Below x = -87 it is 0.
RK_INLINE float sigmoid(float x) { return reciprocal_fast(1.0f + exp2_fast(x * -kLog2E)); }

// The larger one, or NaN if one of them is.
RK_INLINE float max_nan(float a, float b) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  float larger;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(larger) : "f"(a), "f"(b));
  return larger;
#else
  return a != a || a > b ? a : b;
#endif
}

// The smaller one, or NaN if one of them is.
RK_INLINE float min_nan(float a, float b) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  float smaller;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(smaller) : "f"(a), "f"(b));
  return smaller;
#else
  return a != a || a < b ? a : b;
#endif
}

// NaN passes through max and min, as ONNX's operators want it (fmaxf would drop it).
RK_INLINE float relu(float x) { return x < 0.0f ? 0.0f : x; }
RK_INLINE float clip(float x, float low, float high) {
  const float t = x < low ? low : x;
  return t > high ? high : t;
}
// To the nearest whole number, ties to even, for |x| up to 2^22; what is larger stays about as large. Beside 1.5 * 2^23 numbers lie 1
// apart. Two additions, since rintf goes to the special-function unit.
RK_INLINE float whole(float x) { return (x + 12582912.0f) - 12582912.0f; }
// The number of steps in x, which is quantised with zero point 0. The bounds are at most 2^22.
RK_INLINE float rounded(float x, float low, float high) { return min_nan(max_nan(whole(x), low), high); }

// x / step by its reciprocal and two more steps (Markstein): the quotient that a division rounds to, but for subnormal numbers, in a
// fraction of the instructions. For what is rounded to whole numbers, where those are less than half a step.
RK_INLINE float quotient(float x, float step, float reciprocal) {
  const float q = x * reciprocal;
  return fmaf(fmaf(-q, step, x), reciprocal, q);
}

// erf without branches, wrong by at most 2e-7 (Abramowitz and Stegun, Handbook of Mathematical Functions, 7.1.26). Since there are no
// branches, the steps of several values overlap. With erff instead, an epilogue of 64 x 64 values took 3 us.
RK_INLINE float erf_fast(float x) {
  const float a = fabsf(x), t = reciprocal_fast(fmaf(0.3275911f, a, 1.0f));
  float p = fmaf(1.061405429f, t, -1.453152027f);
  p = fmaf(p, t, 1.421413741f);
  p = fmaf(p, t, -0.284496736f);
  p = fmaf(p, t, 0.254829592f);
  const float y = 1.0f - p * t * exp2_fast(a * a * -kLog2E);
  return copysignf(y, x);
}
RK_INLINE float gelu(float x) { return 0.5f * x * (1.0f + erf_fast(x * 0.70710678118654752f)); }
// The approximation by tanh, 0.5 x (1 + tanh(u)) with u = 0.79788456 (x + 0.044715 x^3), as x * sigmoid(2 u).
RK_INLINE float gelu_tanh(float x) { return x * sigmoid(x * fmaf(0.071354816f, x * x, 1.5957691f)); }
RK_INLINE float silu(float x) { return x * sigmoid(x); }
RK_INLINE float hard_swish(float x) { return x * clip(x * (1.0f / 6.0f) + 0.5f, 0.0f, 1.0f); }

// The smooth activations: with relu and clip, nearly all that follow products in networks. smooth4 has no branch between its four values,
// so that their steps overlap. With a call of expf and a division for one value after another, a tile of 64 x 128 silus took 7 us.
RK_INLINE bool is_smooth(int32_t kind) { return kind == kGelu || kind == kGeluTanh || kind == kSilu || kind == kHardSwish; }
RK_INLINE float4 smooth4(int32_t kind, const float4& v) {
  if (kind == kGelu) return {gelu(v.x), gelu(v.y), gelu(v.z), gelu(v.w)};
  if (kind == kGeluTanh) return {gelu_tanh(v.x), gelu_tanh(v.y), gelu_tanh(v.z), gelu_tanh(v.w)};
  if (kind == kSilu) return {silu(v.x), silu(v.y), silu(v.z), silu(v.w)};
  return {hard_swish(v.x), hard_swish(v.y), hard_swish(v.z), hard_swish(v.w)};
}

// The same for results of 16 bits: for gelu one instruction of the special-function unit a value instead of two, and half the others. It is
// x (1 + tanh(u)) / 2, u being an odd polynomial in x, fitted for an error of at most 2.6e-5 (beyond |x| = 5 the tanh is 1 anyway).
RK_INLINE float gelu_coarse(float x) {
  const float s = fminf(x * x, 25.0f), u = x * fmaf(fmaf(-3.5151711e-4f, s, 0.037005648f), s, 0.79750788f), half = 0.5f * x;
  return fmaf(half, tanh_coarse(u), half);
}
RK_INLINE float gelu_tanh_coarse(float x) {
  const float u = x * fmaf(0.035677408f, x * x, 0.79788456f), half = 0.5f * x;
  return fmaf(half, tanh_coarse(u), half);
}
// gelu_coarse of two fp16 numbers in fp16: eight instructions for both. Each step rounds to 2^-11 of its value, as the result is rounded
// anyway: wrong by up to 6e-4 of x beside it.
RK_INLINE uint32_t gelu_halves(uint32_t x) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  uint32_t y;
  asm("{\n\t.reg .b32 s, u, h;\n\t"
      "mul.f16x2 s, %1, %1;\n\t"
      "min.f16x2 s, s, %2;\n\t"
      "fma.rn.f16x2 u, s, %3, %4;\n\t"
      "fma.rn.f16x2 u, u, s, %5;\n\t"
      "mul.f16x2 u, u, %1;\n\t"
      "tanh.approx.f16x2 u, u;\n\t"
      "mul.f16x2 h, %1, %6;\n\t"
      "fma.rn.f16x2 %0, h, u, h;\n\t}"
      : "=r"(y)
      : "r"(x), "r"(0x4e404e40u), "r"(0x8dc28dc2u), "r"(0x28bd28bdu), "r"(0x3a613a61u), "r"(0x38003800u));
  return y;
#else
  const float2 v = floats_of_halves(x);
  return halves_of(gelu_coarse(v.x), gelu_coarse(v.y));
#endif
}
RK_INLINE float4 smooth4_coarse(int32_t kind, const float4& v) {
  if (kind == kGelu) return {gelu_coarse(v.x), gelu_coarse(v.y), gelu_coarse(v.z), gelu_coarse(v.w)};
  if (kind == kGeluTanh) return {gelu_tanh_coarse(v.x), gelu_tanh_coarse(v.y), gelu_tanh_coarse(v.z), gelu_tanh_coarse(v.w)};
  return smooth4(kind, v);
}

RK_INLINE float activate(int32_t kind, float x, float a, float b) {
  switch (kind) {
    case kRelu: return relu(x);
    case kClip: return clip(x, a, b);
    case kSigmoid: return sigmoid(x);
    case kTanh: return tanhf(x);
    case kHardSigmoid: return clip(a * x + b, 0.0f, 1.0f);
    case kHardSwish: return hard_swish(x);
    case kLeakyRelu: return x < 0.0f ? a * x : x;
    case kSilu: return silu(x);
    case kGelu: return gelu(x);
    case kGeluTanh: return gelu_tanh(x);
    case kRounded: return rounded(x, a, b);
    default: return x;
  }
}

// ScaledSum of compiler/ir/graph.h. Only bodies that say so have it: finish and finish4 do not look at it, since all bodies pay for what
// they may call.
struct SumArgs {  // in tables
  int32_t kind;   // SumKind
  float scale, residual_scale, low, high;
};
struct EpilogueArgs {           // in tables
  TensorRef bias;               // [channels] or null
  TensorRef residual;           // placed like the output but for base and strides; or null
  int64_t residual_strides[4];  // elements, the output's logical dimensions (body says which)
  int32_t activation;           // rk::Activation
  int32_t residual_after_activation;
  float a, b;
  SumArgs sum{};
};

// No activation, relu and clip are all this clamp: `low` and `high` are infinite where there is no bound. NaN passes through.
RK_INLINE float4 clamp4(const float4& v, float low, float high) {
  return {min_nan(max_nan(v.x, low), high), min_nan(max_nan(v.y, low), high), min_nan(max_nan(v.z, low), high),
          min_nan(max_nan(v.w, low), high)};
}

// The same of whole numbers: with ROUNDS v is rounded to the nearest one, ties to even.
template <bool ROUNDS>
RK_INLINE float4 clamped4(const float4& v, float low, float high) {
  if constexpr (ROUNDS) return clamp4({whole(v.x), whole(v.y), whole(v.z), whole(v.w)}, low, high);
  return clamp4(v, low, high);
}

RK_INLINE float scaled_sum(const SumArgs& sum, float y, float r) {
  const float v = fmaf(r, sum.residual_scale, y * sum.scale);
  return sum.kind == kScaledRounded ? rounded(v, sum.low, sum.high) : v;
}
RK_INLINE float4 scaled_sum4(const SumArgs& sum, const float4& y, const float4& r) {
  return {scaled_sum(sum, y.x, r.x), scaled_sum(sum, y.y, r.y), scaled_sum(sum, y.z, r.z), scaled_sum(sum, y.w, r.w)};
}

// The epilogue of one value: `acc` has the bias already, `r` is the residual's value (0 if there is none).
RK_INLINE float finish(const EpilogueArgs& e, float acc, float r) {
  if (e.residual_after_activation) return activate(e.activation, acc, e.a, e.b) + r;
  return activate(e.activation, acc + r, e.a, e.b);
}

// Activations that need more than two comparisons. A function that is not inlined: a copy of all activations in each step of an
// unrolled epilogue would be kilobytes of code that runs once.
RK_BODY float4 activate4(int32_t kind, float4 v, float a, float b) {
  if (is_smooth(kind)) return smooth4(kind, v);
  if (kind == kRounded) return clamped4<true>(v, a, b);
#pragma unroll 1
  for (int i = 0; i < 4; ++i) v = float4{v.y, v.z, v.w, activate(kind, v.x, a, b)};  // turned by one a step: v stays in registers
  return v;
}

// The same as finish for four elements.
RK_INLINE float4 finish4(const EpilogueArgs& e, float4 v, const float4& r) {
  const bool after = e.residual_after_activation != 0;
  if (!after) v = float4{v.x + r.x, v.y + r.y, v.z + r.z, v.w + r.w};
  if (e.activation == kRelu) {
    v = float4{relu(v.x), relu(v.y), relu(v.z), relu(v.w)};
  } else if (e.activation == kClip) {
    v = float4{clip(v.x, e.a, e.b), clip(v.y, e.a, e.b), clip(v.z, e.a, e.b), clip(v.w, e.a, e.b)};
  } else if (e.activation != kNone) {
    v = activate4(e.activation, v, e.a, e.b);
  }
  return after ? float4{v.x + r.x, v.y + r.y, v.z + r.z, v.w + r.w} : v;
}

}  // namespace rk
