// y[n,c,i] = x[n,c] at the place grid[n,i], interpolated between the pixels around it: element by element in the output's memory order.
// kMode is a SampleMode. Along each axis there are SampleTaps::kCount neighbouring pixels with a weight each; the place of a neighbour
// outside of x is -1. Example: linear, an extent of 4, not align_corners: place 0.0 is pixel ((0 + 1) * 4 - 1) / 2 = 1.5, so the
// neighbours are pixels 1 and 2 with weights 0.5 and 0.5.
#pragma once

#include "kernels/sample/numbers.cuh"
#include "kernels/vdevice/cells.cuh"

namespace rk {

struct GridSampleArgs {  // in tables
  TensorRef in, grid, out;
  Nest nest;  // of the output
  int32_t out_strides[kSampleRank];
  int32_t in_strides[kSampleRank];    // of batch and channel; 0 along the output's pixels
  int32_t grid_strides[kSampleRank];  // of batch and pixel; 0 along channels
  uint32_t elements, elements_per_rtask;
  int32_t height, width, row_stride, column_stride;  // of x
  int32_t coordinate_stride;                         // from x to y in the grid
  int32_t padding;                                   // a SamplePadding
  int32_t align_corners;
  int32_t in_pixels;  // the grid's places are pixels of x already
};

template <int kMode>
struct SampleTaps {
  static constexpr int kCount = kMode == kSampleLinear ? 2 : kMode == kSampleNearest ? 1 : 4;
  int32_t at[kCount];
  float weight[kCount];
};

RK_INLINE float sample_reflect(float x, float low, float high) {
  const float span = high - low;
  if (!(span > 0.0f)) return low;
  const float rest = fmodf(fabsf(x - low), 2.0f * span);
  return low + (rest <= span ? rest : 2.0f * span - rest);
}

RK_INLINE float sample_pad(float x, int32_t extent, int32_t padding, bool align_corners) {
  const float last = static_cast<float>(extent - 1);
  if (padding == kSampleReflection) x = align_corners ? sample_reflect(x, 0.0f, last) : sample_reflect(x, -0.5f, last + 0.5f);
  if (padding != kSampleZeros) x = fminf(fmaxf(x, 0.0f), last);  // NaN gives 0
  return x;
}

RK_INLINE int32_t sample_inside(float x, int32_t extent) {
  return x >= 0.0f && x <= static_cast<float>(extent - 1) ? static_cast<int32_t>(x) : -1;
}

// Keys' cubic convolution with a = -0.75: weights of neighbours nearer than 1, and between 1 and 2.
RK_INLINE float cubic_near(float x) { return (1.25f * x - 2.25f) * x * x + 1.0f; }
RK_INLINE float cubic_far(float x) { return ((-0.75f * x + 3.75f) * x - 6.0f) * x + 3.0f; }

template <int kMode>
RK_INLINE SampleTaps<kMode> sample_taps(float place, int32_t extent, int32_t padding, bool align_corners, bool in_pixels) {
  const float n = static_cast<float>(extent);
  float x = in_pixels ? place : align_corners ? (place + 1.0f) * 0.5f * (n - 1.0f) : ((place + 1.0f) * n - 1.0f) * 0.5f;
  SampleTaps<kMode> taps;
  if (kMode == kSampleNearest) {
    taps.at[0] = sample_inside(sample_pad(rintf(x), extent, padding, align_corners), extent);
    taps.weight[0] = 1.0f;
  } else if (kMode == kSampleLinear) {
    x = sample_pad(x, extent, padding, align_corners);
    const float whole = floorf(x);
    taps.at[0] = sample_inside(whole, extent);
    taps.at[SampleTaps<kMode>::kCount - 1] = sample_inside(whole + 1.0f, extent);
    taps.weight[0] = whole + 1.0f - x;
    taps.weight[SampleTaps<kMode>::kCount - 1] = x - whole;
  } else {
    const float whole = floorf(x), t = x - whole;
#pragma unroll
    for (int i = 0; i < SampleTaps<kMode>::kCount; ++i) {
      const float distance = fabsf(static_cast<float>(i - 1) - t);
      taps.at[i] = sample_inside(sample_pad(whole + static_cast<float>(i - 1), extent, padding, align_corners), extent);
      taps.weight[i] = i == 1 || i == 2 ? cubic_near(distance) : cubic_far(distance);
    }
  }
  return taps;
}

template <int kMode>
RK_INLINE float sample(const GridSampleArgs& args, const float* image, float x, float y) {
  constexpr int kCount = SampleTaps<kMode>::kCount;
  const bool align = args.align_corners != 0, pixels = args.in_pixels != 0;
  const SampleTaps<kMode> columns = sample_taps<kMode>(x, args.width, args.padding, align, pixels);
  const SampleTaps<kMode> rows = sample_taps<kMode>(y, args.height, args.padding, align, pixels);
  float sum = 0.0f;
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    float v[kCount];
#pragma unroll
    for (int j = 0; j < kCount; ++j) {
      const bool inside = rows.at[i] >= 0 && columns.at[j] >= 0;
      v[j] = 0.0f;
      if (inside)
        v[j] = load1(image + static_cast<int64_t>(rows.at[i]) * args.row_stride + static_cast<int64_t>(columns.at[j]) * args.column_stride);
    }
#pragma unroll
    for (int j = 0; j < kCount; ++j) {
      if (rows.at[i] >= 0 && columns.at[j] >= 0) sum += rows.weight[i] * columns.weight[j] * v[j];
    }
  }
  return sum;
}

template <class Veu, int kMode>
RK_BODY void grid_sample(const Task<Veu>& caller) {
  const Task<Veu> task = caller;  // a copy in registers, since the caller's task is in a stack frame
  const GridSampleArgs& args = task.template arguments<GridSampleArgs>();
  const uint32_t end = min((task.index + 1) * args.elements_per_rtask, args.elements);
#pragma unroll 1
  for (uint32_t element = task.index * args.elements_per_rtask + threadIdx.x; element < end; element += Veu::kComputeThreads) {
    const auto [to, from, place] = nest_offsets(args.nest, element, args.out_strides, args.in_strides, args.grid_strides).of;
    const float* const grid = task.address(args.grid) + place;
    const float x = load1(grid), y = load1(grid + args.coordinate_stride);
    store1(task.address(args.out) + to, sample<kMode>(args, task.address(args.in) + from, x, y));
  }
}

}  // namespace rk
