// y = take(x, indices, axis) with indices that are known only at run time, for elements of any type. An index counts from the end if it is
// negative; one outside of x takes the nearest element that there is (docs/reference/models.md), so that no address leaves x. One
// element a thread.
#pragma once

#include "kernels/vdevice/cells.cuh"

namespace rk {

struct TypedGatherArgs {
  TensorRef out, in, indices;
  Nest nest;  // of the output
  int32_t out_strides[kNestRank], in_strides[kNestRank], index_strides[kNestRank];
  int32_t axis_stride;  // of x
  int32_t extent;       // of x along the axis
  uint32_t index_type;
  uint32_t elements, elements_per_rtask;
};
static_assert(sizeof(TypedGatherArgs) <= 768, "an argument slot has 768 bytes");

template <class Veu, class Cell>
RK_BODY void typed_gather(const Task<Veu>& caller) {
  const Task<Veu> task = caller;  // a copy in registers, since the caller's task is in a stack frame
  const TypedGatherArgs& args = task.template arguments<TypedGatherArgs>();
  const Cell* const in = reinterpret_cast<const Cell*>(task.address(args.in));
  Cell* const out = reinterpret_cast<Cell*>(task.address(args.out));
  const uint32_t end = min((task.index + 1) * args.elements_per_rtask, args.elements);
#pragma unroll 1
  for (uint32_t element = task.index * args.elements_per_rtask + threadIdx.x; element < end; element += Veu::kComputeThreads) {
    int64_t to = 0, from = 0, at_index = 0;
    for_each_coordinate(args.nest, element, [&](int d, uint32_t at) {
      to += static_cast<int64_t>(at) * args.out_strides[d];
      from += static_cast<int64_t>(at) * args.in_strides[d];
      at_index += static_cast<int64_t>(at) * args.index_strides[d];
    });
    int64_t index = load_number<int64_t>(task.address(args.indices), at_index, args.index_type);
    if (index < 0) index += args.extent;
    if (index >= args.extent) index = args.extent - 1;
    if (index < 0) index = 0;
    store_cell(out + to, load_cell(in + (from + index * args.axis_stride)));
  }
}

}  // namespace rk
