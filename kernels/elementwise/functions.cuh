// The functions of the elementwise chain: one number per ElementwiseOp (compiler/ir/ops.h; the order is the same, a test of
// every function guards it). NaN passes through all of them, also through min, max and clip.
#pragma once

#include "kernels/vdevice/epilogue.cuh"

namespace rk {

enum ChainOp : uint8_t {
  kOpIdentity,
  kOpNeg,
  kOpAbs,
  kOpSqrt,
  kOpReciprocal,
  kOpExp,
  kOpLog,
  kOpErf,
  kOpSin,
  kOpCos,
  kOpFloor,
  kOpCeil,
  kOpRound,
  kOpSign,
  kOpRelu,
  kOpLeakyRelu,
  kOpElu,
  kOpClip,
  kOpSigmoid,
  kOpHardSigmoid,
  kOpHardSwish,
  kOpTanh,
  kOpSoftplus,
  kOpGelu,
  kOpGeluTanh,
  kOpAdd,
  kOpSub,
  kOpMul,
  kOpDiv,
  kOpPow,
  kOpMin,
  kOpMax,
  kOpMod,
  kOpFmod,
  kOpPrelu,
  kOpEqual,
  kOpLess,
  kOpLessEqual,
  kOpGreater,
  kOpGreaterEqual,
  kOpAnd,
  kOpOr,
  kOpXor,
  kOpNot,
  kOpWhere,
  kOpCast,
};

RK_INLINE float max_of(float x, float y) { return x != x || x > y ? x : y; }
RK_INLINE float min_of(float x, float y) { return x != x || x < y ? x : y; }
RK_INLINE float truth(bool x) { return x ? 1.0f : 0.0f; }

RK_INLINE float floor_mod(float x, float y) {
  const float rest = fmodf(x, y);
  return rest != 0.0f && (rest < 0.0f) != (y < 0.0f) ? rest + y : rest;
}

RK_INLINE float gelu_tanh(float x) { return 0.5f * x * (1.0f + tanhf(0.79788456080286536f * (x + 0.044715f * x * x * x))); }

// The rare ones, one element at a time so that their code exists once.
RK_INLINE float chain_scalar(uint32_t op, float x, float y, float z) {
  switch (op) {
    case kOpReciprocal: return 1.0f / x;
    case kOpLog: return logf(x);
    case kOpSin: return sinf(x);
    case kOpCos: return cosf(x);
    case kOpFloor: return floorf(x);
    case kOpCeil: return ceilf(x);
    case kOpRound: return rintf(x);
    case kOpSign: return x != x ? x : truth(x > 0.0f) - truth(x < 0.0f);
    case kOpElu: return x < 0.0f ? y * expm1f(x) : x;
    case kOpHardSigmoid: return clip(x * y + z, 0.0f, 1.0f);
    case kOpHardSwish: return x * clip(x * (1.0f / 6.0f) + 0.5f, 0.0f, 1.0f);
    case kOpSoftplus: return log1pf(expf(-fabsf(x))) + max_of(x, 0.0f);
    case kOpGeluTanh: return gelu_tanh(x);
    case kOpPow: return powf(x, y);
    case kOpMod: return floor_mod(x, y);
    case kOpFmod: return fmodf(x, y);
    case kOpEqual: return truth(x == y);
    case kOpLess: return truth(x < y);
    case kOpLessEqual: return truth(x <= y);
    case kOpGreater: return truth(x > y);
    case kOpGreaterEqual: return truth(x >= y);
    case kOpAnd: return truth(x != 0.0f && y != 0.0f);
    case kOpOr: return truth(x != 0.0f || y != 0.0f);
    case kOpXor: return truth((x != 0.0f) != (y != 0.0f));
    case kOpNot: return truth(x == 0.0f);
    case kOpNeg: return -x;
    case kOpAbs: return fabsf(x);
    case kOpLeakyRelu:
    case kOpPrelu: return x < 0.0f ? x * y : x;
    default: return x;
  }
}

template <int kGroups, class F>
RK_INLINE void map_groups(const float4 (&x)[kGroups], const float4 (&y)[kGroups], const float4 (&z)[kGroups], float4 (&to)[kGroups], F f) {
#pragma unroll
  for (int g = 0; g < kGroups; ++g) {
    to[g] = float4{f(x[g].x, y[g].x, z[g].x), f(x[g].y, y[g].y, z[g].y), f(x[g].z, y[g].z, z[g].z), f(x[g].w, y[g].w, z[g].w)};
  }
}

// Element 0 goes away, the others move up, and `last` is the new end. No element is picked by a run-time index, so all stay in
// registers.
template <int kGroups>
RK_INLINE void turn_groups(float4 (&v)[kGroups], float last) {
#pragma unroll
  for (int g = 0; g < kGroups; ++g) v[g] = float4{v[g].y, v[g].z, v[g].w, g + 1 < kGroups ? v[g + 1 < kGroups ? g + 1 : g].x : last};
}
// Likewise by whole groups.
template <int kGroups>
RK_INLINE void turn_groups(float4 (&v)[kGroups], const float4& last) {
#pragma unroll
  for (int g = 0; g + 1 < kGroups; ++g) v[g] = v[g + 1];
  v[kGroups - 1] = last;
}

// The dear ones that models are full of: four elements side by side. False: not one of them.
RK_INLINE bool chain_four(uint32_t op, const float4 (&x)[1], const float4 (&y)[1], const float4 (&z)[1], float4 (&to)[1]) {
  switch (op) {
    case kOpDiv: map_groups(x, y, z, to, [](float a, float b, float) { return a / b; }); return true;
    case kOpSqrt: map_groups(x, y, z, to, [](float a, float, float) { return sqrtf(a); }); return true;
    case kOpExp: map_groups(x, y, z, to, [](float a, float, float) { return expf(a); }); return true;
    case kOpErf: map_groups(x, y, z, to, [](float a, float, float) { return erff(a); }); return true;
    case kOpSigmoid: map_groups(x, y, z, to, [](float a, float, float) { return sigmoid(a); }); return true;
    case kOpTanh: map_groups(x, y, z, to, [](float a, float, float) { return tanhf(a); }); return true;
    case kOpGelu:
      map_groups(x, y, z, to, [](float a, float, float) { return 0.5f * a * (1.0f + erff(a * 0.70710678118654752f)); });
      return true;
    case kOpWhere: map_groups(x, y, z, to, [](float a, float b, float c) { return a != 0.0f ? b : c; }); return true;
    default: return false;
  }
}

// to = f(x, y, z) of kGroups groups of four elements. Attributes come as operands: y = a, z = b. x, y and z are used up.
template <int kGroups>
RK_INLINE void chain_function(uint32_t op, float4 (&x)[kGroups], float4 (&y)[kGroups], float4 (&z)[kGroups], float4 (&to)[kGroups]) {
  switch (op) {
    case kOpIdentity:
    case kOpCast: return map_groups(x, y, z, to, [](float a, float, float) { return a; });
    case kOpAdd: return map_groups(x, y, z, to, [](float a, float b, float) { return a + b; });
    case kOpSub: return map_groups(x, y, z, to, [](float a, float b, float) { return a - b; });
    case kOpMul: return map_groups(x, y, z, to, [](float a, float b, float) { return a * b; });
    case kOpMin: return map_groups(x, y, z, to, [](float a, float b, float) { return min_of(a, b); });
    case kOpMax: return map_groups(x, y, z, to, [](float a, float b, float) { return max_of(a, b); });
    case kOpRelu: return map_groups(x, y, z, to, [](float a, float, float) { return relu(a); });
    case kOpClip: return map_groups(x, y, z, to, [](float a, float b, float c) { return min_of(max_of(a, b), c); });
    default: break;
  }
#pragma unroll 1
  for (int g = 0; g < kGroups; ++g) {
    float4 x1[1] = {x[0]}, y1[1] = {y[0]}, z1[1] = {z[0]}, r[1] = {x[0]};
    if (!chain_four(op, x1, y1, z1, r)) {
#pragma unroll 1
      for (int i = 0; i < 4; ++i) {
        turn_groups(r, chain_scalar(op, x1[0].x, y1[0].x, z1[0].x));
        turn_groups(x1, 0.0f);
        turn_groups(y1, 0.0f);
        turn_groups(z1, 0.0f);
      }
    }
    turn_groups(x, r[0]);
    turn_groups(y, y1[0]);
    turn_groups(z, z1[0]);
  }
#pragma unroll
  for (int g = 0; g < kGroups; ++g) to[g] = x[g];
}

}  // namespace rk
