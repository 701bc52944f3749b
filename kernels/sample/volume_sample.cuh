// y[n,c,i] = x[n,c] at the place grid[n,i] of a volume: as grid_sample.cuh, and with its functions, but with three coordinates instead of
// two. kMode is linear or nearest.
// Example: a dense volume of 4 x 5 x 6 at depth 1.25, height 2.5, width 3.5. The eight terms go from element 1 * 30 + 2 * 6 + 3 = 45, with
// weight 0.75 * 0.5 * 0.5, to element 2 * 30 + 3 * 6 + 4 = 82, with weight 0.25 * 0.5 * 0.5.
#pragma once

#include "kernels/sample/grid_sample.cuh"
#include "kernels/vdevice/cells.cuh"

namespace rk {

struct VolumeSampleArgs {  // in tables
  TensorRef in, grid, out;
  Nest nest;  // of the output
  int32_t out_strides[kNestRank];
  int32_t in_strides[kNestRank];    // of batch and channel; 0 along the output's pixels
  int32_t grid_strides[kNestRank];  // of batch and pixel; 0 along channels
  int32_t extents[3], steps[3];     // of x: depth, height, width
  int32_t coordinate_stride;        // from x to y to z in the grid
  int32_t padding;                  // a SamplePadding
  int32_t align_corners;
  uint32_t elements, elements_per_rtask;
};

template <int kMode>
RK_INLINE float volume_sample_at(const VolumeSampleArgs& args, const float* image, const float* grid) {
  constexpr int kCount = SampleTaps<kMode>::kCount;
  SampleTaps<kMode> taps[3];
#pragma unroll
  for (int d = 0; d < 3; ++d) {
    const float place = load1(grid + static_cast<int64_t>(2 - d) * args.coordinate_stride);
    taps[d] = sample_taps<kMode>(place, args.extents[d], args.padding, args.align_corners != 0, /*in_pixels=*/false);
  }
  float sum = 0.0f;
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
#pragma unroll
    for (int j = 0; j < kCount; ++j) {
#pragma unroll
      for (int k = 0; k < kCount; ++k) {
        if (taps[0].at[i] < 0 || taps[1].at[j] < 0 || taps[2].at[k] < 0) continue;
        const int64_t from = static_cast<int64_t>(taps[0].at[i]) * args.steps[0] + static_cast<int64_t>(taps[1].at[j]) * args.steps[1] +
                             static_cast<int64_t>(taps[2].at[k]) * args.steps[2];
        sum += taps[0].weight[i] * taps[1].weight[j] * taps[2].weight[k] * load1(image + from);
      }
    }
  }
  return sum;
}

template <class Veu, int kMode>
RK_BODY void volume_sample(const Task<Veu>& caller) {
  const Task<Veu> task = caller;  // a copy in registers, since the caller's task is in a stack frame
  const VolumeSampleArgs& args = task.template arguments<VolumeSampleArgs>();
  const uint32_t end = min((task.index + 1) * args.elements_per_rtask, args.elements);
#pragma unroll 1
  for (uint32_t element = task.index * args.elements_per_rtask + threadIdx.x; element < end; element += Veu::kComputeThreads) {
    const auto [to, from, place] = nest_offsets(args.nest, element, args.out_strides, args.in_strides, args.grid_strides).of;
    store1(task.address(args.out) + to, volume_sample_at<kMode>(args, task.address(args.in) + from, task.address(args.grid) + place));
  }
}

}  // namespace rk
