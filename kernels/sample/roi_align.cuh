// y[r,c] = x[batch[r],c] in the bins of rectangle rois[r]: for each bin the mean (or the largest term) of x at some places of the bin,
// interpolated between pixels. Element by element in the output's memory order; kernels/shared/regions.h says where the places are.
// Example: 2 x 2 bins of 3 channels, dense. Element 17 is bin (0, 1) of channel 1 of rectangle 1; x is read from channel 1 of image
// batch[1].
#pragma once

#include "kernels/shared/regions.h"
#include "kernels/vdevice/cells.cuh"

namespace rk {

struct RoiAlignArgs {  // in tables
  TensorRef in, rois, batch, out;
  Nest nest;  // of the output
  int32_t out_strides[kNestRank];
  int32_t channel_strides[kNestRank];                                              // in x; 0 along what is no channel
  int32_t region_steps[kNestRank], row_steps[kNestRank], column_steps[kNestRank];  // 1 along the dimension that they are named after
  int32_t images, height, width;                                                   // of x
  int32_t image_stride, row_stride, column_stride;
  int32_t roi_strides[2], batch_stride;
  int32_t rows, columns, sampling_ratio, half_pixel;
  float spatial_scale;
  uint32_t elements, elements_per_rtask;
};

struct RoiTotal {
  float sum, largest;

  RK_INLINE void take(float term) {
    sum += term;
    largest = term != term || term > largest ? term : largest;
  }
};

template <bool kLargest>
RK_INLINE float roi_bin(const RoiAlignArgs& args, const float* image, const RegionSide& ys, const RegionSide& xs, int32_t row,
                        int32_t column) {
  if (ys.samples == 0 || xs.samples == 0) return 0.0f;
  RoiTotal total{0.0f, -INFINITY};
#pragma unroll 1
  for (int32_t iy = 0; iy < ys.samples; ++iy) {
    const RegionPixels y = region_pixels(region_place(ys, row, iy), args.height);
#pragma unroll 1
    for (int32_t ix = 0; ix < xs.samples; ++ix) {
      const RegionPixels x = region_pixels(region_place(xs, column, ix), args.width);
      if (y.low < 0 || x.low < 0) {
        total.take(0.0f);
        continue;
      }
      const float* const low = image + static_cast<int64_t>(y.low) * args.row_stride;
      const float* const high = image + static_cast<int64_t>(y.high) * args.row_stride;
      const int64_t left = static_cast<int64_t>(x.low) * args.column_stride, right = static_cast<int64_t>(x.high) * args.column_stride;
      const float v[4] = {load1(low + left), load1(low + right), load1(high + left), load1(high + right)};
      total.take((1.0f - y.weight) * (1.0f - x.weight) * v[0]);
      total.take((1.0f - y.weight) * x.weight * v[1]);
      total.take(y.weight * (1.0f - x.weight) * v[2]);
      total.take(y.weight * x.weight * v[3]);
    }
  }
  return kLargest ? total.largest : total.sum / static_cast<float>(ys.samples * xs.samples);
}

template <class Veu, bool kLargest>
RK_BODY void roi_align(const Task<Veu>& caller) {
  const Task<Veu> task = caller;  // a copy in registers, since the caller's task is in a stack frame
  const RoiAlignArgs& args = task.template arguments<RoiAlignArgs>();
  const uint32_t end = min((task.index + 1) * args.elements_per_rtask, args.elements);
#pragma unroll 1
  for (uint32_t element = task.index * args.elements_per_rtask + threadIdx.x; element < end; element += Veu::kComputeThreads) {
    const auto [to, channel, region, row, column] =
        nest_offsets(args.nest, element, args.out_strides, args.channel_strides, args.region_steps, args.row_steps, args.column_steps).of;
    const float* const roi = task.address(args.rois) + region * args.roi_strides[0];
    const int64_t step = args.roi_strides[1];
    const bool half = args.half_pixel != 0;
    const RegionSide xs = region_side(load1(roi), load1(roi + 2 * step), args.spatial_scale, half, args.columns, args.sampling_ratio);
    const RegionSide ys = region_side(load1(roi + step), load1(roi + 3 * step), args.spatial_scale, half, args.rows, args.sampling_ratio);
    const int32_t image = region_image(load1(task.address(args.batch) + region * args.batch_stride), args.images);
    const float* const in = task.address(args.in) + (channel + static_cast<int64_t>(image) * args.image_stride);
    store1(task.address(args.out) + to, roi_bin<kLargest>(args, in, ys, xs, static_cast<int32_t>(row), static_cast<int32_t>(column)));
  }
}

}  // namespace rk
