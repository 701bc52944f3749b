// Copies of many elements from one nest of dimensions to another, such as the patches of a picture, where every group of four neighbouring
// elements is an aligned vector of both. A thread has kGroups groups at a time: each index is decoded once for input and output, and all
// loads are issued before the first is used.
// Example: pictures [32, 3, 224, 224] to patches [32, 196, 768] have the nest 32, 14, 14, 3, 16, 4 of groups. Group 1000 is image 0, patch
// row 0, patch column 5, channel 0, row 10, group 0: in the input element 10 * 224 + 5 * 16 = 2320.
#pragma once

#include "kernels/tile/numbers.cuh"
#include "kernels/vdevice/task.cuh"
#include "kernels/vdevice/values.cuh"

namespace rk {

struct VectorCopyArgs {  // in tables
  TensorRef out, in;
  int32_t out_strides[kChainRank], in_strides[kChainRank];  // elements; of the innermost dimension those of a group
  Divisor divisors[kChainRank - 1];                         // extents of dimensions 1.., the innermost in groups
  uint32_t rank;
  uint32_t groups, groups_per_rtask;
};

template <class Veu, class In, class Out, int kGroups>
RK_BODY void vector_copy(const Task<Veu>& caller) {
  const Task<Veu> task = caller;  // a copy in registers, since the caller's task is in a stack frame
  const VectorCopyArgs& args = task.template arguments<VectorCopyArgs>();
  const In* const in = values_at<In>(task, args.in);
  Out* const out = values_at<Out>(task, args.out);
  const uint32_t end = min((task.index + 1) * args.groups_per_rtask, args.groups);
  task.await_inputs();
#pragma unroll 1
  for (uint32_t first = task.index * args.groups_per_rtask + threadIdx.x; first < end; first += kGroups * Veu::kComputeThreads) {
    uint32_t left[kGroups];
    int32_t to[kGroups] = {}, from[kGroups] = {};
#pragma unroll
    for (int g = 0; g < kGroups; ++g) left[g] = min(first + g * Veu::kComputeThreads, end - 1);  // past the end the last one again
#pragma unroll 1
    for (int d = static_cast<int>(args.rank) - 1; d >= 0; --d) {
      const Divisor extent = args.divisors[d > 0 ? d - 1 : 0];
      const int32_t out_stride = args.out_strides[d], in_stride = args.in_strides[d];
#pragma unroll
      for (int g = 0; g < kGroups; ++g) {
        uint32_t at = left[g];
        if (d > 0) left[g] = divide(left[g], extent, at);
        to[g] += static_cast<int32_t>(at) * out_stride;
        from[g] += static_cast<int32_t>(at) * in_stride;
      }
    }
    Raw4<In> value[kGroups];
#pragma unroll
    for (int g = 0; g < kGroups; ++g) value[g] = load_raw4(in + from[g]);
#pragma unroll
    for (int g = 0; g < kGroups; ++g) {
      if (first + g * Veu::kComputeThreads < end) store4(out + to[g], value[g].floats());
    }
  }
}

}  // namespace rk
