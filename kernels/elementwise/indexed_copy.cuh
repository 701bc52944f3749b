// y[o] = x[map(o)], or a constant where the map leaves x: Pad in all its modes, and Gather. The map is a sum over dimensions of
// stride * coordinate or of a number from a table. So all modes of padding are the same code, with tables that the host makes.
// Gather's indices may have several dimensions: these together select an entry of one `joint` table.
// Example: a row of 4 with stride 1, padded by 1 on both sides, has the table 1, 0, 1, 2, 3, 2 in mode reflect, and kOutside, 0, 1, 2, 3,
// kOutside in mode constant. A joint table for indices of shape [2, 3] has joint_steps 3 and 1: (1, 2) selects entry joint_at + 5.
#pragma once

#include "kernels/elementwise/numbers.cuh"
#include "kernels/vdevice/task.cuh"

namespace rk {

struct IndexedCopyArgs {  // in tables
  TensorRef out, in;
  TensorRef tables;                // int32 offsets in elements
  int32_t out_strides[kCopyRank];  // dimensions in the output's memory order, outermost first
  int32_t in_strides[kCopyRank];
  int32_t table_at[kCopyRank];  // first entry of the dimension's table; -1: none, the stride counts
  int32_t joint_steps[kCopyRank];
  int32_t joint_at;  // -1: none
  Divisor divisors[kCopyRank - 1];
  int32_t rank;
  uint32_t items;  // vectors of kVector elements
  uint32_t items_per_rtask;
  float value;
};

struct CopyPlace {
  int64_t out, in;
  bool outside;
};

RK_INLINE void copy_lookup(const float* tables, int32_t at, CopyPlace& place) {
  const int32_t offset = __float_as_int(load_weight1(tables + at));
  if (offset == kOutside)
    place.outside = true;
  else
    place.in += offset;
}

RK_INLINE CopyPlace copy_place(const IndexedCopyArgs& args, const float* tables, uint32_t item) {
  CopyPlace place{0, 0, false};
  int32_t joint = args.joint_at;
#pragma unroll 1
  for (int d = args.rank - 1; d >= 0; --d) {
    uint32_t at = item;
    if (d > 0) item = divide(item, args.divisors[d - 1], at);
    place.out += static_cast<int64_t>(at) * args.out_strides[d];
    place.in += static_cast<int64_t>(at) * args.in_strides[d];
    joint += static_cast<int32_t>(at) * args.joint_steps[d];
    if (args.table_at[d] >= 0) copy_lookup(tables, args.table_at[d] + static_cast<int32_t>(at), place);
  }
  if (args.joint_at >= 0) copy_lookup(tables, joint, place);
  return place;
}

// kVector 4: four elements that lie next to each other in x and y, 16-byte aligned.
template <class Veu, int kVector>
RK_BODY void indexed_copy(const Task<Veu>& caller) {
  const Task<Veu> task = caller;  // a copy in registers, since the caller's task is in a stack frame
  constexpr int kBatch = 4;       // loads under way per thread
  const IndexedCopyArgs& args = task.template arguments<IndexedCopyArgs>();
  const float* const in = task.address(args.in);
  const float* const tables = task.address(args.tables);
  float* const out = task.address(args.out);
  const uint32_t limit = (task.index + 1) * args.items_per_rtask;
  const uint32_t end = limit < args.items ? limit : args.items;
  // All lanes make the same turns, as await_inputs asks. What tables say is known when the inputs are there.
#pragma unroll 1
  for (uint32_t first = task.index * args.items_per_rtask; first < end; first += kBatch * Veu::kComputeThreads) {
    const uint32_t item = first + threadIdx.x;
    float4 v[kBatch];
    CopyPlace place[kBatch];
#pragma unroll
    for (int b = 0; b < kBatch; ++b) {
      place[b] = {0, 0, true};
      if (item + b * Veu::kComputeThreads < end) place[b] = copy_place(args, tables, item + b * Veu::kComputeThreads);
    }
    task.await_inputs();
#pragma unroll
    for (int b = 0; b < kBatch; ++b) {
      v[b] = float4{args.value, args.value, args.value, args.value};
      if (place[b].outside) continue;
      if (kVector == 4)
        v[b] = load4(in + place[b].in);
      else
        v[b].x = load1(in + place[b].in);
    }
#pragma unroll
    for (int b = 0; b < kBatch; ++b) {
      if (item + b * Veu::kComputeThreads >= end) continue;
      if (kVector == 4)
        store4(out + place[b].out, v[b]);
      else
        store1(out + place[b].out, v[b].x);
    }
  }
}

}  // namespace rk
