// TopK: of every line along one dimension the first k elements of an order (kernels/shared/order.h) and where they stood, for elements of
// any type. T is the type in which elements are compared: float for f32, f16 and bf16, double, int64_t or uint64_t.
//
// top_k_rounds finds one element after the other: each round looks for the first element that comes after the one found last. kLanes
// threads (1, a warp, or all compute threads) share a line, and each has kAtOnce loads under way. top_k_ranks has a thread for every
// element; the thread counts the elements that come before its own, and that count is the element's place in the result. Rounds read k *
// extent elements of a line, ranks at most extent * extent; kernels/typed/top_k.cpp chooses by cost.
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

// The element found by a thread, or by several: which one, and where it stood; none yet where `at` is kNoElement.
constexpr uint32_t kNoElement = 0xffffffffu;
template <class T>
struct FoundElement {
  T value{};
  uint32_t at = kNoElement;

  RK_INLINE void take(const T& other, uint32_t other_at, const ElementOrder& order) {
    if (other_at == kNoElement || (at != kNoElement && !comes_before(other, other_at, value, at, order))) return;
    value = other, at = other_at;
  }
};

// The best of all lanes that share a line, in each of them. `work`: an element for each warp, where they are all compute threads.
template <class Veu, class T, int kLanes>
RK_INLINE void share_found(FoundElement<T>& best, const ElementOrder& order, FoundElement<T>* work) {
  if constexpr (kLanes >= kWarp) {
#pragma unroll
    for (int step = kWarp / 2; step > 0; step /= 2) {
      const T other = __shfl_xor_sync(kFullMask, best.value, step);
      const uint32_t other_at = __shfl_xor_sync(kFullMask, best.at, step);
      best.take(other, other_at, order);
    }
  }
  if constexpr (kLanes > kWarp) {
    if (lane_id() == 0) work[warp_id()] = best;
    sync_compute<Veu>();
#pragma unroll 1
    for (int w = 0; w < kLanes / kWarp; ++w) best.take(work[w].value, work[w].at, order);
    sync_compute<Veu>();  // before the next round stores
  }
}

template <class Veu, class T, int kLanes>
RK_BODY void typed_top_k_rounds(const Task<Veu>& caller) {
  static_assert(kLanes == 1 || kLanes == kWarp || kLanes == Veu::kComputeThreads, "lines belong to a thread, to a warp or to a vEU");
  constexpr uint32_t kAtOnce = kLanes > 1 ? 4 : 1;
  const Task<Veu> task = caller;  // a copy in registers, since the caller's task is in a stack frame
  const TypedTopKArgs& args = task.template arguments<TypedTopKArgs>();
  const ElementOrder order{args.largest != 0, args.last_of_equals != 0, args.nan_first != 0};
  const void* const in = task.address(args.in);
  const uint32_t extent = args.extent.divisor, lane = threadIdx.x % kLanes;
  const uint32_t end = min((task.index + 1) * args.lines_per_rtask, args.line_count);
#pragma unroll 1
  for (uint32_t line = task.index * args.lines_per_rtask + threadIdx.x / kLanes; line < end; line += Veu::kComputeThreads / kLanes) {
    const LinePlaces places = line_places(args, line);
    FoundElement<T> last;
#pragma unroll 1
    for (uint32_t rank = 0; rank < args.k; ++rank) {
      FoundElement<T> best;
#pragma unroll 1
      for (uint32_t first = lane; first < extent; first += kAtOnce * kLanes) {
        T x[kAtOnce];
#pragma unroll
        for (uint32_t n = 0; n < kAtOnce; ++n) {  // behind the end the first one once more
          const uint32_t i = first + n * kLanes < extent ? first + n * kLanes : first;
          x[n] = load_number<T>(in, places.in + static_cast<int64_t>(i) * args.in_step, args.type);
        }
#pragma unroll
        for (uint32_t n = 0; n < kAtOnce; ++n) {
          const uint32_t i = first + n * kLanes;
          if (i < extent && (last.at == kNoElement || comes_before(last.value, last.at, x[n], i, order))) best.take(x[n], i, order);
        }
      }
      share_found<Veu, T, kLanes>(best, order, task.template work_as<FoundElement<T>>());
      if (lane == 0) store_ranked(task, args, places, rank, best.value, best.at);
      last = best;
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
