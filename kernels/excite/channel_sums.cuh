// The first half of squeeze-and-excite in quantised networks: a rTask adds up 32 channels of a tile of whole rows, as in squeeze.cuh, alone
// or of a depthwise convolution that makes the map. It stores the sums, a TileSums (compiler/ir/ops.h), for excite_rounded_of_sums
// (excite.cuh). Or, with kSqueezes, where a tile is the whole map, it rounds the means and multiplies them by the weights, for
// excite_rounded: of many channels the weights are more than each rTask of that should read.
//
// depthwise_sums: results of the convolution are rounded, and with kTable they are what a table says of them (kernels/tile/requantised.h).
// A rTask is as in depthwise_squeeze.cuh. In, Out: the types of the map's whole numbers in memory.
//
// Example: 3 blocks and 4 tiles: rTask 17 stores the sums of tile 1 of channels 32 to 63 of image 1.
#pragma once

#include "kernels/excite/depthwise_squeeze.cuh"

namespace rk {

struct SumsArgs {  // in tables
  TensorRef sums;
  int32_t sums_image, sums_part, channels;  // strides of images and parts; that of channels is 1
  float low;                                // the number that a byte of 0 is; else 0
  Divisor tiles, blocks;                    // rTask = (image * blocks + block) * tiles + tile
};
struct ChannelSumsArgs {  // in tables
  TensorRef in;
  SumsArgs sums;
  int32_t in_strides[4];  // image, channel, row, column
  int32_t height, rows;   // of a tile
  Divisor width;
  // kSqueezes:
  SqueezeProductArgs product;
  SqueezeRounding mean;  // of a channel's sum
};

struct DepthwiseSumsArgs {          // in tables
  alignas(16) uint32_t outside[4];  // what is read where there is no input
  TensorRef in, out;
  SumsArgs sums;
  int32_t in_strides[4], out_strides[4];  // image, channel, row, column
  int32_t height, width, out_height, out_width;
  int32_t pad[2];
  int32_t rows;           // of a tile
  Divisor column_blocks;  // of kPixels
  float a, b;             // the least and the greatest result
  TensorRef table;        // of the results from a on, as they are stored
  // kSqueezes:
  SqueezeProductArgs product;
  SqueezeRounding mean;  // of a channel's sum
};

// The end of a rTask with a tile of `pixels` pixels. `sum`: what the thread has added up of its channels, as they lie in memory. `weights`,
// `stage`: as in squeeze_finish.
template <class Veu, int kVector, bool kSqueezes, class Args>
RK_INLINE void finish_sums(const Task<Veu>& task, const Args& args, const SqueezePlace& place, WeightPipe<Veu>& weights, const char* stage,
                           int pixels, const float4& sum) {
  const SumsArgs& sums = args.sums;
  const float low = sums.low * static_cast<float>(pixels);
  if constexpr (kSqueezes) {
    squeeze_finish<Veu, kVector, true>(task, args.product, place, weights, stage, sum,
                                       [&](float all) { return squeeze_rounded_to(args.mean, all + low); });
  } else {
    const float all = squeeze_total<Veu, kVector>(task.template work_as<float>(), sum);
    const int thread = static_cast<int>(threadIdx.x), channel = place.block * kExciteChannels + thread;
    if (thread >= kExciteChannels || channel >= sums.channels) return;
    float* const to = task.address(sums.sums) + static_cast<int64_t>(place.image) * sums.sums_image + place.tile * sums.sums_part;
    store1(to + channel, all + low);
  }
}

template <class Veu, int kVector, bool kSqueezes, class In = float, int kAhead = kExciteAhead>
RK_BODY void channel_sums(const Task<Veu>& caller) {
  const Task<Veu> task = caller;  // in registers; the caller's copy is in memory
  const ChannelSumsArgs& args = task.template arguments<ChannelSumsArgs>();
  const SqueezePlace place = squeeze_place<kVector>(args.sums, task.index);
  const float4 sum = squeeze_pixels<Veu, kVector, In, kAhead>(task, args, place, args.sums.channels);
  const int pixels = min(args.rows, args.height - place.tile * args.rows) * static_cast<int>(args.width.divisor);
  WeightPipe<Veu> weights = task.weights;
  const char* stage = nullptr;
  if constexpr (kSqueezes) stage = as_shared(weights.acquire());
  finish_sums<Veu, kVector, kSqueezes>(task, args, place, weights, stage, pixels, sum);
}

template <class Veu, int kTaps, int kStride, int kPixels, int kParts, bool kSqueezes, class In = float, class Out = float,
          bool kTable = false>
RK_BODY void depthwise_sums(const Task<Veu>& caller) {
  const Task<Veu> task = caller;  // in registers; the caller's copy is in memory
  const DepthwiseSumsArgs& args = task.template arguments<DepthwiseSumsArgs>();
  const SqueezePlace place = squeeze_place<4>(args.sums, task.index);
  WeightPipe<Veu> weights = task.weights;
  const char* const stage = as_shared(weights.acquire());
  // In registers, since behind a store arguments would be read again.
  const float least = args.a, most = args.b, low = sizeof(Out) == 1 ? args.sums.low : 0.0f;
  NumberTable table{};
  if constexpr (kTable) table = {task.address(args.table), least};
  const float4 sum = depthwise_items<Veu, 4, kTaps, kStride, kPixels, kParts, In, Out>(
      task, args, place, args.sums.channels - place.channel, reinterpret_cast<const float*>(stage) + place.in_block, args.outside,
      [=](const float4& sums) {
        const float4 v = {rounded(sums.x, least, most), rounded(sums.y, least, most), rounded(sums.z, least, most),
                          rounded(sums.w, least, most)};
        if constexpr (kTable) return table.of(v);
        return float4{v.x - low, v.y - low, v.z - low, v.w - low};
      });
  const int pixels = min(args.rows, args.out_height - place.tile * args.rows) * args.out_width;
  finish_sums<Veu, 4, kSqueezes>(task, args, place, weights, stage, pixels, sum);
  if constexpr (!kSqueezes) weights.release();
}

}  // namespace rk
