// A copy that ends at lengths of run time (Pad with ends, docs/adr/0049-lengths.md): y[at] = x[at] where at[d] < ends[d] for all d, else a
// constant. Where x or y is packed, dense with the true extents of the run, its strides are those of the run, too; and a packed y has no
// elements behind the ends. A number of run time is a copy all of which lies behind its end. Elements of any type, bit by bit; Cell is an
// unsigned integer of the element's size. One element a thread. Example: x is [1,40,8] in a run of 40 of 512 rows, y is [1,512,8]: ends are
// 1, 40, 8, and element 327 of y, (0, 40, 7), is the constant.
#pragma once

#include "kernels/vdevice/cells.cuh"

namespace rk {

struct EndedCopyArgs {  // in tables
  TensorRef out, in;
  Nest nest;
  int32_t out_strides[kNestRank], in_strides[kNestRank];
  int32_t ends[kNestRank];
  uint32_t value_low, value_high;  // bits of the constant
  int32_t fills;                   // 0: nothing is stored behind the ends
  uint32_t elements, elements_per_rtask;
};

template <class Veu, class Cell>
RK_BODY void ended_copy(const Task<Veu>& caller) {
  const Task<Veu> task = caller;  // a copy in registers, since the caller's task is in a stack frame
  const EndedCopyArgs& args = task.template arguments<EndedCopyArgs>();
  const Cell* const in = reinterpret_cast<const Cell*>(task.address(args.in));
  Cell* const out = reinterpret_cast<Cell*>(task.address(args.out));
  const Cell value = static_cast<Cell>(static_cast<uint64_t>(args.value_high) << 32 | args.value_low);
  const uint32_t end = min((task.index + 1) * args.elements_per_rtask, args.elements);
#pragma unroll 1
  for (uint32_t element = task.index * args.elements_per_rtask + threadIdx.x; element < end; element += Veu::kComputeThreads) {
    int64_t from = 0, to = 0;
    bool exists = true;
    for_each_coordinate(args.nest, element, [&](int d, uint32_t at) {
      from += static_cast<int64_t>(at) * args.in_strides[d];
      to += static_cast<int64_t>(at) * args.out_strides[d];
      exists = exists && static_cast<int32_t>(at) < args.ends[d];
    });
    if (exists || args.fills != 0) store_cell(out + to, exists ? load_cell(in + from) : value);
  }
}

}  // namespace rk
