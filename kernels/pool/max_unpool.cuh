// y[i[e]] = x[e] for every element e, zeros elsewhere. A rTask has a share of y: it writes zeros, then goes through all indices and takes
// those that point into its share. So every element of y is written by one rTask, whatever the indices are; an index outside of y is
// ignored.
//
// Of several values for one element the last counts. Threads write in any order, then each looks whether its values are still there. If one
// is not, a single thread goes through all values again, in their order. That only happens if windows gave one element different values.
//
// Example: x f32[1,1,2,2] with indices 5, 7, 13, 15, and y f32[1,1,4,4] in two rTasks of 8 elements. rTask 1 writes zeros to elements 8
// to 15 and takes indices 13 and 15: row 3, column 1 of y becomes x[1][0], and row 3, column 3 becomes x[1][1].
#pragma once

#include "kernels/vdevice/cells.cuh"
#include "kernels/vdevice/sync.cuh"

namespace rk {

struct MaxUnpoolArgs {  // in tables
  TensorRef out, in, indices;
  Nest out_nest, in_nest, index_nest;  // each row by row
  int32_t out_strides[kNestRank], in_strides[kNestRank], index_strides[kNestRank];
  uint32_t elements, elements_per_rtask;  // of y
  uint32_t elements_in;
};

// Calls f(where in y, value) for the elements first, first + step, .. that point into [begin, end) of y.
template <class Veu, class F>
RK_INLINE void max_unpool_each(const Task<Veu>& task, const MaxUnpoolArgs& args, uint32_t first, uint32_t step, uint32_t begin,
                               uint32_t end, F f) {
  const float* const in = task.address(args.in);
  const uint64_t* const indices = reinterpret_cast<const uint64_t*>(task.address(args.indices));
#pragma unroll 1
  for (uint32_t element = first; element < args.elements_in; element += step) {
    const uint64_t index = load_cell(indices + nest_offsets(args.index_nest, element, args.index_strides).of[0]);
    if (index < begin || index >= end) continue;  // a negative one is far outside
    f(task.address(args.out) + nest_offsets(args.out_nest, static_cast<uint32_t>(index), args.out_strides).of[0],
      load1(in + nest_offsets(args.in_nest, element, args.in_strides).of[0]));
  }
}

template <class Veu>
RK_BODY void max_unpool(const Task<Veu>& caller) {
  const Task<Veu> task = caller;  // a copy in registers, since the caller's task is in a stack frame
  const MaxUnpoolArgs& args = task.template arguments<MaxUnpoolArgs>();
  float* const out = task.address(args.out);
  uint32_t* const is_lost = task.template work_as<uint32_t>();
  const uint32_t begin = task.index * args.elements_per_rtask, end = min(begin + args.elements_per_rtask, args.elements);
#pragma unroll 1
  for (uint32_t element = begin + threadIdx.x; element < end; element += Veu::kComputeThreads)
    store1(out + nest_offsets(args.out_nest, element, args.out_strides).of[0], 0.0f);
  if (threadIdx.x == 0) *is_lost = 0;
  sync_compute<Veu>();
  const auto put = [](float* to, float value) { store1(to, value); };
  max_unpool_each(task, args, threadIdx.x, Veu::kComputeThreads, begin, end, put);
  sync_compute<Veu>();
  max_unpool_each(task, args, threadIdx.x, Veu::kComputeThreads, begin, end, [is_lost](float* to, float value) {
    if (__float_as_uint(load1(to)) != __float_as_uint(value)) *is_lost = 1;
  });
  sync_compute<Veu>();
  if (*is_lost != 0 && threadIdx.x == 0) max_unpool_each(task, args, 0u, 1u, begin, end, put);
}

}  // namespace rk
