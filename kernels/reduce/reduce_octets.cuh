// As reduce_sum.cuh, for so many rows that a rTask has a warp's width of items or more: global average pooling of batches. An item is eight
// rows that lie next to each other (an octet), a load of 16 bytes where values have 16 bits, and a thread has kBatch loads under way. The
// threads of an item leave their sums in shared memory, where the first threads add them up, the same order every time.
// Example: kLanes 64, 256 threads. Thread 77 adds up reduced elements 77 / 64 = 1, 5, 9, .. of item 77 % 64 = 13. In the end thread 77 adds
// up the 4 sums of item 77 / 8 = 9, row 77 % 8 = 5, and of item 41, row 5.
#pragma once

#include "kernels/reduce/reduce_rows.cuh"

namespace rk {

template <class Veu, int kLanes, int kBatch, class In = float, class Out = float>
RK_BODY void reduce_octets(const Task<Veu>& caller) {
  constexpr uint32_t kParts = Veu::kComputeThreads / kLanes;
  const Task<Veu> task = caller;  // a copy in registers, since the caller's task is in a stack frame
  const ReduceSumArgs& args = task.template arguments<ReduceSumArgs>();
  const uint32_t thread = threadIdx.x, lane = thread % kLanes, part = thread / kLanes, first = task.index * kLanes;
  const uint32_t reduced = args.reduced, stride = static_cast<uint32_t>(args.stride);
  const In* const in = values_at<In>(task, args.in) + reduce_sum_offset<8>(args, first + lane, args.in_row, 1);
  float acc[8] = {};
#pragma unroll 1
  for (uint32_t r = part; r < reduced; r += kBatch * kParts) {
    Raw8<In> raw[kBatch] = {};
#pragma unroll
    for (uint32_t b = 0; b < kBatch; ++b) {
      if (r + b * kParts < reduced) raw[b] = load_raw8(in + (r + b * kParts) * stride);
    }
#pragma unroll
    for (uint32_t b = 0; b < kBatch; ++b) {
      float v[8];
      raw[b].floats(v);
#pragma unroll
      for (int i = 0; i < 8; ++i) acc[i] += v[i];
    }
  }
  float* const shared = task.template work_as<float>();
#pragma unroll
  for (int i = 0; i < 8; i += 4) reinterpret_cast<float4*>(shared)[thread * 2 + i / 4] = float4{acc[i], acc[i + 1], acc[i + 2], acc[i + 3]};
  sync_compute<Veu>();
#pragma unroll 1
  for (uint32_t at = thread; at < kLanes * 8; at += Veu::kComputeThreads) {
    const uint32_t item = first + at / 8;
    if (item >= args.items) return;
    float sum = 0.0f;
#pragma unroll
    for (uint32_t p = 0; p < kParts; ++p) sum += shared[p * kLanes * 8 + at];
    const uint32_t to = reduce_sum_offset<8>(args, item, args.out_row, args.out_step) + at % 8 * static_cast<uint32_t>(args.out_step);
    store1(values_at<Out>(task, args.out) + to, sum * args.scale);
  }
}

}  // namespace rk
