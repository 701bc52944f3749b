// y[row] = scale * sum of x[row, r], for example global average pooling of channels-last tensors. An item is four rows that lie
// next to each other, one float4. A rTask takes kLanes items, and its threads share the reduced elements of each item. Each warp adds up
// its lanes' sums with shuffles, then the first threads add up the warps' sums: one barrier, the same order every time.
// Example: kLanes 8, 256 threads. Thread 77 adds up reduced elements 77 / 8 = 9, 41, 73, .. of item 77 % 8 = 5. In the end thread 22 adds
// up the 8 warps' sums of item 22 / 4 = 5, row 22 % 4 = 2.
//
// The code is short, since networks run it once, and code that runs once costs more than its arithmetic. In and Out are the types of x and
// of y in memory.
#pragma once

#include "kernels/vdevice/task.cuh"
#include "kernels/vdevice/values.cuh"

namespace rk {

struct ReduceSumArgs {
  TensorRef in, out;
  Divisor row_items;        // items of a row of the nest of kept elements (two dimensions at most)
  int32_t in_row, out_row;  // elements from one of its rows to the next
  int32_t out_step;         // from one kept element of a row to the next in the output
  int32_t stride;           // from one reduced element to the next
  uint32_t items, reduced;
  float scale;
};
static_assert(sizeof(ReduceSumArgs) <= 768, "an argument slot has 768 bytes");

RK_INLINE void accumulate4(float4& acc, const float4& v) { acc = float4{acc.x + v.x, acc.y + v.y, acc.z + v.z, acc.w + v.w}; }

// Element 0 of item `item` in a nest with these rows; items past the end repeat the last. Offsets are below 2^31 elements.
RK_INLINE uint32_t reduce_sum_offset(const ReduceSumArgs& args, uint32_t item, int32_t row_stride, int32_t step) {
  uint32_t column;
  const uint32_t row = divide(min(item, args.items - 1), args.row_items, column);
  return row * static_cast<uint32_t>(row_stride) + column * 4 * static_cast<uint32_t>(step);
}

template <class Veu, int kLanes, class In = float, class Out = float>
RK_BODY void reduce_sum(const Task<Veu>& caller) {
  constexpr uint32_t kParts = Veu::kComputeThreads / kLanes, kWarps = Veu::kComputeThreads / kWarp, kBatch = 2;
  const Task<Veu> task = caller;  // a copy in registers, since the caller's task is in a stack frame
  const ReduceSumArgs& args = task.template arguments<ReduceSumArgs>();
  const uint32_t thread = threadIdx.x, first = task.index * kLanes, reduced = args.reduced, stride = static_cast<uint32_t>(args.stride);
  const In* const in = values_at<In>(task, args.in);
  const uint32_t start = reduce_sum_offset(args, first + thread % kLanes, args.in_row, 1);
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
  const uint32_t to = reduce_sum_offset(args, item, args.out_row, args.out_step) + thread % 4 * static_cast<uint32_t>(args.out_step);
  store1(values_at<Out>(task, args.out) + to, sum * args.scale);
}

}  // namespace rk
