// y = conv(x, w) + bias of elements of any type: exact and wrapping for integers, in double for floats. Two spatial dimensions; if the
// model has one, the height is 1. One result a thread.
//
// Example: 4 input channels and 6 outputs in 2 groups: group_channels 2, group_outputs 3. Output channel 4 is in group 4 / 3 = 1 and reads
// input channels from 1 * 2 = 2 on, 2 and 3. With 3 taps, stride 2 and padding 1, output row 5 reads input rows 9, 10 and 11.
#pragma once

#include "kernels/vdevice/cells.cuh"

namespace rk {

struct TypedConvArgs {               // in tables
  TensorRef out, in, weights, bias;  // no bias: null
  Nest nest;                         // of the output: image, channel, row, column
  int32_t out_strides[4], in_strides[4], weight_strides[4];
  int32_t bias_stride;
  int32_t height, width;                              // of the input
  int32_t group_channels, group_outputs;              // input and output channels of a group
  int32_t kernel[2], stride[2], dilation[2], pad[2];  // row, column
  uint32_t type;
  uint32_t elements, elements_per_rtask;
};

template <class Veu, class T>
RK_BODY void typed_conv(const Task<Veu>& caller) {
  const Task<Veu> task = caller;  // a copy in registers, since the caller's task is in a stack frame
  const TypedConvArgs& args = task.template arguments<TypedConvArgs>();
  const void* const in = task.address(args.in);
  const void* const weights = task.address(args.weights);
  const uint32_t end = min((task.index + 1) * args.elements_per_rtask, args.elements);
#pragma unroll 1
  for (uint32_t element = task.index * args.elements_per_rtask + threadIdx.x; element < end; element += Veu::kComputeThreads) {
    int32_t at[4] = {};
    int64_t to = 0;
    for_each_coordinate(args.nest, element, [&](int d, uint32_t c) {
      at[d] = static_cast<int32_t>(c);
      to += static_cast<int64_t>(c) * args.out_strides[d];
    });
    const int32_t first = at[1] / args.group_outputs * args.group_channels;
    T sum{};
    if (args.bias.base != kNullBase)
      sum = load_number<T>(task.address(args.bias), static_cast<int64_t>(at[1]) * args.bias_stride, args.type);
#pragma unroll 1
    for (int32_t c = 0; c < args.group_channels; ++c) {
#pragma unroll 1
      for (int32_t ky = 0; ky < args.kernel[0]; ++ky) {
        const int32_t y = at[2] * args.stride[0] - args.pad[0] + ky * args.dilation[0];
        if (y < 0 || y >= args.height) continue;
#pragma unroll 1
        for (int32_t kx = 0; kx < args.kernel[1]; ++kx) {
          const int32_t x = at[3] * args.stride[1] - args.pad[1] + kx * args.dilation[1];
          if (x < 0 || x >= args.width) continue;
          const int64_t from = static_cast<int64_t>(at[0]) * args.in_strides[0] + static_cast<int64_t>(first + c) * args.in_strides[1] +
                               static_cast<int64_t>(y) * args.in_strides[2] + static_cast<int64_t>(x) * args.in_strides[3];
          const int64_t by = static_cast<int64_t>(at[1]) * args.weight_strides[0] + static_cast<int64_t>(c) * args.weight_strides[1] +
                             static_cast<int64_t>(ky) * args.weight_strides[2] + static_cast<int64_t>(kx) * args.weight_strides[3];
          sum = functions::sum(sum, functions::product(load_number<T>(in, from, args.type), load_number<T>(weights, by, args.type)));
        }
      }
    }
    store_number(task.address(args.out), to, args.type, sum);
  }
}

}  // namespace rk
