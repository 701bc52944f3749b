// ChannelSqueeze of a depthwise convolution's result y = act(sum of x * filter + bias), which is stored as well. A rTask is a part as in
// squeeze.cuh. An item is kPixels neighbouring results of a row, of kVector channels; kParts threads compute it together
// (kernels/tile/depthwise_item.cuh). Filters are square, without dilation. The filters, the biases and the product's weights come through
// the ring in this order, filters and biases in fp32. In: the type of x in memory; Out: the type of y.
//
// Example: kVector 4, kPixels 7, kParts 4, 7 taps, 2 blocks of columns. Lane 13 of warp 3 has channels 20 to 23 of the block (13 % 8 *
// 4), items 3, 11, .., and of each item rows 1 and 5 of the filter (from 13 / 8 on, every fourth). Item 3 is columns 7 to 13 of the
// tile's row 1; at the end lane 13 has the sums of columns 9 and 10.
#pragma once

#include "kernels/excite/squeeze.cuh"
#include "kernels/tile/depthwise_item.cuh"

namespace rk {

struct DepthwiseSqueezeArgs {  // in tables
  alignas(16) float zeros[4];
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

// The activations that networks have here, four values at a time; the rarer ones are out of line.
RK_INLINE float4 squeeze_activate(int32_t kind, const float4& v, float a, float b) {
  if (kind == kNone) return v;
  if (kind == kRelu) return float4{relu(v.x), relu(v.y), relu(v.z), relu(v.w)};
  if (is_smooth(kind)) return smooth4(kind, v);
  return activate4(kind, v, a, b);
}

template <int kVector>
RK_INLINE float4 squeeze_filter(const float* p) {
  if constexpr (kVector == 4)
    return *reinterpret_cast<const float4*>(p);
  else
    return float4{*p, 0.0f, 0.0f, 0.0f};
}

// What the thread has to add up of the results, which it stores. `filter`: of the rTask's block, in shared memory; `outside`: 16 bytes,
// what is read where there is no input; `finish` makes of four sums with their bias what is stored and added up.
template <class Veu, int kVector, int kTaps, int kStride, int kPixels, int kParts, class In, class Out, class Args, class Finish>
RK_INLINE float4 depthwise_items(const Task<Veu>& task, const Args& args, const SqueezePlace& place, int32_t left, const float* filter,
                                 const void* outside, const Finish& finish) {
  using Parts = DepthwiseParts<kPixels, kParts>;
  constexpr int kLanes = kExciteChannels / kVector, kItems = Parts::kItems / kLanes;  // of a warp at the same time
  static_assert(kItems >= 1);
  const int first_row = place.tile * args.rows;
  // All threads of a warp stay in the loop together; threads behind the last item or the last channel load and store nothing.
  const uint32_t end = static_cast<uint32_t>(min(args.rows, args.out_height - first_row)) * args.column_blocks.divisor;
  const In* const in = squeeze_map<In>(task, args.in, args.in_strides, place);
  Out* const out = squeeze_map<Out>(task, args.out, args.out_strides, place);
  const DepthwiseMap map = {args.height, args.width, args.in_strides[2], args.in_strides[3], outside};
  // In registers, since behind a store arguments would be read again.
  const Divisor column_blocks = args.column_blocks;
  const int32_t out_row = args.out_strides[2], out_column = args.out_strides[3], out_width = args.out_width;
  const int32_t top = first_row * kStride - args.pad[0], before = args.pad[1];
  const float4 bias = Parts::part() == 0 ? squeeze_filter<kVector>(filter + kTaps * kTaps * kExciteChannels) : splat(0.0f);
  float4 sum = splat(0.0f);
  task.await_inputs();
#pragma unroll 1
  for (uint32_t first = static_cast<uint32_t>(warp_id() * kItems); first < end; first += kComputeWarps * kItems) {
    const uint32_t item = first + static_cast<uint32_t>(Parts::item() / kLanes);
    const bool exists = item < end && left > 0;
    uint32_t column_block;
    const int32_t row = static_cast<int32_t>(divide(item, column_blocks, column_block));  // of the tile
    int32_t column = static_cast<int32_t>(column_block) * kPixels;
    float4 acc[kPixels], own[Parts::kOwn];
#pragma unroll
    for (int p = 0; p < kPixels; ++p) acc[p] = bias;
    depthwise_products<kVector, kTaps, kStride, kPixels, kParts>(
        map, in, [=](int taps, int kx) { return squeeze_filter<kVector>(filter + (taps + kx) * kExciteChannels); }, exists,
        top + row * kStride, column * kStride - before, acc);
    Parts::add(acc, own);
    column += Parts::first();
    Out* to = out + (first_row + row) * out_row + column * out_column;
    const int32_t pixels = exists ? Parts::pixels(out_width - column) : 0;
    // Not unrolled: own[0] is stored, and the other sums move up, since an index would put them into memory.
#pragma unroll 1
    for (int32_t p = 0; p < pixels; ++p, to += out_column) {
      const float4 v = finish(own[0]);
      if constexpr (kVector == 4)
        store_left(to, left, v);
      else
        store1(to, v.x);
      squeeze_add(sum, v);
#pragma unroll
      for (int i = 0; i + 1 < Parts::kOwn; ++i) own[i] = own[i + 1];
    }
  }
  return sum;
}

template <class Veu, int kVector, int kTaps, int kStride, int kPixels, int kParts, bool NARROW, class In = float, class Out = float>
RK_BODY void depthwise_squeeze(const Task<Veu>& caller) {
  const Task<Veu> task = caller;  // in registers; the caller's copy is in memory
  const DepthwiseSqueezeArgs& args = task.template arguments<DepthwiseSqueezeArgs>();
  const SqueezePlace place = squeeze_place<kVector>(args.product, task.index);
  WeightPipe<Veu> weights = task.weights;
  const char* const stage = as_shared(weights.acquire());
  const int32_t activation = args.activation;
  const float a = args.a, b = args.b;
  const float4 sum = depthwise_items<Veu, kVector, kTaps, kStride, kPixels, kParts, In, Out>(
      task, args, place, args.product.channels - place.channel, reinterpret_cast<const float*>(stage) + place.in_block, args.zeros,
      [=](const float4& v) { return squeeze_activate(activation, v, a, b); });
  squeeze_finish<Veu, kVector, NARROW>(task, args.product, place, weights, stage, sum, [](float all) { return all; });
}

}  // namespace rk
