// Pad, and Gather with constant indices, for elements of any type: kernels/elementwise/indexed_copy.cuh one element at a time, bit by bit.
#pragma once

#include "kernels/elementwise/indexed_copy.cuh"
#include "kernels/vdevice/cells.cuh"

namespace rk {

struct TypedPadArgs {  // in tables
  IndexedCopyArgs copy;
  uint32_t value_low, value_high;  // bits of the constant
};

template <class Veu, class Cell>
RK_BODY void typed_pad(const Task<Veu>& caller) {
  const Task<Veu> task = caller;  // a copy in registers, since the caller's task is in a stack frame
  const TypedPadArgs& args = task.template arguments<TypedPadArgs>();
  const Cell* const in = reinterpret_cast<const Cell*>(task.address(args.copy.in));
  Cell* const out = reinterpret_cast<Cell*>(task.address(args.copy.out));
  const float* const tables = task.address(args.copy.tables);
  const Cell value = static_cast<Cell>(static_cast<uint64_t>(args.value_high) << 32 | args.value_low);
  const uint32_t end = min((task.index + 1) * args.copy.items_per_rtask, args.copy.items);
#pragma unroll 1
  for (uint32_t item = task.index * args.copy.items_per_rtask + threadIdx.x; item < end; item += Veu::kComputeThreads) {
    const CopyPlace place = copy_place(args.copy, tables, item);
    store_cell(out + place.out, place.outside ? value : load_cell(in + place.in));
  }
}

}  // namespace rk
