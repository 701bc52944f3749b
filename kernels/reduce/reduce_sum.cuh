// y[row] = scale * sum of x[row, r], for example global average pooling of channels-last tensors. An item is four rows that lie
// next to each other, one float4. A rTask takes kLanes items, and its threads share the reduced elements of each item. Each warp adds up
// its lanes' sums with shuffles, then the first threads add up the warps' sums: one barrier, the same order every time.
// Example: kLanes 8, 256 threads. Thread 77 adds up reduced elements 77 / 8 = 9, 41, 73, .. of item 77 % 8 = 5. In the end thread 22 adds
// up the 8 warps' sums of item 22 / 4 = 5, row 22 % 4 = 2.
//
// The code is short, since networks run it once, and code that runs once costs more than its arithmetic. In and Out are the types of x and
// of y in memory.
#pragma once

#include "kernels/reduce/reduce_rows.cuh"

namespace rk {

RK_INLINE void accumulate4(float4& acc, const float4& v) { acc = float4{acc.x + v.x, acc.y + v.y, acc.z + v.z, acc.w + v.w}; }

template <class Veu, int kLanes, class In = float, class Out = float>
RK_BODY void reduce_sum(const Task<Veu>& caller) {
  constexpr uint32_t kParts = Veu::kComputeThreads / kLanes, kWarps = Veu::kComputeThreads / kWarp, kBatch = 2;
  const Task<Veu> task = caller;  // a copy in registers, since the caller's task is in a stack frame
  const ReduceSumArgs& args = task.template arguments<ReduceSumArgs>();
  const uint32_t thread = threadIdx.x, first = task.index * kLanes, reduced = args.reduced, stride = static_cast<uint32_t>(args.stride);
  const In* const in = values_at<In>(task, args.in);
  const uint32_t start = reduce_sum_offset<4>(args, first + thread % kLanes, args.in_row, 1);
  float4 acc = {0, 0, 0, 0};
#pragma unroll 1
  for (uint32_t r = thread / kLanes; r < reduced; r += kBatch * kParts) {
    const float4 v = load4(in + (start + r * stride));
    float4 w = {0, 0, 0, 0};
    if (r + kParts < reduced) w = load4(in + (start + (r + kParts) * stride));
    accumulate4(acc, v);
    accumulate4(acc, w);
  }
#pragma unroll
  for (int step = kLanes; step < kWarp; step *= 2) {
    accumulate4(acc, float4{__shfl_xor_sync(kFullMask, acc.x, step), __shfl_xor_sync(kFullMask, acc.y, step),
                            __shfl_xor_sync(kFullMask, acc.z, step), __shfl_xor_sync(kFullMask, acc.w, step)});
  }
  float* const shared = task.template work_as<float>();
  if (thread % kWarp < kLanes) reinterpret_cast<float4*>(shared)[thread / kWarp * kLanes + thread % kLanes] = acc;
  sync_compute<Veu>();
  const uint32_t item = first + thread / 4;
  if (thread >= 4 * kLanes || item >= args.items) return;
  float sum = 0.0f;
#pragma unroll
  for (uint32_t w = 0; w < kWarps; ++w) sum += shared[w * kLanes * 4 + thread];
  const uint32_t to = reduce_sum_offset<4>(args, item, args.out_row, args.out_step) + thread % 4 * static_cast<uint32_t>(args.out_step);
  store1(values_at<Out>(task, args.out) + to, sum * args.scale);
}

}  // namespace rk
