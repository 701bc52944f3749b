// CumSum and CumProd along one dimension, for elements of any type: the reference's arithmetic (compiler/ops/cumulate.cpp). T is double for
// floats, int64_t for integers, uint64_t for u64. kLanes threads (1 or a warp) share a line, each with a piece of the line: a warp first
// combines the totals of its lanes' pieces, so that every lane knows the total of all pieces before its own.
// Example: a line of 100 elements for 32 lanes has pieces of 4: lane 5 has elements 20 to 23, lanes 25 to 31 have none.
#pragma once

#include "kernels/vdevice/cells.cuh"

namespace rk {

struct TypedCumulateArgs {  // in tables
  TensorRef out, in;
  Nest lines;
  int32_t out_strides[kNestRank], in_strides[kNestRank];
  int32_t out_step, in_step;  // along the axis
  uint32_t extent;            // along the axis
  uint32_t line_count, lines_per_rtask;
  uint32_t type;
  uint32_t exclusive, reverse;
};

template <bool kProduct, class T>
RK_INLINE T cumulated(T x, T y) {
  if constexpr (kProduct)
    return functions::product(x, y);
  else
    return functions::sum(x, y);
}

// The totals of the lanes before this one, combined.
template <bool kProduct, class T>
RK_INLINE T before_lane(T own, uint32_t lane) {
  T sum = own;
#pragma unroll
  for (uint32_t step = 1; step < kWarp; step *= 2) {
    const T below = __shfl_up_sync(kFullMask, sum, step);
    if (lane >= step) sum = cumulated<kProduct>(below, sum);
  }
  const T before = __shfl_up_sync(kFullMask, sum, 1);
  return lane == 0 ? T(kProduct ? 1 : 0) : before;
}

template <class Veu, class T, bool kProduct, int kLanes>
RK_BODY void typed_cumulate(const Task<Veu>& caller) {
  static_assert(kLanes == 1 || kLanes == kWarp, "lines belong to a thread or to a warp");
  const Task<Veu> task = caller;  // a copy in registers, since the caller's task is in a stack frame
  const TypedCumulateArgs& args = task.template arguments<TypedCumulateArgs>();
  const void* const in = task.address(args.in);
  const uint32_t lane = threadIdx.x % kLanes, piece = (args.extent + kLanes - 1) / kLanes;
  const uint32_t first = min(lane * piece, args.extent), last = min(first + piece, args.extent);
  const uint32_t end = min((task.index + 1) * args.lines_per_rtask, args.line_count);
#pragma unroll 1
  for (uint32_t line = task.index * args.lines_per_rtask + threadIdx.x / kLanes; line < end; line += Veu::kComputeThreads / kLanes) {
    const auto [to, from] = nest_offsets(args.lines, line, args.out_strides, args.in_strides).of;
    const auto place = [&](uint32_t i) { return static_cast<int64_t>(args.reverse != 0 ? args.extent - 1 - i : i); };
    T total = T(kProduct ? 1 : 0);
    if constexpr (kLanes == kWarp) {
#pragma unroll 4
      for (uint32_t i = first; i < last; ++i)
        total = cumulated<kProduct>(total, load_number<T>(in, from + place(i) * args.in_step, args.type));
      total = before_lane<kProduct>(total, lane);
    }
#pragma unroll 1
    for (uint32_t i = first; i < last; ++i) {
      const T next = cumulated<kProduct>(total, load_number<T>(in, from + place(i) * args.in_step, args.type));
      store_number(task.address(args.out), to + place(i) * args.out_step, args.type, args.exclusive != 0 ? total : next);
      total = next;
    }
  }
}

}  // namespace rk
