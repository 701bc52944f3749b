// y[i[e]] = x[e] for every element e, zeros elsewhere. A rTask has a share of y: it writes zeros, then goes through all indices and takes
// those that point into its share. So every element of y is written by one rTask, whatever the indices are; one outside of y is nobody's.
#pragma once

#include "kernels/vdevice/cells.cuh"
#include "kernels/vdevice/sync.cuh"

namespace rk {

struct MaxUnpoolArgs {
  TensorRef out, in, indices;
  Nest out_nest, in_nest, index_nest;  // each row by row
  int32_t out_strides[kNestRank], in_strides[kNestRank], index_strides[kNestRank];
  uint32_t elements, elements_per_rtask;  // of y
  uint32_t elements_in;
};
static_assert(sizeof(MaxUnpoolArgs) <= 768, "an argument slot has 768 bytes");

RK_INLINE int64_t unpool_offset(const Nest& nest, const int32_t* strides, uint32_t element) {
  int64_t offset = 0;
  for_each_coordinate(nest, element, [&](int d, uint32_t at) { offset += static_cast<int64_t>(at) * strides[d]; });
  return offset;
}

template <class Veu>
RK_BODY void max_unpool(const Task<Veu>& caller) {
  const Task<Veu> task = caller;  // in registers: the caller's is in its stack frame
  const MaxUnpoolArgs& args = task.template arguments<MaxUnpoolArgs>();
  float* const out = task.address(args.out);
  const float* const in = task.address(args.in);
  const uint64_t* const indices = reinterpret_cast<const uint64_t*>(task.address(args.indices));
  const uint32_t begin = task.index * args.elements_per_rtask, end = min(begin + args.elements_per_rtask, args.elements);
#pragma unroll 1
  for (uint32_t element = begin + threadIdx.x; element < end; element += Veu::kComputeThreads)
    store1(out + unpool_offset(args.out_nest, args.out_strides, element), 0.0f);
  sync_compute<Veu>();
#pragma unroll 1
  for (uint32_t element = threadIdx.x; element < args.elements_in; element += Veu::kComputeThreads) {
    const uint64_t index = load_cell(indices + unpool_offset(args.index_nest, args.index_strides, element));
    if (index < begin || index >= end) continue;  // a negative one is far outside
    const float value = load1(in + unpool_offset(args.in_nest, args.in_strides, element));
    store1(out + unpool_offset(args.out_nest, args.out_strides, static_cast<uint32_t>(index)), value);
  }
}

}  // namespace rk
