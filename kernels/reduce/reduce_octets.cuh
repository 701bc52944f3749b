// As reduce_sum.cuh, for so many rows that a rTask has a warp's width of items or more: global average pooling of batches. An item is eight
// rows that lie next to each other (an octet), a load of 16 bytes where values have 16 bits, and a thread has kBatch loads under way. The
// threads of an item leave their sums in shared memory, where the first threads add them up, the same order every time.
// Example: kLanes 64, 256 threads. Thread 77 adds up reduced elements 77 / 64 = 1, 5, 9, .. of item 77 % 64 = 13. In the end thread 77 adds
// up the 4 sums of item 77 / 8 = 9, row 77 % 8 = 5, and of item 41, row 5.
#pragma once

#include "kernels/vdevice/task.cuh"
#include "kernels/vdevice/values.cuh"

namespace rk {

struct ReduceOctetsArgs {
  TensorRef in, out;
  Divisor row_items;        // items of a row of the nest of kept elements (two dimensions at most)
  int32_t in_row, out_row;  // elements from one of its rows to the next
  int32_t out_step;         // from one kept element of a row to the next in the output
  int32_t stride;           // from one reduced element to the next
  uint32_t items, reduced;
  float scale;
};
static_assert(sizeof(ReduceOctetsArgs) <= 768, "an argument slot has 768 bytes");

// Element 0 of item `item` in a nest with these rows. Offsets are below 2^31 elements.
RK_INLINE uint32_t reduce_octets_offset(const ReduceOctetsArgs& args, uint32_t item, int32_t row_stride, int32_t step) {
  uint32_t column;
  const uint32_t row = divide(item, args.row_items, column);
  return row * static_cast<uint32_t>(row_stride) + column * 8 * static_cast<uint32_t>(step);
}

template <class Veu, int kLanes, int kBatch, class In = float, class Out = float>
RK_BODY void reduce_octets(const Task<Veu>& caller) {
  constexpr uint32_t kParts = Veu::kComputeThreads / kLanes;
  const Task<Veu> task = caller;  // a copy in registers, since the caller's task is in a stack frame
  const ReduceOctetsArgs& args = task.template arguments<ReduceOctetsArgs>();
  const uint32_t thread = threadIdx.x, lane = thread % kLanes, part = thread / kLanes, first = task.index * kLanes;
  const uint32_t reduced = args.reduced, stride = static_cast<uint32_t>(args.stride);
  // Items past the end repeat the last.
  const In* const in = values_at<In>(task, args.in) + reduce_octets_offset(args, min(first + lane, args.items - 1), args.in_row, 1);
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
    const uint32_t to = reduce_octets_offset(args, item, args.out_row, args.out_step) + at % 8 * static_cast<uint32_t>(args.out_step);
    store1(values_at<Out>(task, args.out) + to, sum * args.scale);
  }
}

}  // namespace rk
