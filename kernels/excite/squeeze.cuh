// ChannelSqueeze (compiler/ir/ops.h): s[image][r][part] = the sum over a part's channels and pixels of x * w[r][c] / pixels. r is a
// hidden value. A part is a block of 32 channels and a tile of rows of pixels; one rTask computes one part of one image. First the
// threads add up pixels: with kVector 4 a thread loads four channels of a pixel in one aligned access and 8 threads share a pixel, with
// kVector 1 32 threads do. Then the lanes of a warp and the warps are added in a fixed order. Last, the sums of the 32 channels are
// multiplied by the weights, four threads to a hidden value. Every row of weights has a scale, which includes 1 / pixels; NARROW: the
// weights are fp16 numbers. In: the type of x in memory.
//
// Example: with 3 blocks and 4 tiles rTask 17 is tile 1 of block 1 of image 1, part 1 * 4 + 1 = 5. With kVector 4 thread 77 adds up
// channels 20 to 23 of the block (77 % 8 * 4) of pixels 9 (77 / 8), 41, 73, .. of the tile. In the product it multiplies channels 8 to 15
// (77 % 4 * 8) by rows 19 (77 / 4), 83, .. of the chunk.
//
// The product with the weights is here, and not in excite, because the sums of all parts are less for excite's rTasks to read than all
// weights would be.
#pragma once

#include "kernels/excite/numbers.cuh"
#include "kernels/vdevice/epilogue.cuh"
#include "kernels/vdevice/half.cuh"
#include "kernels/vdevice/values.cuh"

namespace rk {

struct SqueezeProductArgs {  // in tables
  TensorRef sums;
  int32_t sums_image, sums_part;  // strides; the stride of hidden values is 1
  int32_t hidden, padded_hidden, channels;
  int32_t chunk_rows, chunks, chunk_first;  // of the ring; see squeeze_chunk_bytes
  Divisor tiles, blocks;                    // rTask = (image * blocks + block) * tiles + tile
};

struct SqueezeArgs {  // in tables
  TensorRef in;
  SqueezeProductArgs product;
  int32_t in_strides[4];  // image, channel, row, column
  int32_t height, rows;   // of a tile
  Divisor width;
};

// In quantised networks: what becomes of a number.
struct SqueezeRounding {  // in tables
  float scale, low, high;
};
RK_INLINE float squeeze_rounded_to(const SqueezeRounding& to, float x) { return rounded(x * to.scale, to.low, to.high); }

// Where a rTask is in the map, and where a thread is in the rTask's block of channels. Args: with the divisors tiles and blocks.
struct SqueezePlace {
  int32_t image, block, tile, part;
  int32_t in_block, channel;
};
template <int kVector, class Args>
RK_INLINE SqueezePlace squeeze_place(const Args& args, uint32_t index) {
  uint32_t tile, block;
  const uint32_t blocks = divide(index, args.tiles, tile), image = divide(blocks, args.blocks, block);
  const int32_t in_block = static_cast<int32_t>(threadIdx.x % (kExciteChannels / kVector)) * kVector;
  return {static_cast<int32_t>(image),
          static_cast<int32_t>(block),
          static_cast<int32_t>(tile),
          static_cast<int32_t>(block * args.tiles.divisor + tile),
          in_block,
          static_cast<int32_t>(block) * kExciteChannels + in_block};
}
// Where the thread's channels of the image's first pixel are.
template <class Value, class Veu>
RK_INLINE Value* squeeze_map(const Task<Veu>& task, const TensorRef& ref, const int32_t (&strides)[4], const SqueezePlace& place) {
  return values_at<Value>(task, ref) + static_cast<int64_t>(place.image) * strides[0] + place.channel * strides[1];
}

// kVector channels of a pixel as they are loaded.
template <int kVector, class In>
struct MapValue {
  Raw4<In> raw;
  RK_INLINE void load(const In* p) { raw = load_raw4(p); }
  RK_INLINE float4 floats() const { return raw.floats(); }
};
template <class In>
struct MapValue<1, In> {
  float value;
  RK_INLINE void load(const In* p) { value = load1(p); }
  RK_INLINE float4 floats() const { return float4{value, 0.0f, 0.0f, 0.0f}; }
};

RK_INLINE void squeeze_add(float4& sum, const float4& v) { sum = float4{sum.x + v.x, sum.y + v.y, sum.z + v.z, sum.w + v.w}; }

RK_INLINE float4 excite_four(uint32_t low, uint32_t high) {
  const float2 a = floats_of_halves(low), b = floats_of_halves(high);
  return float4{a.x, a.y, b.x, b.y};
}
RK_INLINE float excite_dot(float sum, const float4& a, const float4& b) {
  return fmaf(a.w, b.w, fmaf(a.z, b.z, fmaf(a.y, b.y, fmaf(a.x, b.x, sum))));
}

// Adds up what the threads have of their channels. Returns the sum of the block's channel `thread`, for the first threads.
template <class Veu, int kVector>
RK_INLINE float squeeze_total(float* of_warps, float4 sum) {
  static_assert(Veu::kComputeThreads == kExciteThreads);
  const int thread = static_cast<int>(threadIdx.x), lane = lane_id();
  if constexpr (kVector == 4) {
#pragma unroll
    for (int step = kExciteChannels / 4; step < kWarp; step *= 2) {
      squeeze_add(sum, float4{__shfl_xor_sync(kFullMask, sum.x, step), __shfl_xor_sync(kFullMask, sum.y, step),
                              __shfl_xor_sync(kFullMask, sum.z, step), __shfl_xor_sync(kFullMask, sum.w, step)});
    }
    if (lane < kExciteChannels / 4) reinterpret_cast<float4*>(of_warps)[warp_id() * (kExciteChannels / 4) + lane] = sum;
  } else {
    of_warps[warp_id() * kExciteChannels + lane] = sum.x;
  }
  sync_compute<Veu>();
  float all = 0.0f;
  if (thread < kExciteChannels) {
#pragma unroll
    for (int w = 0; w < kComputeWarps; ++w) all += of_warps[w * kExciteChannels + thread];
  }
  return all;
}

// The end of a rTask. `sum`: what the thread has added up of its channels. `weights` and `stage`: the pipe and its first chunk, which has
// arrived. `factor` makes of a channel's sum what is multiplied.
template <class Veu, int kVector, bool NARROW, class Factor>
RK_INLINE void squeeze_finish(const Task<Veu>& task, const SqueezeProductArgs& args, const SqueezePlace& place, WeightPipe<Veu>& weights,
                              const char* stage, float4 sum, const Factor& factor) {
  constexpr int kMeanLanes = kExciteChannels / kSqueezeLanes, kRowBytes = kExciteChannels * (NARROW ? 2 : 4);
  float* const of_warps = task.template work_as<float>();
  float* const sums = of_warps + kComputeWarps * kExciteChannels;
  const int thread = static_cast<int>(threadIdx.x);
  const float all = squeeze_total<Veu, kVector>(of_warps, sum);
  if (thread < kExciteChannels)
    sums[thread] =
        place.block * kExciteChannels + thread < args.channels ? factor(all) : 0.0f;  // memory behind the last channel may hold anything
  sync_compute<Veu>();
  const int part = thread % kSqueezeLanes;
  const float4 low = reinterpret_cast<const float4*>(sums + part * kMeanLanes)[0];
  const float4 high = reinterpret_cast<const float4*>(sums + part * kMeanLanes)[1];
  float* const out = task.address(args.sums) + static_cast<int64_t>(place.image) * args.sums_image + place.part * args.sums_part;
#pragma unroll 1
  for (int chunk = 0;;) {
    const char* const products = stage + args.chunk_first;
    const float* const scales = reinterpret_cast<const float*>(products + args.chunk_rows * kRowBytes);
#pragma unroll 2
    for (int row = thread / kSqueezeLanes; row < args.chunk_rows; row += kSqueezeTurnRows) {
      const char* const from = products + row * kRowBytes + part * (kRowBytes / kSqueezeLanes);
      float4 a, b;
      if constexpr (NARROW) {
        const uint4 pairs = *reinterpret_cast<const uint4*>(from);
        a = excite_four(pairs.x, pairs.y);
        b = excite_four(pairs.z, pairs.w);
      } else {
        a = reinterpret_cast<const float4*>(from)[0];
        b = reinterpret_cast<const float4*>(from)[1];
      }
      float v = excite_dot(excite_dot(0.0f, low, a), high, b);
#pragma unroll
      for (int step = 1; step < kSqueezeLanes; step *= 2) v += __shfl_xor_sync(kFullMask, v, step);
      const int r = chunk * args.chunk_rows + row;
      if (part == 0 && r < args.padded_hidden) store1(out + r, r < args.hidden ? v * scales[row] : 0.0f);
    }
    weights.release();
    if (++chunk == args.chunks) return;
    stage = as_shared(weights.acquire());
  }
}

// What the thread has to add up of the map, as it lies, with kAhead loads under way.
template <class Veu, int kVector, class In, int kAhead, class Args>
RK_INLINE float4 squeeze_pixels(const Task<Veu>& task, const Args& args, const SqueezePlace& place, int channels) {
  constexpr int kLanes = kExciteChannels / kVector;
  constexpr uint32_t kPixels = Veu::kComputeThreads / kLanes;  // at the same time
  const uint32_t thread = threadIdx.x;
  const int row = place.tile * args.rows, rows = place.channel < channels ? min(args.rows, args.height - row) : 0;
  const uint32_t end = static_cast<uint32_t>(rows) * args.width.divisor;
  const int32_t row_stride = args.in_strides[2], column_stride = args.in_strides[3];
  const In* const in = squeeze_map<In>(task, args.in, args.in_strides, place) + row * row_stride;
  float4 sum = {0.0f, 0.0f, 0.0f, 0.0f};
  task.await_inputs();
#pragma unroll 1
  for (uint32_t first = thread / kLanes; first < end; first += kAhead * kPixels) {
    MapValue<kVector, In> values[kAhead];
#pragma unroll
    for (uint32_t i = 0; i < kAhead; ++i) {
      uint32_t column;
      const uint32_t h = divide(min(first + i * kPixels, end - 1), args.width, column);
      values[i].load(in + static_cast<int32_t>(h) * row_stride + static_cast<int32_t>(column) * column_stride);
    }
#pragma unroll
    for (uint32_t i = 0; i < kAhead; ++i) {
      if (first + i * kPixels < end) squeeze_add(sum, values[i].floats());
    }
  }
  return sum;
}

template <class Veu, int kVector, bool NARROW, class In = float, int kAhead = kExciteAhead>
RK_BODY void squeeze(const Task<Veu>& caller) {
  const Task<Veu> task = caller;  // in registers; the caller's copy is in memory
  const SqueezeArgs& args = task.template arguments<SqueezeArgs>();
  const SqueezePlace place = squeeze_place<kVector>(args.product, task.index);
  const float4 sum = squeeze_pixels<Veu, kVector, In, kAhead>(task, args, place, args.product.channels);
  WeightPipe<Veu> weights = task.weights;
  const char* const stage = as_shared(weights.acquire());
  squeeze_finish<Veu, kVector, NARROW>(task, args.product, place, weights, stage, sum, [](float all) { return all; });
}

}  // namespace rk
