// Scatter, for elements of any type. Each thread computes one result. The thread looks through the indices that may name its result, and
// applies the updates whose indices do, in their order. So the result never depends on which thread comes first, and nothing is written
// twice. An index counts from the end if it is negative; an index outside of x names no element.
// Example: axis 0, x of extent 5, indices 1, -2, 1, 9. The thread of element 1 applies updates 0 and 2, that of element 3 update 1.
#pragma once

#include "kernels/vdevice/cells.cuh"

namespace rk {

enum ScatterFunction : int32_t {  // the numbers of ScatterKind (compiler/ir/ops.h)
  kScatterNone,
  kScatterAdd,
  kScatterMul,
  kScatterMax,
  kScatterMin,
};

struct TypedScatterArgs {  // in tables
  TensorRef out, in, indices, updates;
  Nest nest;  // of the output: its dimensions
  int32_t out_strides[kNestRank], in_strides[kNestRank];
  int32_t index_strides[kNestRank], update_strides[kNestRank];  // 0 along the axis
  uint32_t limits[kNestRank];                                   // extents of the updates, along the axis that of x
  int32_t index_step, update_step;                              // along the axis
  int32_t axis;
  uint32_t extent;  // of x along the axis
  uint32_t count;   // of the updates along the axis
  uint32_t behind;  // elements behind the axis where all elements have the same indices; else 0
  uint32_t type, index_type;
  uint32_t elements, elements_per_rtask;
};

struct ScatterPlace {
  int64_t out, in, index, update;
  int64_t target;  // coordinate along the axis
  bool reached;    // whether the element can be named by an update, as far as the dimensions other than the axis say
};

RK_INLINE ScatterPlace scatter_place(const TypedScatterArgs& args, uint32_t element) {
  ScatterPlace place{0, 0, 0, 0, 0, true};
  for_each_coordinate(args.nest, element, [&](int d, uint32_t at) {
    place.out += static_cast<int64_t>(at) * args.out_strides[d];
    place.in += static_cast<int64_t>(at) * args.in_strides[d];
    place.index += static_cast<int64_t>(at) * args.index_strides[d];
    place.update += static_cast<int64_t>(at) * args.update_strides[d];
    if (at >= args.limits[d]) place.reached = false;
    if (d == args.axis) place.target = at;
  });
  return place;
}

// The index of an update; negative ones count from the end.
RK_INLINE int64_t scatter_index(const TypedScatterArgs& args, const void* indices, int64_t at) {
  const int64_t index = load_number<int64_t>(indices, at, args.index_type);
  return index < 0 ? index + static_cast<int64_t>(args.extent) : index;
}

RK_INLINE bool names_target(const TypedScatterArgs& args, const void* indices, const ScatterPlace& place, uint32_t update) {
  return scatter_index(args, indices, place.index + static_cast<int64_t>(update) * args.index_step) == place.target;
}

template <class T, int32_t kFunction>
RK_INLINE T scattered(T x, T y) {
  if constexpr (kFunction == kScatterAdd)
    return functions::sum(x, y);
  else if constexpr (kFunction == kScatterMul)
    return functions::product(x, y);
  else if constexpr (kFunction == kScatterMax)
    return functions::max_of(x, y);
  else
    return functions::min_of(x, y);
}

// Elements [begin, end) that updates name, where all elements have the same indices: of a cache that takes a row only that row is looked
// at. A thread has the elements of all updates at one place in front of and behind the axis, so the last update counts.
template <class Veu, class Cell>
RK_INLINE void scatter_named_cells(const Task<Veu>& task, const TypedScatterArgs& args, uint32_t begin, uint32_t end) {
  const void* const indices = task.address(args.indices);
  const Cell* const updates = reinterpret_cast<const Cell*>(task.address(args.updates));
  Cell* const out = reinterpret_cast<Cell*>(task.address(args.out));
#pragma unroll 1
  for (uint32_t at = threadIdx.x; at < args.elements / args.extent; at += Veu::kComputeThreads) {
#pragma unroll 1
    for (uint32_t update = 0; update < args.count; ++update) {
      const int64_t target = scatter_index(args, indices, static_cast<int64_t>(update) * args.index_step);
      if (target < 0 || target >= args.extent) continue;
      const uint32_t element = (at / args.behind * args.extent + static_cast<uint32_t>(target)) * args.behind + at % args.behind;
      if (element < begin || element >= end) continue;
      const ScatterPlace place = scatter_place(args, element);
      if (place.reached) store_cell(out + place.out, load_cell(updates + place.update + static_cast<int64_t>(update) * args.update_step));
    }
  }
}

// The last update counts. Cell is an unsigned integer of the element's size, or uint4: then strides, extents and elements count cells of 16
// bytes, whose elements one index is for. If the caller keeps x in place (compiler/ir/in_place.h), only updated elements are stored.
template <class Veu, class Cell>
RK_BODY void typed_scatter_cells(const Task<Veu>& caller) {
  const Task<Veu> task = caller;  // a copy in registers, since the caller's task is in a stack frame
  const TypedScatterArgs& args = task.template arguments<TypedScatterArgs>();
  const void* const indices = task.address(args.indices);
  const bool in_place = task.address(args.in) == task.address(args.out);
  const uint32_t begin = task.index * args.elements_per_rtask, end = min(begin + args.elements_per_rtask, args.elements);
  if (in_place && args.behind > 0) return scatter_named_cells<Veu, Cell>(task, args, begin, end);
#pragma unroll 1
  for (uint32_t element = begin + threadIdx.x; element < end; element += Veu::kComputeThreads) {
    const ScatterPlace place = scatter_place(args, element);
    uint32_t update = place.reached ? args.count : 0;
#pragma unroll 1
    while (update > 0 && !names_target(args, indices, place, update - 1)) --update;
    if (in_place && update == 0) continue;
    const Cell* from = reinterpret_cast<const Cell*>(task.address(args.in)) + place.in;
    if (update > 0) {
      const int64_t at = place.update + static_cast<int64_t>(update - 1) * args.update_step;
      from = reinterpret_cast<const Cell*>(task.address(args.updates)) + at;
    }
    store_cell(reinterpret_cast<Cell*>(task.address(args.out)) + place.out, load_cell(from));
  }
}

// T is double for floats, int64_t for integers and bool, uint64_t for u64; rounded or wrapped after each update.
template <class Veu, class T, int32_t kFunction>
RK_BODY void typed_scatter(const Task<Veu>& caller) {
  const Task<Veu> task = caller;  // a copy in registers, since the caller's task is in a stack frame
  const TypedScatterArgs& args = task.template arguments<TypedScatterArgs>();
  const void* const indices = task.address(args.indices);
  const uint32_t end = min((task.index + 1) * args.elements_per_rtask, args.elements);
#pragma unroll 1
  for (uint32_t element = task.index * args.elements_per_rtask + threadIdx.x; element < end; element += Veu::kComputeThreads) {
    const ScatterPlace place = scatter_place(args, element);
    T x = load_number<T>(task.address(args.in), place.in, args.type);
    const uint32_t count = place.reached ? args.count : 0;
#pragma unroll 1
    for (uint32_t update = 0; update < count; ++update) {
      if (!names_target(args, indices, place, update)) continue;
      const int64_t at = place.update + static_cast<int64_t>(update) * args.update_step;
      x = settled(scattered<T, kFunction>(x, load_number<T>(task.address(args.updates), at, args.type)), args.type);
    }
    store_number(task.address(args.out), place.out, args.type, x);
  }
}

}  // namespace rk
