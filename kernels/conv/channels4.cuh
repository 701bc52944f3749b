// Four neighbouring channels of one pixel: loads, stores and the activation, for the epilogues of convolutions and matrix
// products. Channels may lie apart (`stride` elements); `vector` says that they are contiguous, 16-byte aligned and that
// all four exist, so that one 16-byte access does it. `left` is the number of channels that exist.
#pragma once

#include "kernels/vdevice/epilogue.cuh"

namespace rk {

RK_INLINE float4 load_channels4(const float* p, int64_t stride, bool vector, int left) {
  if (vector) return load4(p);
  float4 v = {0.0f, 0.0f, 0.0f, 0.0f};
  if (left > 0) v.x = load1(p);
  if (left > 1) v.y = load1(p + stride);
  if (left > 2) v.z = load1(p + 2 * stride);
  if (left > 3) v.w = load1(p + 3 * stride);
  return v;
}

RK_INLINE void store_channels4(float* p, int64_t stride, bool vector, int left, float4 v) {
  if (vector) {
    store4(p, v);
    return;
  }
  if (left > 0) store1(p, v.x);
  if (left > 1) store1(p + stride, v.y);
  if (left > 2) store1(p + 2 * stride, v.z);
  if (left > 3) store1(p + 3 * stride, v.w);
}

RK_INLINE float4 add4(float4 a, float4 b) { return {a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w}; }

// The activations that need more than two comparisons, out of line: the epilogues are unrolled over a tile, and every
// copy of expf, tanhf and erff would be code that is run once.
template <class Veu>
RK_BODY float4 activate4_slow(int32_t kind, float4 v, float a, float b) {
  return {activate(kind, v.x, a, b), activate(kind, v.y, a, b), activate(kind, v.z, a, b), activate(kind, v.w, a, b)};
}

// none, relu and clip as one clip between bounds; the others by activate4_slow.
template <class Veu>
struct Activate4 {
  int32_t kind;
  float a, b, low, high;

  RK_INLINE explicit Activate4(const EpilogueArgs& e) : kind(e.activation), a(e.a), b(e.b) {
    constexpr float kInfinity = __builtin_huge_valf();
    low = kind == kRelu ? 0.0f : (kind == kClip ? a : -kInfinity);
    high = kind == kClip ? b : kInfinity;
  }
  RK_INLINE float4 operator()(float4 v) const {
    if (kind > kClip) return activate4_slow<Veu>(kind, v, a, b);
    return {clip(v.x, low, high), clip(v.y, low, high), clip(v.z, low, high), clip(v.w, low, high)};
  }
};

}  // namespace rk
