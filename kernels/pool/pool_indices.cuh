// y = the place in x of the largest element of each window, as a number of 64 bits; one result a thread. There are three spatial
// dimensions; a dimension that x lacks has an extent of 1.
//
// Example: x f32[1,2,6,6], window 2x2, stride 2; counts are 72, 36, 36, 6, 1 for image, channel, plane, row, column. The result at
// channel 1, row 1, column 2 looks at rows 2 and 3, columns 4 and 5. If the largest is in row 3, column 5, it is 36 + 3 * 6 + 5 = 59.
#pragma once

#include "kernels/vdevice/cells.cuh"

namespace rk {

struct PoolIndicesArgs {  // in tables
  TensorRef out, in;
  Nest nest;  // of the output: image, channel, plane, row, column
  int32_t out_strides[5], in_strides[5];
  int64_t counts[5];  // what a step along each dimension of x adds to a number
  int32_t extents[3], kernel[3], stride[3], dilation[3], pad[3];
  uint32_t elements, elements_per_rtask;
};

// The taps of one dimension of a window that lie inside of x: `at` is the coordinate of the next one, `left` how many there are.
struct PoolTaps {
  int32_t at, step, left;

  RK_INLINE PoolTaps(const PoolIndicesArgs& args, int d, int32_t output) {
    at = output * args.stride[d] - args.pad[d];
    step = args.dilation[d];
    left = args.kernel[d];
    while (left > 0 && at < 0) next();
    const int32_t extent = args.extents[d];
    left = at >= extent ? 0 : min(left, (extent - 1 - at) / step + 1);
  }
  RK_INLINE void next() {
    at += step;
    --left;
  }
};

RK_INLINE int64_t pool_index(const PoolIndicesArgs& args, const float* image, const int32_t (&output)[5]) {
  int64_t found = 0;
  float best = 0.0f;
  bool any = false;
#pragma unroll 1
  for (PoolTaps z(args, 0, output[2]); z.left > 0; z.next()) {
#pragma unroll 1
    for (PoolTaps y(args, 1, output[3]); y.left > 0; y.next()) {
#pragma unroll 1
      for (PoolTaps x(args, 2, output[4]); x.left > 0; x.next()) {
        const float v = load1(image + static_cast<int64_t>(z.at) * args.in_strides[2] + static_cast<int64_t>(y.at) * args.in_strides[3] +
                              static_cast<int64_t>(x.at) * args.in_strides[4]);
        if (any && !(v > best || (v != v && best == best))) continue;
        any = true;
        best = v;
        found = z.at * args.counts[2] + y.at * args.counts[3] + x.at * args.counts[4];
      }
    }
  }
  return found + output[0] * args.counts[0] + output[1] * args.counts[1];
}

template <class Veu>
RK_BODY void pool_indices(const Task<Veu>& caller) {
  const Task<Veu> task = caller;  // a copy in registers, since the caller's task is in a stack frame
  const PoolIndicesArgs& args = task.template arguments<PoolIndicesArgs>();
  uint64_t* const out = reinterpret_cast<uint64_t*>(task.address(args.out));
  const uint32_t end = min((task.index + 1) * args.elements_per_rtask, args.elements);
#pragma unroll 1
  for (uint32_t element = task.index * args.elements_per_rtask + threadIdx.x; element < end; element += Veu::kComputeThreads) {
    int32_t at[5] = {};
    int64_t to = 0;
    for_each_coordinate(args.nest, element, [&](int d, uint32_t c) {
      at[d] = static_cast<int32_t>(c);
      to += static_cast<int64_t>(c) * args.out_strides[d];
    });
    const float* const image =
        task.address(args.in) + static_cast<int64_t>(at[0]) * args.in_strides[0] + static_cast<int64_t>(at[1]) * args.in_strides[1];
    store_cell(out + to, static_cast<uint64_t>(pool_index(args, image, at)));
  }
}

}  // namespace rk
