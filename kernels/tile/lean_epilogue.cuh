// The end of a convolution in few instructions: bias and residual are added, the activation is none, or relu or clip as a clamp between
// two numbers, and one 16-byte store follows. Rarer activations are one out-of-line copy for all bodies, chosen by flags that are the
// same for all threads: an epilogue runs once a rTask, and code that runs once costs the time in which its bytes are fetched.
#pragma once

#include "kernels/tile/channels4.cuh"

namespace rk {

// The activation of an EpilogueArgs where it is none, relu or clip: values are clamped to [low, high].
struct ClipArgs {  // in tables
  int32_t other;   // 1: another activation
  int32_t after;   // 1: the residual is added after the activation
  float low, high;
};

RK_BODY float4 finish4_other(const EpilogueArgs& e, float4 v, float4 r) { return finish4(e, v, r); }

// v: sums and bias; r: residuals, or zeros.
RK_INLINE float4 lean_finish4(const ClipArgs& clip, const EpilogueArgs& e, float4 v, const float4& r) {
  if (clip.other != 0) return finish4_other(e, v, r);
  if (clip.after == 0) v = add4(v, r);
  v = clamp4(v, clip.low, clip.high);
  return clip.after != 0 ? add4(v, r) : v;
}

// Stores 4 channels of an aligned pixel, of which `left` exist, at least one; in line.
template <class Value>
RK_INLINE void store_left(Value* to, int32_t left, const float4& v) {
  if (left >= 4) return store4(to, v);
  store1(to, v.x);
  if (left > 1) store1(to + 1, v.y);
  if (left > 2) store1(to + 2, v.z);
}

}  // namespace rk
