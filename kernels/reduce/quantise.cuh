// Dynamic quantisation: y = clip(round(x / scale) + point, 0, 255) - point, or that times the scale again. Scale and zero point follow from
// the range of all elements of x, extended to contain 0: scale = (most - least) / 255 or 1 if that is 0, point = clip(round(-least /
// scale), 0, 255). Of few elements each rTask finds the range itself, which costs less than to wait for one that does, and writes its share
// of y. It begins with the elements of its share, and keeps the first of these in registers. Of many, a phase in front, quantise_range,
// leaves the ranges of shares in `ranges`, two floats each.
//
// An item is kVector elements: four neighbours, or one element of a nest of dimensions. In and Out are the types of x and y in memory.
// Example: 1000 items, 300 a rTask, 256 threads. Thread 7 of rTask 2 loads items 607, 863, 119 (= 1119 - 1000) and 375 and writes 607 and
// 863.
#pragma once

#include "kernels/reduce/rows.cuh"
#include "kernels/vdevice/functions.cuh"
#include "kernels/vdevice/values.cuh"

namespace rk {

struct QuantiseArgs {  // in tables
  TensorRef in, out;
  int32_t in_strides[kRowsRank], out_strides[kRowsRank];  // of single elements, outermost dimension first
  Divisor divisors[kRowsRank - 1];
  uint32_t rank, items, items_per_rtask;
  int32_t scaled;
  TensorRef scale;  // where the first rTask stores it, or null
  TensorRef ranges;
  uint32_t shares;  // ranges that are there; 0: each rTask finds the range itself
};

constexpr uint32_t kQuantiseBatch = 4;  // items of a thread at a time

template <int kVector, class In>
RK_INLINE void load_item(const QuantiseArgs& args, const In* in, uint32_t item, float (&to)[kVector]) {
  if constexpr (kVector == 4) {
    const float4 v = load4(in + item * 4);
    to[0] = v.x;
    to[1] = v.y;
    to[2] = v.z;
    to[3] = v.w;
  } else {
    to[0] = load1(in + nest_offset(args.in_strides, args.divisors, static_cast<int>(args.rank), item));
  }
}

struct QuantiseRange {
  float least, most;
};
RK_INLINE QuantiseRange joined_range(const QuantiseRange& a, const QuantiseRange& b) {
  return {nan_min(a.least, b.least), nan_max(a.most, b.most)};
}

// That of all compute threads. `shared`: two floats for each warp.
template <class Veu>
RK_INLINE QuantiseRange range_of_threads(float* shared, QuantiseRange range) {
  constexpr int kWarps = Veu::kComputeThreads / kWarp;
#pragma unroll
  for (int step = kWarp / 2; step > 0; step /= 2) {
    range = joined_range(range, {__shfl_xor_sync(kFullMask, range.least, step), __shfl_xor_sync(kFullMask, range.most, step)});
  }
  if (lane_id() == 0) {
    shared[threadIdx.x / kWarp] = range.least;
    shared[kWarps + threadIdx.x / kWarp] = range.most;
  }
  sync_compute<Veu>();
#pragma unroll
  for (int warp = 0; warp < kWarps; ++warp) range = joined_range(range, {shared[warp], shared[kWarps + warp]});
  return range;
}

// The items of a rTask, from the first of its share on, and the range of those that it has loaded.
template <class Veu, int kVector, class In>
struct QuantiseLoads {
  static constexpr uint32_t kTurn = kQuantiseBatch * Veu::kComputeThreads;
  const QuantiseArgs& args;
  const In* in;
  uint32_t begin;
  float x[kQuantiseBatch][kVector];
  QuantiseRange range;

  // Those of a thread's turn; behind the `count`th the first of the share again.
  RK_INLINE void load(uint32_t first, uint32_t count) {
#pragma unroll
    for (uint32_t b = 0; b < kQuantiseBatch; ++b) {
      const uint32_t number = first + b * Veu::kComputeThreads, at = begin + (number < count ? number : 0);
      load_item<kVector>(args, in, at < args.items ? at : at - args.items, x[b]);
    }
  }
  RK_INLINE void extend() {
#pragma unroll
    for (uint32_t b = 0; b < kQuantiseBatch; ++b) {
#pragma unroll
      for (int i = 0; i < kVector; ++i) range = joined_range(range, {x[b][i], x[b][i]});
    }
  }
};

template <class Veu, int kVector, class In = float>
RK_BODY void quantise_range(const Task<Veu>& caller) {
  const Task<Veu> task = caller;  // a copy in registers, since the caller's task is in a stack frame
  const QuantiseArgs& args = task.template arguments<QuantiseArgs>();
  const uint32_t begin = task.index * args.items_per_rtask, share = min(args.items_per_rtask, args.items - begin);
  QuantiseLoads<Veu, kVector, In> own{args, values_at<In>(task, args.in), begin, {}, {0.0f, 0.0f}};
  task.await_inputs();
#pragma unroll 1
  for (uint32_t first = threadIdx.x; first - threadIdx.x < share; first += own.kTurn) {
    own.load(first, share);
    own.extend();
  }
  const QuantiseRange range = range_of_threads<Veu>(task.template work_as<float>(), own.range);
  float* const to = task.address(args.ranges) + 2 * task.index;
  if (threadIdx.x == 0) {
    store1(to, range.least);
    store1(to + 1, range.most);
  }
}

template <class Veu, int kVector, class In = float, class Out = float>
RK_BODY void quantise(const Task<Veu>& caller) {
  const Task<Veu> task = caller;  // a copy in registers, since the caller's task is in a stack frame
  const QuantiseArgs& args = task.template arguments<QuantiseArgs>();
  Out* const out = values_at<Out>(task, args.out);
  const uint32_t begin = task.index * args.items_per_rtask, items = args.items, share = min(args.items_per_rtask, items - begin);
  QuantiseLoads<Veu, kVector, In> own{args, values_at<In>(task, args.in), begin, {}, {0.0f, 0.0f}};
  task.await_inputs();
  own.load(threadIdx.x, items);
  if (args.shares == 0) {
    own.extend();
    QuantiseLoads<Veu, kVector, In> rest = own;
#pragma unroll 1
    for (uint32_t first = own.kTurn + threadIdx.x; first - threadIdx.x < items; first += own.kTurn) {
      rest.load(first, items);
      rest.extend();
    }
    own.range = rest.range;
  } else if (threadIdx.x < args.shares) {
    const float* const known = task.address(args.ranges) + 2 * threadIdx.x;
    own.range = {load1(known), load1(known + 1)};
  }
  const QuantiseRange range = range_of_threads<Veu>(task.template work_as<float>(), own.range);
  const float width = range.most - range.least, scale = width == 0.0f ? 1.0f : width / 255.0f;
  const float point = functions::rounded(-range.least / scale, 0.0f, 255.0f), factor = args.scaled != 0 ? scale : 1.0f;
  if (task.index == 0 && threadIdx.x == 0 && args.scale.base != kNullBase) store1(task.address(args.scale), scale);
#pragma unroll 1
  for (uint32_t first = threadIdx.x; first < share; first += own.kTurn) {
    if (first != threadIdx.x) own.load(first, items);
#pragma unroll
    for (uint32_t b = 0; b < kQuantiseBatch; ++b) {
      const uint32_t number = first + b * Veu::kComputeThreads;
      if (number >= share) continue;
      float y[kVector];
#pragma unroll
      for (int i = 0; i < kVector; ++i)
        y[i] = (functions::clip(functions::rint(own.x[b][i] / scale) + point, 0.0f, 255.0f) - point) * factor;
      if constexpr (kVector == 4)
        store4(out + (begin + number) * 4, float4{y[0], y[1], y[2], y[3]});
      else
        store1(out + nest_offset(args.out_strides, args.divisors, static_cast<int>(args.rank), begin + number), y[0]);
    }
  }
}

}  // namespace rk
