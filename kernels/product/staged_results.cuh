// What staged_conv makes of its sums: results, with bias, residual and activation, in memory.
#pragma once

#include "kernels/product/staged_args.cuh"
#include "kernels/product/stages.cuh"
#include "kernels/tile/staged_math.cuh"
#include "kernels/vdevice/memory.cuh"

namespace rk {

// to[i]: how far behind the tile's first pixel the result of pixel first + i * PIXEL_THREADS lies; -1 where there is no such pixel or, with
// no channels `left`, no result.
// Example: tiles 14 wide, results of 64 channels in rows of 56 pixels. Pixel 19 of the tile is row 1, column 5. A pixel is 64 values from
// the one before and a row 3584 from the one above, so `row` is 3584 - 14 * 64 = 2688, and the offset 19 * 64 + 1 * 2688 = 3904.
template <int PIXEL_THREADS, int OUTPUTS>
RK_INLINE void staged_offsets(int (&to)[OUTPUTS], const StagedConvArgs& args, const StagedTile& tile, int first, int left) {
  const PixelStrides strides = args.out_strides;
  const int pixels = left > 0 ? args.pixels : 0;
  const int row = strides.h - args.tile_w * strides.w;  // from the end of a row of the tile to the next row
#pragma unroll
  for (int i = 0; i < OUTPUTS; ++i) {
    const int p = first + i * PIXEL_THREADS, h = args.row_of(p), w = p - h * args.tile_w;
    const bool exists = (p < pixels) & (h + static_cast<int>(tile.h) < args.grid_h) & (w + static_cast<int>(tile.w) < args.grid_w);
    to[i] = exists ? p * strides.w + h * row : -1;
  }
}
// The residual of the tile's first pixel.
template <class Value, class Veu>
RK_INLINE const Value* staged_residual(const Task<Veu>& task, const StagedConvArgs& args, const StagedTile& tile, int channel) {
  const PixelStrides strides = narrow(args.epilogue.residual_strides);
  return values_at<Value>(task, args.epilogue.residual) + (offset_of(tile.first(), strides) + channel * strides.channel);
}

// The sums of four channels, from `column` on, of pixel `p` of a round, as the warps on k have left them in shared memory: where the
// product stores them so, in some pixels the first two channels lie behind the other two.
template <class Product>
RK_INLINE float4 staged_sum_as_stored(const char* sums, int p, int column) {
  const int from = (p * Product::kPitch + column) * 4;
  float4 v = load_shared4(sums, from);
#pragma unroll
  for (int k = 1; k < Product::kWarpsK; ++k) v = add4(v, load_shared4(sums, k * Product::kSumBytes + from));
  return v;
}
// In the order of channels; `swaps`: whether the pixel is one of those.
template <class Product>
RK_INLINE float4 in_order(const float4& v, bool swaps) {
  if (Product::kSwaps && swaps) return {v.z, v.w, v.x, v.y};
  return v;
}
template <class Product>
RK_INLINE float4 staged_sum(const char* sums, int p, int column, bool swaps) {
  return in_order<Product>(staged_sum_as_stored<Product>(sums, p, column), swaps);
}

// Bytes stand for whole numbers from `low` on (Buffer::low of the compiler).
template <class Value>
RK_INLINE float4 above4(const float4& v, float low) {
  if constexpr (sizeof(Value) > 1) return v;
  return {v.x + low, v.y + low, v.z + low, v.w + low};
}
template <class Value>
RK_INLINE float4 less_low4(const float4& v, float low) {
  return above4<Value>(v, -low);
}

// What becomes of the sums before bias, residual and activation: nothing, or a normalisation (moment_conv.cuh).
struct NoNorm {
  static constexpr bool kNormalizes = false;
};

// The result of a sum with its bias, where its activation is a clamp. r: the residual, or zeros. WHOLE: the sum is a whole number already.
template <class Of, bool WHOLE = false>
RK_INLINE float4 staged_result(const SumArgs& sum, const float4& v, const float4& r, float low, float high) {
  if constexpr (!Of::kSums) return clamped4<Of::kRounds>(add4(v, r), low, high);
  const float4 y = clamped4<!WHOLE>(v, low, high);
  const float s = sum.scale, t = sum.residual_scale;
  return clamped4<true>({fmaf(r.x, t, y.x * s), fmaf(r.y, t, y.y * s), fmaf(r.z, t, y.z * s), fmaf(r.w, t, y.w * s)}, sum.low, sum.high);
}

// The results of one thread: 4 channels of every kPixelThreads-th pixel of the tile. What can be known before the inputs have arrived is
// computed before; residuals are on their way while the product is computed. Instructions that run once are dear (an SM fetches them at 2
// to 3 bytes a cycle), so nothing is asked per output that can be asked once: nearly all results are a clamp and are stored in 16 bytes,
// and these have unrolled code of their own; all others share one loop.
// Example: 64 channels and 256 threads. Thread 37 has channels 20 to 23 (37 % 16 = 5) of pixels 2, 18, 34, .. (37 / 16 = 2).
template <class Veu, class Product, class Norm = NoNorm>
struct StagedResults {
  static constexpr int kChannelThreads = Product::kChannels / 4;
  static constexpr int kPixelThreads = Veu::kComputeThreads / kChannelThreads;
  static constexpr int kRounds = Product::kRounds;
  static constexpr int kOutputs = (Product::kPixels + kPixelThreads - 1) / kPixelThreads, kRoundOutputs = kOutputs / kRounds;
  static_assert((Product::kPixels % kPixelThreads == 0 || kOutputs == 1) && kOutputs % kRounds == 0);
  // With more than one round there are so many sums that registers are few: addresses of results are computed late, and residuals are
  // on their way for one round only.
  static constexpr bool kAhead = kRounds == 1;

  using Value = typename Product::Of::Out;
  using Added = typename Product::Of::Added;  // of the residual

  Norm norm;
  float4 scale, bias;
  Raw4<Added> residual[kAhead ? kOutputs : kRoundOutputs];
  float low, high;
  float out_low, added_low;  // of bytes
  Value* out;
  int to[kAhead ? kOutputs : 1];  // -1: there is no such pixel
  int channel, left;              // channel: in the tensor; left: how many channels exist from there on
  char* work;                     // the task's, in a register
  int32_t way;                    // ResultsWay
  const Added* added;             // kAddedWay: the residual of the tile's first pixel

  RK_INLINE static int pixel(int i) { return static_cast<int>(threadIdx.x / kChannelThreads) + i * kPixelThreads; }
  RK_INLINE static int column() { return static_cast<int>(threadIdx.x % kChannelThreads) * 4; }

  RK_INLINE void start(const Task<Veu>& task, const StagedConvArgs& args, const StagedTile& tile) {
    const int n = static_cast<int>(tile.n_block) * Product::kChannels + column();  // in the group
    left = args.channels - n;
    channel = static_cast<int>(tile.group) * args.channels + n;
    const int padded = static_cast<int>(tile.group * args.n_blocks.divisor) * Product::kChannels + n;
    bias = load_bias4(task, args, padded);
    if constexpr (Product::Of::kScales) scale = load_weight4(task.address(args.scale) + padded);
    const PixelStrides strides = args.out_strides;
    out =
        values_at<Value>(task, args.out) + tile.split * args.split_stride + (offset_of(tile.first(), strides) + channel * strides.channel);
    if constexpr (kAhead) staged_offsets<kPixelThreads>(to, args, tile, pixel(0), left);
#pragma unroll
    for (Raw4<Added>& r : residual) r.clear_now();
    low = args.clip.low;
    high = args.clip.high;
    if constexpr (sizeof(Value) == 1) out_low = args.out_low;
    if constexpr (sizeof(Added) == 1) added_low = args.residual_low;
    way = args.way;
    work = task.work;
    added = way == kAddedWay ? staged_residual<Added>(task, args, tile, channel) : nullptr;
  }
  // Starts to load the residuals. Called when the rTask's inputs are there, and so the residuals, too: what can be known before is known
  // by then, since each read of an argument takes thirty clocks.
  RK_INLINE void fetch(const Task<Veu>& task, const StagedConvArgs& args, const StagedTile& tile) {
    if (way != kAddedWay) return;
    if constexpr (!kAhead) return fetch_round(task, args, tile, 0);
#pragma unroll
    for (int i = 0; i < kOutputs; ++i) {
      if (to[i] >= 0) residual[i] = load_raw4(added + to[i]);
    }
  }
  // Called while the last products are made, or behind them.
  RK_INLINE void meanwhile() {}
  // Puts the sums of a round into shared memory.
  RK_INLINE void share(const Task<Veu>&, const StagedConvArgs&, const StagedTile&, const Product& product, int round) const {
    product.store(work, round);
  }
  // bias plus the sums of the warps on k.
  RK_INLINE float4 sum_of(const char* sums, int p) const {
    constexpr bool kAllExist = kRounds == 1 && Product::kPixels % kPixelThreads == 0;
    static_assert(!Product::kSwaps || (kPixelThreads % 8 == 0 && Product::kRoundPixels % 8 == 0), "of all pixels of a thread, or of none");
    const float4 v = staged_sum<Product>(sums, kAllExist ? p : p % Product::kRoundPixels, column(), (pixel(0) & 4) != 0);
    if constexpr (Norm::kNormalizes) return norm.of(v, bias, sums, p);
    if constexpr (!Product::Of::kScales) return add4(v, bias);
    return {fmaf(v.x, scale.x, bias.x), fmaf(v.y, scale.y, bias.y), fmaf(v.z, scale.z, bias.z), fmaf(v.w, scale.w, bias.w)};
  }
  // Where there is no residual, bytes of 0 are one of number 0.
  RK_INLINE float4 residual_of(const Raw4<Added>& raw) const { return above4<Added>(raw.floats(), added_low); }
  // `v`: a sum with its bias.
  RK_INLINE float4 result_of(const StagedConvArgs& args, const float4& v, const float4& r) const {
    return staged_result<typename Product::Of>(args.epilogue.sum, v, r, low, high);
  }
  RK_INLINE float4 finish_of(const StagedConvArgs& args, const float4& v, const float4& r) const {
    if constexpr (Product::Of::kSums) return result_of(args, v, r);
    return finish4(args.epilogue, v, r);
  }
  // Stores the results of a round, whose sums are in shared memory.
  RK_INLINE void finish(const Task<Veu>& task, const StagedConvArgs& args, const StagedTile& tile, const char* sums, int round) {
    if constexpr (Product::kWide) {
      if constexpr (kAhead && std::is_same_v<Value, Half>) {
        if (way == kGeluWay) return finish_gelu(sums);
      }
      if (way == kSmoothWay) return finish_smooth(args, tile, sums, round);
    }
    if (way > kAddedWay) return finish_any(task, args, tile, sums, round);
    if constexpr (!kAhead) return finish_late(task, args, tile, sums, round);
    if (kOutputs == 1 && to[0] < 0) return;
#pragma unroll
    for (int i = 0; i < (kAhead ? kOutputs : 0); ++i) {
      const float4 v = result_of(args, sum_of(sums, pixel(i)), residual_of(residual[i]));
      if (to[i] >= 0) store4(out + to[i], less_low4<Value>(v, out_low));
    }
  }
  // The address of pixel p of the tile; null where there is no such pixel.
  template <class T>
  RK_INLINE T* pixel_at(const StagedConvArgs& args, const StagedTile& tile, T* from, int h_stride, int w_stride, int p) const {
    const int h = args.row_of(p), w = p - h * args.tile_w;
    const bool exists =
        (left > 0) & (p < args.pixels) & (h + static_cast<int>(tile.h) < args.grid_h) & (w + static_cast<int>(tile.w) < args.grid_w);
    return exists ? from + (h * h_stride + w * w_stride) : nullptr;
  }
  RK_INLINE void fetch_round(const Task<Veu>& task, const StagedConvArgs& args, const StagedTile& tile, int round) {
    const Added* const from = staged_residual<Added>(task, args, tile, channel);
    const int w = static_cast<int>(args.epilogue.residual_strides[3]), h = static_cast<int>(args.epilogue.residual_strides[2]);
#pragma unroll
    for (int i = 0; i < kRoundOutputs; ++i) {
      const Added* const at = pixel_at(args, tile, from, h, w, round * Product::kRoundPixels + pixel(i));
      if (at != nullptr) residual[i] = load_raw4(at);
    }
  }
  RK_INLINE void finish_late(const Task<Veu>& task, const StagedConvArgs& args, const StagedTile& tile, const char* sums, int round) {
    const PixelStrides strides = args.out_strides;
#pragma unroll
    for (int i = 0; i < kRoundOutputs; ++i) {
      const int p = round * Product::kRoundPixels + pixel(i);
      Value* const to_pixel = pixel_at(args, tile, out, strides.h, strides.w, p);
      if (to_pixel != nullptr) store4(to_pixel, less_low4<Value>(result_of(args, sum_of(sums, p), residual_of(residual[i])), out_low));
    }
    if (round + 1 < kRounds && args.epilogue.residual.base != kNullBase) fetch_round(task, args, tile, round + 1);
  }
  // All sums are loaded before the first is used.
  RK_INLINE void finish_gelu(const char* sums) const {
    float4 v[kOutputs];
#pragma unroll
    for (int i = 0; i < kOutputs; ++i) v[i] = sum_of(sums, pixel(i));
#pragma unroll
    for (int i = 0; i < kOutputs; ++i) {
      const uint2 four = {gelu_halves(halves_of(v[i].x, v[i].y)), gelu_halves(halves_of(v[i].z, v[i].w))};
      if (to[i] >= 0) *as_global(reinterpret_cast<uint2*>(out + to[i])) = four;
    }
  }
  // The results whose activation is smooth: transformers and squeeze-and-excite networks have little else. In wide bodies alone: with
  // this loop in all of them, resnet50 took 284 us instead of 270.
  RK_INLINE void finish_smooth(const StagedConvArgs& args, const StagedTile& tile, const char* sums, int round) const {
    const PixelStrides strides = args.out_strides;
    const int end = min((round + 1) * Product::kRoundPixels, args.pixels);
    const int pixels = left > 0 ? end : 0, row = strides.h - args.tile_w * strides.w;
#pragma unroll 1
    for (int p = round * Product::kRoundPixels + pixel(0); p < pixels; p += kPixelThreads) {
      const int h = args.row_of(p), w = p - h * args.tile_w;
      if (h + static_cast<int>(tile.h) >= args.grid_h || w + static_cast<int>(tile.w) >= args.grid_w) continue;
      const float4 v = sum_of(sums, p);
      Value* const to_pixel = out + (p * strides.w + h * row);
      if constexpr (std::is_same_v<Value, Half>) {
        if (args.epilogue.activation == kGelu) {
          *as_global(reinterpret_cast<uint2*>(to_pixel)) = {gelu_halves(halves_of(v.x, v.y)), gelu_halves(halves_of(v.z, v.w))};
          continue;
        }
      }
      if constexpr (sizeof(Value) == 2)
        store4(to_pixel, smooth4_coarse(args.epilogue.activation, v));
      else
        store4(to_pixel, smooth4(args.epilogue.activation, v));
    }
  }
  RK_INLINE void finish_any(const Task<Veu>& task, const StagedConvArgs& args, const StagedTile& tile, const char* sums, int round) const {
    const bool adds = args.epilogue.residual.base != kNullBase;
    const Added* const from = adds ? staged_residual<Added>(task, args, tile, channel) : nullptr;
    const PixelStrides strides = args.out_strides, residual_strides = narrow(args.epilogue.residual_strides);
    const int end = min((round + 1) * Product::kRoundPixels, args.pixels);
#pragma unroll 1
    for (int p = round * Product::kRoundPixels + pixel(0); p < end && left > 0; p += kPixelThreads) {
      const int h = args.row_of(p), w = p - h * args.tile_w;
      if (h + static_cast<int>(tile.h) >= args.grid_h || w + static_cast<int>(tile.w) >= args.grid_w) continue;
      float4 r = {0.0f, 0.0f, 0.0f, 0.0f};
      if (adds)
        r = above4<Added>(load_channels4(from + (h * residual_strides.h + w * residual_strides.w), residual_strides.channel,
                                         args.vector_residual != 0, left),
                          added_low);
      store_channels4(out + (h * strides.h + w * strides.w), strides.channel, args.vector_out != 0, left,
                      less_low4<Value>(finish_of(args, sum_of(sums, p), r), out_low));
    }
  }
};

// Eight values of 16 bits as they are in memory. (Of bytes: kernels/product/staged_bytes.cuh.)
template <class Value>
struct Eight {
  float4 pairs = {0.0f, 0.0f, 0.0f, 0.0f};
  RK_INLINE float4 half(int which) const {
    return Raw4<Value>{which == 0 ? uint2{bits_of(pairs.x), bits_of(pairs.y)} : uint2{bits_of(pairs.z), bits_of(pairs.w)}}.floats();
  }
};
template <class Value>
RK_INLINE Eight<Value> load_eight(const Value* p) {
  return {load4(reinterpret_cast<const float*>(p))};
}
template <class Value>
RK_INLINE void store_eight(Value* p, const float4& a, const float4& b) {
  store4(reinterpret_cast<float*>(p), {float_of(pair_of<Value>(a.x, a.y)), float_of(pair_of<Value>(a.z, a.w)),
                                       float_of(pair_of<Value>(b.x, b.y)), float_of(pair_of<Value>(b.z, b.w))});
}

// Results of 16 bits, or of 8, of a tile that has more sums than fit shared memory as floats: 128 channels by 128 or 192 pixels. The sums,
// with the bias, are rounded to the type of the results (in front of bytes: to fp16, which holds whole numbers) before a residual is added
// and before an activation other than a clamp, as they would be if these were rOperators of their own; a clamp gives the same before and
// after rounding. So all of 128 x 128 fit, 192 pixels take two rounds, and a thread has 8 channels of every kPixelThreads-th pixel, 16
// bytes in shared memory and in global memory.
template <class Veu, class Product>
struct StagedRoundedResults {
  static constexpr int kChannelThreads = Product::kChannels / 8;
  static constexpr int kPixelThreads = Veu::kComputeThreads / kChannelThreads;
  static constexpr int kRounds = Product::kRoundedRounds, kOutputs = Product::kRoundedPixels / kPixelThreads;  // outputs: of a round
  static_assert(Product::kRoundedPixels % kPixelThreads == 0 && Product::kWarpsK == 1);
  using Value = typename Product::Of::Out;
  using Added = typename Product::Of::Added;                         // of the residual
  using Kept = std::conditional_t<sizeof(Value) == 1, Half, Value>;  // of the sums in shared memory

  float bias[Product::kLaneChannels];   // of the channels of the lane's sums
  float scale[Product::kLaneChannels];  // where sums have scales
  Eight<Added> residual[kOutputs];
  float low, high;
  float out_low, added_low;  // of bytes
  Value* out;
  int to[kOutputs];   // -1: there is no such pixel; from share on, since beside the sums there are no registers for it
  int channel, left;  // channel: in the tensor; left: how many channels exist from there on
  bool plain, adds;
  char* work;

  // Of the tile; of the round's sums in shared memory: the same with round 0.
  RK_INLINE static int pixel(int i, int round) {
    return static_cast<int>(threadIdx.x / kChannelThreads) + i * kPixelThreads + round * Product::kRoundedPixels;
  }
  RK_INLINE static int column() { return static_cast<int>(threadIdx.x % kChannelThreads) * 8; }

  RK_INLINE void start(const Task<Veu>& task, const StagedConvArgs& args, const StagedTile& tile) {
    const int first = static_cast<int>(tile.n_block) * Product::kChannels, n = first + column();  // in the group
    const int padded = static_cast<int>(tile.group * args.n_blocks.divisor) * Product::kChannels + first + Product::lane_channel();
#pragma unroll
    for (int i = 0; i < Product::kLaneChannels; ++i)
      bias[i] = args.epilogue.bias.base == kNullBase ? 0.0f : load_weight1(task.address(args.epilogue.bias) + padded + i);
    if constexpr (Product::Of::kScales) {
#pragma unroll
      for (int i = 0; i < Product::kLaneChannels; ++i) scale[i] = load_weight1(task.address(args.scale) + padded + i);
    }
    left = args.channels - n;
    channel = static_cast<int>(tile.group) * args.channels + n;
    const PixelStrides strides = args.out_strides;
    out = values_at<Value>(task, args.out) + (offset_of(tile.first(), strides) + channel * strides.channel);
    low = args.clip.low;
    high = args.clip.high;
    if constexpr (sizeof(Value) == 1) out_low = args.out_low;
    if constexpr (sizeof(Added) == 1) added_low = args.residual_low;
    adds = args.epilogue.residual.base != kNullBase;
    work = task.work;
    plain = args.clip.other == 0 && args.clip.after == 0 && args.vector_out >= 8 && (!adds || args.vector_residual >= 8);
  }
  // Beside the sums there are no registers for residuals: until the product is made they are only brought to L2, where a large batch's
  // may be no longer.
  RK_INLINE void fetch(const Task<Veu>& task, const StagedConvArgs& args, const StagedTile& tile) const {
    if (!adds || !plain) return;
#pragma unroll
    for (int round = 0; round < kRounds; ++round) for_residuals(task, args, tile, round, [](int, const Added* at) { prefetch_l2(at); });
  }
  RK_INLINE void meanwhile() const {}
  // As StagedResults::share. Once the sums are stored there are registers for residuals and offsets.
  RK_INLINE void share(const Task<Veu>& task, const StagedConvArgs& args, const StagedTile& tile, const Product& product, int round) {
    product.template store_rounded<Kept>(work, scale, bias, round);
    staged_offsets<kPixelThreads>(to, args, tile, pixel(0, round), left);
#pragma unroll
    for (Eight<Added>& r : residual) r = {};
    if (!adds || !plain) return;
    for_residuals(task, args, tile, round, [&](int i, const Added* at) { residual[i] = load_eight(at); });
  }
  // Calls use(i, address) for the residual of each output i of the round that exists.
  template <class Use>
  RK_INLINE void for_residuals(const Task<Veu>& task, const StagedConvArgs& args, const StagedTile& tile, int round, const Use& use) const {
    const Added* const from = staged_residual<Added>(task, args, tile, channel);
    const int w = static_cast<int>(args.epilogue.residual_strides[3]),
              row = static_cast<int>(args.epilogue.residual_strides[2]) - args.tile_w * w;
    int exists[kOutputs];
    staged_offsets<kPixelThreads>(exists, args, tile, pixel(0, round), left);
#pragma unroll
    for (int i = 0; i < kOutputs; ++i) {
      if (exists[i] >= 0) use(i, from + (pixel(i, round) * w + args.row_of(pixel(i, round)) * row));
    }
  }
  RK_INLINE static float4 half_of(const float4& eight, int half) { return Eight<Kept>{eight}.half(half); }
  RK_INLINE float4 residual_of(int i, int half) const { return above4<Added>(residual[i].half(half), added_low); }
  RK_INLINE void store8(Value* to_pixel, const float4& a, const float4& b) const {
    store_eight(to_pixel, less_low4<Value>(a, out_low), less_low4<Value>(b, out_low));
  }
  RK_INLINE static float4 sums_of(const char* sums, int p) {
    return load_shared4(sums, p * kRoundedPitch<Product::kChannels> + column() * 2);
  }
  RK_INLINE float4 finish_of(const StagedConvArgs& args, const float4& v, const float4& r) const {
    if constexpr (Product::Of::kSums) return staged_result<typename Product::Of, true>(args.epilogue.sum, v, r, low, high);
    return finish4(args.epilogue, v, r);
  }
  RK_INLINE void finish(const Task<Veu>& task, const StagedConvArgs& args, const StagedTile& tile, const char* sums, int round) const {
    if (!plain) return finish_any(task, args, tile, sums, round);
#pragma unroll
    for (int i = 0; i < kOutputs; ++i) {
      if (to[i] < 0) continue;
      const float4 v = sums_of(sums, pixel(i, 0));
      float4 a = half_of(v, 0), b = half_of(v, 1);
      if constexpr (Product::Of::kSums) {
        a = staged_result<typename Product::Of, true>(args.epilogue.sum, a, residual_of(i, 0), low, high);
        b = staged_result<typename Product::Of, true>(args.epilogue.sum, b, residual_of(i, 1), low, high);
        store8(out + to[i], a, b);
        continue;
      }
      if (adds) a = add4(a, residual_of(i, 0)), b = add4(b, residual_of(i, 1));
      store8(out + to[i], clamp4(a, low, high), clamp4(b, low, high));
    }
  }
  RK_INLINE void finish_any(const Task<Veu>& task, const StagedConvArgs& args, const StagedTile& tile, const char* sums, int round) const {
    const bool smooth = !adds && args.vector_out >= 8 && is_smooth(args.epilogue.activation);
    const Added* const from = adds ? staged_residual<Added>(task, args, tile, channel) : nullptr;
    const PixelStrides strides = args.out_strides, residual_strides = narrow(args.epilogue.residual_strides);
    const int pixels = left > 0 ? min(args.pixels, (round + 1) * Product::kRoundedPixels) : 0;
#pragma unroll 1
    for (int p = pixel(0, round); p < pixels; p += kPixelThreads) {
      const int h = args.row_of(p), w = p - h * args.tile_w;
      if (h + static_cast<int>(tile.h) >= args.grid_h || w + static_cast<int>(tile.w) >= args.grid_w) continue;
      const float4 v = sums_of(sums, p - round * Product::kRoundedPixels);
      Value* const to_pixel = out + (h * strides.h + w * strides.w);
      if constexpr (std::is_same_v<Value, Half>) {
        if (smooth && args.epilogue.activation == kGelu) {
          store4(reinterpret_cast<float*>(to_pixel), {float_of(gelu_halves(bits_of(v.x))), float_of(gelu_halves(bits_of(v.y))),
                                                      float_of(gelu_halves(bits_of(v.z))), float_of(gelu_halves(bits_of(v.w)))});
          continue;
        }
      }
      if (smooth && sizeof(Value) > 1) {
        store8(to_pixel, smooth4_coarse(args.epilogue.activation, half_of(v, 0)), smooth4_coarse(args.epilogue.activation, half_of(v, 1)));
        continue;
      }
#pragma unroll 1
      for (int four = 0; four < 2 && four * 4 < left; ++four) {
        float4 r = {0.0f, 0.0f, 0.0f, 0.0f};
        if (adds)
          r = above4<Added>(load_channels4(from + (h * residual_strides.h + w * residual_strides.w + four * 4 * residual_strides.channel),
                                           residual_strides.channel, args.vector_residual != 0, left - four * 4),
                            added_low);
        store_channels4(to_pixel + four * 4 * strides.channel, strides.channel, args.vector_out != 0, left - four * 4,
                        less_low4<Value>(finish_of(args, half_of(v, four), r), out_low));
      }
    }
  }
};

template <class Product>
constexpr bool kRoundedResults = Product::kRounds > 1 && Product::kWarpsK == 1 && sizeof(typename Product::Of::Out) <= 2;

// Round by round, the sums go to shared memory, in the order of the product, and are taken from there in the order of the results.
template <class Veu, TileSums Product, TileResults<Veu, Product> Results>
RK_INLINE void finish_staged(const Task<Veu>& task, const StagedConvArgs& args, const StagedTile& tile, const Product& product,
                             Results& results) {
#pragma unroll
  for (int round = 0; round < Results::kRounds; ++round) {
    if (round > 0 || Veu::kProductsOverInputs) sync_compute<Veu>();  // other warps may still multiply what lies there
    results.share(task, args, tile, product, round);
    sync_compute<Veu>();
    results.finish(task, args, tile, results.work, round);
  }
}

template <class Veu, class Product>
struct ResultsOf {
  using Type = std::conditional_t<kRoundedResults<Product>, StagedRoundedResults<Veu, Product>, StagedResults<Veu, Product>>;
};
template <class Veu, class Product>
using UsualResults = typename ResultsOf<Veu, Product>::Type;

}  // namespace rk
