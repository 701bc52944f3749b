// Copies of elements of any type, bit by bit; Cell is an unsigned integer of the element's size. The elements are numbered by two nests,
// one for the input and one for the output, so that a Reshape needs no scratch. One element a thread.
// Example: a transposed [3, 2] input with strides 1, 3 copied to a dense [2, 3] output: element 4 is (1, 1) of the output's nest, offset 4,
// and (2, 0) of the input's nest, offset 2 * 1 + 0 * 3 = 2.
#pragma once

#include "kernels/vdevice/cells.cuh"

namespace rk {

struct TypedCopyArgs {  // in tables
  TensorRef out, in;
  Nest out_nest, in_nest;
  int32_t out_strides[kNestRank], in_strides[kNestRank];
  uint32_t elements, elements_per_rtask;
};

template <class Veu, class Cell>
RK_BODY void typed_copy(const Task<Veu>& caller) {
  const Task<Veu> task = caller;  // a copy in registers, since the caller's task is in a stack frame
  const TypedCopyArgs& args = task.template arguments<TypedCopyArgs>();
  const Cell* const in = reinterpret_cast<const Cell*>(task.address(args.in));
  Cell* const out = reinterpret_cast<Cell*>(task.address(args.out));
  const uint32_t end = min((task.index + 1) * args.elements_per_rtask, args.elements);
#pragma unroll 1
  for (uint32_t element = task.index * args.elements_per_rtask + threadIdx.x; element < end; element += Veu::kComputeThreads) {
    const Cell value = load_cell(in + nest_offsets(args.in_nest, element, args.in_strides).of[0]);
    store_cell(out + nest_offsets(args.out_nest, element, args.out_strides).of[0], value);
  }
}

}  // namespace rk
