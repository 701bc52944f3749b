// y[r,c] = the largest pixel of each bin of rectangle rois[r] of x: element by element in the output's memory order;
// kernels/shared/regions.h says where the bins are. If a bin has a NaN, the result is NaN.
// Example: 2 x 2 bins of 3 channels, dense. Element 17 is bin (0, 1) of channel 1 of rectangle 1, which begins at element 5 of `rois`, with
// the number of its image.
#pragma once

#include "kernels/shared/regions.h"
#include "kernels/vdevice/cells.cuh"

namespace rk {

struct MaxRoiPoolArgs {  // in tables
  TensorRef in, rois, out;
  Nest nest;  // of the output
  int32_t out_strides[kNestRank];
  int32_t channel_strides[kNestRank];                                              // in x; 0 along what is no channel
  int32_t region_steps[kNestRank], row_steps[kNestRank], column_steps[kNestRank];  // 1 along the dimension that they are named after
  int32_t images, height, width;                                                   // of x
  int32_t image_stride, row_stride, column_stride;
  int32_t roi_strides[2];
  int32_t rows, columns;
  float spatial_scale;
  uint32_t elements, elements_per_rtask;
};

template <class Veu>
RK_BODY void max_roi_pool(const Task<Veu>& caller) {
  const Task<Veu> task = caller;  // a copy in registers, since the caller's task is in a stack frame
  const MaxRoiPoolArgs& args = task.template arguments<MaxRoiPoolArgs>();
  const uint32_t end = min((task.index + 1) * args.elements_per_rtask, args.elements);
#pragma unroll 1
  for (uint32_t element = task.index * args.elements_per_rtask + threadIdx.x; element < end; element += Veu::kComputeThreads) {
    const auto [to, channel, region, row, column] =
        nest_offsets(args.nest, element, args.out_strides, args.channel_strides, args.region_steps, args.row_steps, args.column_steps).of;
    const float* const roi = task.address(args.rois) + region * args.roi_strides[0];
    const int64_t step = args.roi_strides[1];
    const RegionBin xs =
        region_bin(load1(roi + step), load1(roi + 3 * step), args.spatial_scale, static_cast<int32_t>(column), args.columns, args.width);
    const RegionBin ys =
        region_bin(load1(roi + 2 * step), load1(roi + 4 * step), args.spatial_scale, static_cast<int32_t>(row), args.rows, args.height);
    const float* const image =
        task.address(args.in) + (channel + static_cast<int64_t>(region_image(load1(roi), args.images)) * args.image_stride);
    float largest = -INFINITY;
#pragma unroll 1
    for (int32_t y = ys.begin; y < ys.end; ++y) {
#pragma unroll 1
      for (int32_t x = xs.begin; x < xs.end; ++x) {
        const float v = load1(image + static_cast<int64_t>(y) * args.row_stride + static_cast<int64_t>(x) * args.column_stride);
        largest = v != v || v > largest ? v : largest;
      }
    }
    store1(task.address(args.out) + to, ys.begin < ys.end && xs.begin < xs.end ? largest : 0.0f);
  }
}

}  // namespace rk
