// y[row] = scale * sum of x[row, r], for example global average pooling of channels-last tensors. An item is four rows that lie
// next to each other, one float4. A rTask takes kLanes items, and its threads share the reduced elements of each item. Each warp adds up
// its lanes' sums with shuffles, then the first threads add up the warps' sums: one barrier, the same order every time.
// Example: kLanes 8, 256 threads. Thread 77 adds up reduced elements 77 / 8 = 9, 41, 73, .. of item 77 % 8 = 5. In the end thread 22 adds
// up the 8 warps' sums of item 22 / 4 = 5, row 22 % 4 = 2.
//
// Networks run it once, and code that runs once costs more than its arithmetic: what comes behind the inputs would be fetched then, line by
// line. So the body goes through all of it once before, with no elements to load, while its inputs are still being made.
#pragma once

#include "kernels/reduce/reduce_rows.cuh"

namespace rk {

RK_INLINE void accumulate4(float4& acc, const float4& v) { acc = float4{acc.x + v.x, acc.y + v.y, acc.z + v.z, acc.w + v.w}; }

template <class Veu, int kLanes, class In = float, class Out = float>
RK_BODY void reduce_sum(const Task<Veu>& caller) {
  constexpr uint32_t kParts = Veu::kComputeThreads / kLanes, kWarps = Veu::kComputeThreads / kWarp, kBatch = 2;
  const Task<Veu> task = caller;  // a copy in registers, since the caller's task is in a stack frame
  const ReduceSumArgs& args = task.template arguments<ReduceSumArgs>();
  const uint32_t thread = threadIdx.x, first = task.index * kLanes, stride = static_cast<uint32_t>(args.stride);
  const float scale = args.scale;
  const In* const in = values_at<In>(task, args.in) + reduce_sum_offset<4>(args, first + thread % kLanes, args.in_row, 1);
  const uint32_t item = first + thread / 4;
  Out* const out = values_at<Out>(task, args.out) + reduce_sum_offset<4>(args, item, args.out_row, args.out_step) +
                   thread % 4 * static_cast<uint32_t>(args.out_step);
  const bool stores = thread < 4 * kLanes && item < args.items;
  float* shared = task.template work_as<float>();
#pragma unroll 1
  for (uint32_t reduced = 0;;) {
    float4 acc = {0, 0, 0, 0};
    uint32_t r = thread / kLanes;
#pragma unroll 1
    do {
      float4 v[kBatch] = {};
#pragma unroll
      for (uint32_t b = 0; b < kBatch; ++b) {
        if (r + b * kParts < reduced) v[b] = load4(in + (r + b * kParts) * stride);
      }
#pragma unroll
      for (uint32_t b = 0; b < kBatch; ++b) accumulate4(acc, v[b]);
      r += kBatch * kParts;
    } while (r < reduced);
#pragma unroll
    for (int step = kLanes; step < kWarp; step *= 2) {
      accumulate4(acc, float4{__shfl_xor_sync(kFullMask, acc.x, step), __shfl_xor_sync(kFullMask, acc.y, step),
                              __shfl_xor_sync(kFullMask, acc.z, step), __shfl_xor_sync(kFullMask, acc.w, step)});
    }
    if (thread % kWarp < kLanes) reinterpret_cast<float4*>(shared)[thread / kWarp * kLanes + thread % kLanes] = acc;
    sync_compute<Veu>();
    float sum = 0.0f;
    if (stores) {
#pragma unroll
      for (uint32_t w = 0; w < kWarps; ++w) sum += shared[w * kLanes * 4 + thread];
    }
    if (reduced > 0) {
      if (stores) store1(out, sum * scale);
      return;
    }
    task.await_inputs();
    reduced = args.reduced;         // at least one
    shared += kWarps * kLanes * 4;  // others still read the first sums
  }
}

}  // namespace rk
