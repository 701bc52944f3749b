// The functions of the elementwise chain on the device: the rows of kernels/shared/functions.h, sorted into three switches by
// their speed.
#pragma once

#include "kernels/shared/functions.h"
#include "kernels/vdevice/epilogue.cuh"

namespace rk {

// One number per row; ElementwiseOp of the compiler has the same.
enum ChainOp : uint8_t {
#define RK_ROW(name, arity, attributes, types, result, speed, price, onnx, formula) kOp_##name,
  RK_FUNCTIONS(RK_ROW)
#undef RK_ROW
};

using functions::Speed;

// One element at a time, so that the functions' code exists once. A number that is no function gives NaN.
RK_INLINE float chain_scalar(uint32_t op, float x, float y, float z) {
  switch (op) {
#define RK_ROW(name, arity, attributes, types, result, speed, price, onnx, formula)                                          \
  case kOp_##name:                                                                                                           \
    if constexpr (Speed::speed == Speed::little || Speed::speed == Speed::rare) return functions::of_##name<float>(x, y, z); \
    break;
    RK_FUNCTIONS(RK_ROW)
#undef RK_ROW
  }
  return __uint_as_float(0x7fffffffu);
}

template <int kGroups, class F>
RK_INLINE void map_groups(const float4 (&x)[kGroups], const float4 (&y)[kGroups], const float4 (&z)[kGroups], float4 (&to)[kGroups], F f) {
#pragma unroll
  for (int g = 0; g < kGroups; ++g) {
    to[g] = float4{f(x[g].x, y[g].x, z[g].x), f(x[g].y, y[g].y, z[g].y), f(x[g].z, y[g].z, z[g].z), f(x[g].w, y[g].w, z[g].w)};
  }
}

// Removes element 0, moves the others up by one, and puts `last` at the end. No element is picked by a run-time index, so all stay in
// registers.
template <int kGroups>
RK_INLINE void turn_groups(float4 (&v)[kGroups], float last) {
#pragma unroll
  for (int g = 0; g < kGroups; ++g) v[g] = float4{v[g].y, v[g].z, v[g].w, g + 1 < kGroups ? v[g + 1 < kGroups ? g + 1 : g].x : last};
}
// The same by whole groups of four.
template <int kGroups>
RK_INLINE void turn_groups(float4 (&v)[kGroups], const float4& last) {
#pragma unroll
  for (int g = 0; g + 1 < kGroups; ++g) v[g] = v[g + 1];
  v[kGroups - 1] = last;
}

// Functions of Speed::four: four elements side by side. Returns false if `op` is none of these functions.
RK_INLINE bool chain_four(uint32_t op, const float4 (&x)[1], const float4 (&y)[1], const float4 (&z)[1], float4 (&to)[1]) {
  switch (op) {
#define RK_ROW(name, arity, attributes, types, result, speed, price, onnx, formula)                            \
  case kOp_##name:                                                                                             \
    if constexpr (Speed::speed == Speed::four) {                                                               \
      map_groups(x, y, z, to, [](float a, float b, float c) { return functions::of_##name<float>(a, b, c); }); \
      return true;                                                                                             \
    }                                                                                                          \
    return false;
    RK_FUNCTIONS(RK_ROW)
#undef RK_ROW
    default: return false;
  }
}

// to = f(x, y, z) of kGroups groups of four elements. Attributes come as operands: y = a, z = b. x, y and z are used up.
template <int kGroups>
RK_INLINE void chain_function(uint32_t op, float4 (&x)[kGroups], float4 (&y)[kGroups], float4 (&z)[kGroups], float4 (&to)[kGroups]) {
  switch (op) {
#define RK_ROW(name, arity, attributes, types, result, speed, price, onnx, formula)                                   \
  case kOp_##name:                                                                                                    \
    if constexpr (Speed::speed == Speed::wide)                                                                        \
      return map_groups(x, y, z, to, [](float a, float b, float c) { return functions::of_##name<float>(a, b, c); }); \
    break;
    RK_FUNCTIONS(RK_ROW)
#undef RK_ROW
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
