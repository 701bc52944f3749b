// y = x * (bias + alpha_over_size * sum of x^2 over channels c - before .. c + after)^-beta, element by element in the
// output's memory order.
//
// Example: 8 channels, before 2, after 2. Channel 1 adds the squares of channels 0 to 3, channel 6 those of 4 to 7.
#pragma once

#include "kernels/reduce/numbers.cuh"
#include "kernels/vdevice/cells.cuh"

namespace rk {

struct LrnArgs {  // in tables
  TensorRef in, out;
  Nest nest;  // of the output
  int32_t in_strides[kLrnRank], out_strides[kLrnRank];
  uint32_t elements, elements_per_rtask;
  int32_t channel_dim;  // which of the dimensions
  int32_t channels, channel_stride;
  int32_t before, after;
  float bias, alpha_over_size, beta;
};

// The sum of squares of channels [first, last]; kBatch loads under way.
RK_INLINE float lrn_squares(const float* channel0, int32_t stride, int32_t first, int32_t last) {
  constexpr int kBatch = 5;
  float sum = 0.0f;
#pragma unroll 1
  for (int32_t c = first; c <= last; c += kBatch) {
    float x[kBatch];
#pragma unroll
    for (int b = 0; b < kBatch; ++b) x[b] = c + b <= last ? load1(channel0 + static_cast<int64_t>(c + b) * stride) : 0.0f;
#pragma unroll
    for (int b = 0; b < kBatch; ++b) sum += x[b] * x[b];
  }
  return sum;
}

template <class Veu>
RK_BODY void lrn(const Task<Veu>& caller) {
  const Task<Veu> task = caller;  // a copy in registers, since the caller's task is in a stack frame
  const LrnArgs& args = task.template arguments<LrnArgs>();
  const uint32_t end = min((task.index + 1) * args.elements_per_rtask, args.elements);
#pragma unroll 1
  for (uint32_t element = task.index * args.elements_per_rtask + threadIdx.x; element < end; element += Veu::kComputeThreads) {
    int64_t from = 0, to = 0;
    int32_t channel = 0;
    for_each_coordinate(args.nest, element, [&](int d, uint32_t at) {
      from += static_cast<int64_t>(at) * args.in_strides[d];
      to += static_cast<int64_t>(at) * args.out_strides[d];
      if (d == args.channel_dim) channel = static_cast<int32_t>(at);
    });
    const float* const in = task.address(args.in) + from;
    const int32_t first = channel > args.before ? channel - args.before : 0;
    const int32_t last = channel + args.after < args.channels ? channel + args.after : args.channels - 1;
    const float sum = lrn_squares(in - static_cast<int64_t>(channel) * args.channel_stride, args.channel_stride, first, last);
    store1(task.address(args.out) + to, load1(in) * powf(args.bias + args.alpha_over_size * sum, -args.beta));
  }
}

}  // namespace rk
