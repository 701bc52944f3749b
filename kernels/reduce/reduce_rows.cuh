// What reduce_sum.cuh and reduce_octets.cuh have in common. An item is WIDTH rows that lie next to each other.
#pragma once

#include "kernels/vdevice/task.cuh"
#include "kernels/vdevice/values.cuh"

namespace rk {

struct ReduceSumArgs {  // in tables
  TensorRef in, out;
  Divisor row_items;        // items of a row of the nest of kept elements (two dimensions at most)
  int32_t in_row, out_row;  // elements from one of its rows to the next
  int32_t out_step;         // from one kept element of a row to the next in the output
  int32_t stride;           // from one reduced element to the next
  uint32_t items, reduced;
  float scale;
};

// Element 0 of item `item` in a nest with these rows; items past the end repeat the last. Offsets are below 2^31 elements.
template <uint32_t WIDTH>
RK_INLINE uint32_t reduce_sum_offset(const ReduceSumArgs& args, uint32_t item, int32_t row_stride, int32_t step) {
  uint32_t column;
  const uint32_t row = divide(min(item, args.items - 1), args.row_items, column);
  return row * static_cast<uint32_t>(row_stride) + column * WIDTH * static_cast<uint32_t>(step);
}

}  // namespace rk
