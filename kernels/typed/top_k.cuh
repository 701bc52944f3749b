// TopK: of every line along one dimension the first k elements of an order (kernels/shared/order.h) and where they stood, for elements of
// any type. T is the type in which elements are compared: float for f32, f16 and bf16, double, int64_t or uint64_t.
//
// top_k_rounds finds one element after the other: each round looks for the first element that comes after the one found last. kLanes
// threads (1 or a warp) share a line. top_k_ranks has a thread for every element; the thread counts the elements that come before its own,
// and that count is the element's place in the result. Rounds read k * extent elements of a line, ranks at most extent * extent;
// kernels/typed/top_k.cpp chooses by cost.
//
// Example: the 3 largest of x f32[4,100,5] along its second dimension. There are 20 lines; line 7 is [1,..,2]. It begins at element
// 1 * 500 + 2 = 502 of x and goes on in steps of 5; its results begin at 1 * 15 + 2 = 17 of values f32[4,3,5], in steps of 5, too.
#pragma once

#include "kernels/shared/order.h"
#include "kernels/vdevice/cells.cuh"

namespace rk {

struct TypedTopKArgs {  // in tables
  TensorRef in, values, indices;
  Nest lines;
  int32_t value_strides[kNestRank], index_strides[kNestRank], in_strides[kNestRank];
  int32_t value_step, index_step, in_step;  // along the axis
  Divisor extent;                           // of x along the axis
  uint32_t k;
  uint32_t line_count, lines_per_rtask;
  uint32_t type;
  uint32_t largest, last_of_equals, nan_first;
};

struct LinePlaces {
  int64_t values, indices, in;
};

RK_INLINE LinePlaces line_places(const TypedTopKArgs& args, uint32_t line) {
  const auto [values, indices, in] = nest_offsets(args.lines, line, args.value_strides, args.index_strides, args.in_strides).of;
  return {values, indices, in};
}

template <class Veu, class T>
RK_INLINE void store_ranked(const Task<Veu>& task, const TypedTopKArgs& args, const LinePlaces& places, uint32_t rank, T x, uint32_t i) {
  store_number(task.address(args.values), places.values + static_cast<int64_t>(rank) * args.value_step, args.type, x);
  int64_t* const indices = reinterpret_cast<int64_t*>(task.address(args.indices));
  store_cell(indices + (places.indices + static_cast<int64_t>(rank) * args.index_step), static_cast<int64_t>(i));
}

template <class Veu, class T, int kLanes>
RK_BODY void typed_top_k_rounds(const Task<Veu>& caller) {
  static_assert(kLanes == 1 || kLanes == kWarp, "lines belong to a thread or to a warp");
  constexpr uint32_t kNone = 0xffffffffu;
  const Task<Veu> task = caller;  // a copy in registers, since the caller's task is in a stack frame
  const TypedTopKArgs& args = task.template arguments<TypedTopKArgs>();
  const ElementOrder order{args.largest != 0, args.last_of_equals != 0, args.nan_first != 0};
  const void* const in = task.address(args.in);
  const uint32_t extent = args.extent.divisor, lane = threadIdx.x % kLanes;
  const uint32_t end = min((task.index + 1) * args.lines_per_rtask, args.line_count);
#pragma unroll 1
  for (uint32_t line = task.index * args.lines_per_rtask + threadIdx.x / kLanes; line < end; line += Veu::kComputeThreads / kLanes) {
    const LinePlaces places = line_places(args, line);
    T last{};
    uint32_t last_at = kNone;
#pragma unroll 1
    for (uint32_t rank = 0; rank < args.k; ++rank) {
      T best{};
      uint32_t best_at = kNone;
#pragma unroll 1
      for (uint32_t i = lane; i < extent; i += kLanes) {
        const T x = load_number<T>(in, places.in + static_cast<int64_t>(i) * args.in_step, args.type);
        if (last_at != kNone && !comes_before(last, last_at, x, i, order)) continue;
        if (best_at != kNone && !comes_before(x, i, best, best_at, order)) continue;
        best = x;
        best_at = i;
      }
      if constexpr (kLanes == kWarp) {
#pragma unroll
        for (int step = kWarp / 2; step > 0; step /= 2) {
          const T other = __shfl_xor_sync(kFullMask, best, step);
          const uint32_t other_at = __shfl_xor_sync(kFullMask, best_at, step);
          if (other_at == kNone || (best_at != kNone && !comes_before(other, other_at, best, best_at, order))) continue;
          best = other;
          best_at = other_at;
        }
      }
      if (lane == 0) store_ranked(task, args, places, rank, best, best_at);
      last = best;
      last_at = best_at;
    }
  }
}

template <class Veu, class T>
RK_BODY void typed_top_k_ranks(const Task<Veu>& caller) {
  const Task<Veu> task = caller;  // a copy in registers, since the caller's task is in a stack frame
  const TypedTopKArgs& args = task.template arguments<TypedTopKArgs>();
  const ElementOrder order{args.largest != 0, args.last_of_equals != 0, args.nan_first != 0};
  const void* const in = task.address(args.in);
  const uint32_t extent = args.extent.divisor;
  const uint32_t end = min((task.index + 1) * args.lines_per_rtask, args.line_count) * extent;
#pragma unroll 1
  for (uint32_t item = task.index * args.lines_per_rtask * extent + threadIdx.x; item < end; item += Veu::kComputeThreads) {
    uint32_t i;
    const LinePlaces places = line_places(args, divide(item, args.extent, i));
    const T x = load_number<T>(in, places.in + static_cast<int64_t>(i) * args.in_step, args.type);
    uint32_t rank = 0;
#pragma unroll 1
    for (uint32_t j = 0; j < extent && rank < args.k; ++j) {
      const T y = load_number<T>(in, places.in + static_cast<int64_t>(j) * args.in_step, args.type);
      if (comes_before(y, j, x, i, order)) ++rank;
    }
    if (rank < args.k) store_ranked(task, args, places, rank, x, i);
  }
}

}  // namespace rk
