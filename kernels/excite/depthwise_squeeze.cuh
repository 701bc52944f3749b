// ChannelSqueeze of a depthwise convolution's result, which is stored as well: y = act(sum of x * filter + bias). A rTask as in
// squeeze.cuh; a thread has kPixels neighbouring results of a row at a time, of kVector channels. Filters are square, without dilation, and
// come through the ring, in fp32, with the bias and the product's weights behind them. In: of x in memory; Out: of y.
#pragma once

#include "kernels/conv/lean_epilogue.cuh"
#include "kernels/excite/squeeze.cuh"
#include "kernels/vdevice/window.cuh"

namespace rk {

struct DepthwiseSqueezeArgs {
  TensorRef in, out;
  SqueezeProductArgs product;
  int32_t in_strides[4], out_strides[4];  // image, channel, row, column
  int32_t height, width, out_height, out_width;
  int32_t pad[2];
  int32_t rows;           // of a tile
  Divisor column_blocks;  // of kPixels
  int32_t activation;
  float a, b;
};
static_assert(sizeof(DepthwiseSqueezeArgs) <= 768, "an argument slot has 768 bytes");

// Four at a time where networks have it; what is rarer is out of line.
RK_INLINE float4 squeeze_activate(int32_t kind, const float4& v, float a, float b) {
  const auto silu = [](float x) { return x * reciprocal_fast(1.0f + exp2_fast(x * -kLog2E)); };
  const auto hard_swish = [](float x) { return x * clip(x * (1.0f / 6.0f) + 0.5f, 0.0f, 1.0f); };
  if (kind == kNone) return v;
  if (kind == kRelu) return float4{relu(v.x), relu(v.y), relu(v.z), relu(v.w)};
  if (kind == kSilu) return float4{silu(v.x), silu(v.y), silu(v.z), silu(v.w)};
  if (kind == kHardSwish) return float4{hard_swish(v.x), hard_swish(v.y), hard_swish(v.z), hard_swish(v.w)};
  return activate4(kind, v, a, b);
}

template <int kVector>
RK_INLINE float4 squeeze_filter(const float* p) {
  if constexpr (kVector == 4)
    return *reinterpret_cast<const float4*>(p);
  else
    return float4{*p, 0.0f, 0.0f, 0.0f};
}

// `in`: the channels' first pixel; `filter`: of the first tap. Pixels share the elements that they load.
template <int kVector, int kTaps, int kStride, int kPixels, class In>
RK_INLINE void squeeze_convolve(const DepthwiseSqueezeArgs& args, const In* in, const float* filter, int32_t top, int32_t left,
                                float4 (&acc)[kPixels]) {
  constexpr int kSeen = (kPixels - 1) * kStride + kTaps;
  const int32_t height = args.height, width = args.width, row_stride = args.in_strides[2], column_stride = args.in_strides[3];
  // The loads of a small filter's rows are all under way together; a large one would run out of registers.
#pragma unroll(kTaps <= 3 ? kTaps : 1)
  for (int ky = 0; ky < kTaps; ++ky) {
    const int32_t y = top + ky;
    const bool row = y >= 0 && y < height;
    float4 x[kSeen];
#pragma unroll
    for (int i = 0; i < kSeen; ++i) {
      const int32_t column = left + i;
      x[i] = splat(0.0f);
      if (row && column >= 0 && column < width) x[i] = load_channels<kVector>(in + y * row_stride + column * column_stride);
    }
#pragma unroll
    for (int kx = 0; kx < kTaps; ++kx) {
      const float4 weight = squeeze_filter<kVector>(filter + (ky * kTaps + kx) * kExciteChannels);
#pragma unroll
      for (int p = 0; p < kPixels; ++p) add_product(acc[p], x[p * kStride + kx], weight);
    }
  }
}

template <class Veu, int kVector, int kTaps, int kStride, int kPixels, bool NARROW, class In = float, class Out = float>
RK_BODY void depthwise_squeeze(const Task<Veu>& caller) {
  const Task<Veu> task = caller;  // in registers: the caller's is in its stack frame
  constexpr int kLanes = kExciteChannels / kVector;
  constexpr uint32_t kItems = Veu::kComputeThreads / kLanes;  // at the same time
  const DepthwiseSqueezeArgs& args = task.template arguments<DepthwiseSqueezeArgs>();
  const SqueezePlace place = squeeze_place(args.product, task.index);
  const uint32_t thread = threadIdx.x;
  const int in_block = static_cast<int>(thread % kLanes) * kVector, channel = place.block * kExciteChannels + in_block;
  const int first_row = place.tile * args.rows, left = args.product.channels - channel;
  const uint32_t end = left > 0 ? static_cast<uint32_t>(min(args.rows, args.out_height - first_row)) * args.column_blocks.divisor : 0;
  const In* const in = values_at<In>(task, args.in) + static_cast<int64_t>(place.image) * args.in_strides[0] + channel * args.in_strides[1];
  Out* const out = values_at<Out>(task, args.out) + static_cast<int64_t>(place.image) * args.out_strides[0] + channel * args.out_strides[1];
  WeightPipe<Veu> weights = task.weights;
  const char* const stage = as_shared(weights.acquire());
  const float* const filter = reinterpret_cast<const float*>(stage) + in_block;
  const float4 bias = squeeze_filter<kVector>(filter + kTaps * kTaps * kExciteChannels);
  float4 sum = splat(0.0f);
#pragma unroll 1
  for (uint32_t item = thread / kLanes; item < end; item += kItems) {
    uint32_t column_block;
    const int32_t row = first_row + static_cast<int32_t>(divide(item, args.column_blocks, column_block));
    const int32_t column = static_cast<int32_t>(column_block) * kPixels;
    float4 acc[kPixels];
#pragma unroll
    for (int p = 0; p < kPixels; ++p) acc[p] = bias;
    squeeze_convolve<kVector, kTaps, kStride, kPixels>(args, in, filter, row * kStride - args.pad[0], column * kStride - args.pad[1], acc);
    Out* to = out + row * args.out_strides[2] + column * args.out_strides[3];
    const int32_t pixels = min(args.out_width - column, kPixels);
    // Not unrolled; the accumulators move up instead of being picked by an index.
#pragma unroll 1
    for (int32_t p = 0; p < pixels; ++p, to += args.out_strides[3]) {
      const float4 v = squeeze_activate(args.activation, acc[0], args.a, args.b);
      if constexpr (kVector == 4)
        store_left(to, left, v);
      else
        store1(to, v.x);
      squeeze_add(sum, v);
#pragma unroll
      for (int i = 0; i + 1 < kPixels; ++i) acc[i] = acc[i + 1];
    }
  }
  squeeze_finish<Veu, kVector, NARROW>(task, args.product, place, weights, stage, sum);
}

}  // namespace rk
