// y = x with other extents along up to three axes: y[o0,o1,o2] = sum over taps of w0 * w1 * w2 * x[i0,i1,i2], where each axis has a table
// of taps per output coordinate: an offset in x and a weight. Nearest, linear, cubic and antialiased resizing are tables. An item is one
// element, or four neighbours (kVector) that have all taps in common, in the output's memory order. kRows and kColumns are the numbers of
// taps of the two innermost axes; 0: as many as the arguments say.
// Example: doubling an axis of 2 pixels linearly, half-pixel centres, stride 1: output 1 lies at (1 + 0.5) / 2 - 0.5 = 0.25, so its two
// taps are offset 0 with weight 0.75 and offset 1 with weight 0.25.
#pragma once

#include "kernels/sample/numbers.cuh"
#include "kernels/vdevice/cells.cuh"
#include "kernels/vdevice/window.cuh"

namespace rk {

struct ResampleTap {
  int32_t at;  // elements from the axis's first; kResampleOutside: y is args.outside here
  float weight;
};

struct ResampleArgs {                                         // in tables
  TensorRef in, out, taps;                                    // taps: ResampleTap, packed
  Nest nest;                                                  // of the output, in items
  int32_t out_strides[kNestRank], in_strides[kNestRank];      // in_strides: 0 along the axes
  int32_t tap_strides[kResampleAxes][kNestRank];              // from one coordinate's taps to the next's; 0 along other dimensions
  uint32_t first_tap[kResampleAxes], taps_of[kResampleAxes];  // of each axis; an axis that is not used has one tap of weight 1
  uint32_t items, items_per_rtask;
  float outside;
};

RK_INLINE ResampleTap resample_tap(const ResampleTap* tap) {
  const uint2 bits = load_weight2(tap);
  ResampleTap loaded;
  loaded.at = static_cast<int32_t>(bits.x);
  memcpy(&loaded.weight, &bits.y, sizeof loaded.weight);
  return loaded;
}

template <int kVector, int kRows, int kColumns>
RK_INLINE float4 resample_sum(const ResampleArgs& args, const float* in, const ResampleTap* planes, const ResampleTap* rows,
                              const ResampleTap* columns) {
  const int row_count = kRows > 0 ? kRows : static_cast<int>(args.taps_of[1]);
  const int column_count = kColumns > 0 ? kColumns : static_cast<int>(args.taps_of[2]);
  const int plane_count = static_cast<int>(args.taps_of[0]);
  float4 sum = splat(0.0f);
#pragma unroll 1
  for (int p = 0; p < plane_count; ++p) {
    const ResampleTap plane = resample_tap(planes + p);
#pragma unroll
    for (int r = 0; r < row_count; ++r) {
      const ResampleTap row = resample_tap(rows + r);
      const float* const line = in + plane.at + row.at;
      float4 across = splat(0.0f);
#pragma unroll
      for (int c = 0; c < column_count; ++c) {
        const ResampleTap column = resample_tap(columns + c);
        add_product(across, load_channels<kVector>(line + column.at), splat(column.weight));
      }
      add_product(sum, across, splat(plane.weight * row.weight));
    }
  }
  return sum;
}

template <class Veu, int kVector, int kRows, int kColumns>
RK_BODY void resample(const Task<Veu>& caller) {
  const Task<Veu> task = caller;  // a copy in registers, since the caller's task is in a stack frame
  const ResampleArgs& args = task.template arguments<ResampleArgs>();
  const ResampleTap* const taps = reinterpret_cast<const ResampleTap*>(task.address(args.taps));
  const uint32_t end = min((task.index + 1) * args.items_per_rtask, args.items);
#pragma unroll 1
  for (uint32_t item = task.index * args.items_per_rtask + threadIdx.x; item < end; item += Veu::kComputeThreads) {
    const auto [to, from, plane, row, column] =
        nest_offsets(args.nest, item, args.out_strides, args.in_strides, args.tap_strides[0], args.tap_strides[1], args.tap_strides[2]).of;
    const ResampleTap* const first[kResampleAxes] = {taps + (args.first_tap[0] + plane), taps + (args.first_tap[1] + row),
                                                     taps + (args.first_tap[2] + column)};
    bool outside = false;
    for (const ResampleTap* const tap : first) outside |= resample_tap(tap).at == kResampleOutside;
    float4 sum = splat(args.outside);
    if (!outside) sum = resample_sum<kVector, kRows, kColumns>(args, task.address(args.in) + from, first[0], first[1], first[2]);
    if (kVector == 4)
      store4(task.address(args.out) + to, sum);
    else
      store1(task.address(args.out) + to, sum.x);
  }
}

}  // namespace rk
