// The end of a convolution in few instructions: bias and residual added, nothing, relu or clip as two numbers, one 16-byte store.
// What is rarer is one out-of-line copy for all bodies, decided by flags that are the same for all threads: epilogues run once a
// rTask, and code that runs once costs what its bytes take to come.
#pragma once

#include "kernels/conv/channels4.cuh"

namespace rk {

// The activation of an EpilogueArgs, where it is none, relu or clip: what is below `low` or above `high` becomes that.
struct ClipArgs {
  int32_t other;  // it is none of these
  int32_t after;  // the residual is added after it
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

// 4 channels of an aligned pixel, of which `left` exist, at least one; in line.
template <class Value>
RK_INLINE void store_left(Value* to, int32_t left, const float4& v) {
  if (left >= 4) return store4(to, v);
  store1(to, v.x);
  if (left > 1) store1(to + 1, v.y);
  if (left > 2) store1(to + 2, v.z);
}

}  // namespace rk
