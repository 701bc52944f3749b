// Conv and TileSums (compiler/ir/ops.h): the convolution of staged_conv.cuh, which also stores the sums of its results over the pixels of
// each tile, channel by channel, for kernels/excite and kernels/product/gemv_of_sums.cuh. A rTask has all pixels of a tile, so it stores
// one part of its channels' sums. The order of all additions is fixed. ADDS: there is a residual, which is added before the activation.
//
// A body of its own, because code that runs once costs the time in which its bytes are fetched: other convolutions have none of this.
//
// Example: 16 channels and 32 pixels. Thread 77 has channels 4 to 7 (77 % 4 * 4) of pixel 19 (77 / 4). The lanes 1, 5, 9, .. of its warp
// add up these channels of pixels 16 to 23, lane 1 leaves the sums as number 2 of 8 of each channel, and threads 32 to 39 add up those of
// channel 4.
#pragma once

#include "kernels/product/staged_conv.cuh"

namespace rk {

struct SummedConvArgs {  // in tables
  StagedConvArgs conv;
  TensorRef sums;
  int32_t part_stride;  // from a tile to the next, images in a row
  int32_t channels;     // of all groups; the last group may have fewer than conv.channels
};

template <class Veu, class Product, bool ADDS>
struct SummedResults : StagedResults<Veu, Product> {
  using Base = StagedResults<Veu, Product>;
  using Value = typename Base::Value;
  static constexpr int kChannels = Product::kChannels, kThreads = Veu::kComputeThreads;
  static_assert(Base::kAhead && Base::kChannelThreads <= kWarp && kThreads == kComputeWarps * kWarp);

  RK_INLINE void start(const Task<Veu>& task, const StagedConvArgs& args, const StagedTile& tile) {
    Base::start(task, args, tile);
    this->left = min(this->left, task.template arguments<SummedConvArgs>().channels - this->channel);
  }
  RK_INLINE void fetch(const Task<Veu>& task, const StagedConvArgs& args, const StagedTile& tile) {
    if constexpr (ADDS) {
      if (this->left > 0) Base::fetch(task, args, tile);
    }
  }

  RK_INLINE void finish(const Task<Veu>& task, const StagedConvArgs& args, const StagedTile& tile, char* sums, int) {
    float4 total = {0.0f, 0.0f, 0.0f, 0.0f};
    if (this->way <= kAddedWay) {
#pragma unroll
      for (int i = 0; i < Base::kOutputs; ++i) {
        if (this->to[i] < 0 || this->left <= 0) continue;
        float4 v = this->sum_of(sums, this->pixel(i));
        if constexpr (ADDS) v = add4(v, this->residual[i].floats());
        v = clamp4(v, this->low, this->high);
        store4(this->out + this->to[i], v);
        total = add4(total, v);
      }
    } else {
      total = finish_other(task, args, tile, sums);
    }
    store_sums(task, args, tile, total, reinterpret_cast<float*>(sums + Product::kWarpsK * Product::kSumBytes));
  }

 private:
  RK_INLINE float4 finish_other(const Task<Veu>& task, const StagedConvArgs& args, const StagedTile& tile, const char* sums) const {
    const PixelStrides strides = args.out_strides;
    [[maybe_unused]] const PixelStrides added = narrow(args.epilogue.residual_strides);
    [[maybe_unused]] const Value* from = nullptr;
    if constexpr (ADDS) from = staged_residual<Value>(task, args, tile, this->channel);
    float4 total = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll 1
    for (int p = this->pixel(0); p<args.pixels&& this->left> 0; p += Base::kPixelThreads) {
      const int h = args.row_of(p), w = p - h * args.tile_w;
      if (h + static_cast<int>(tile.h) >= args.grid_h || w + static_cast<int>(tile.w) >= args.grid_w) continue;
      float4 r = {0.0f, 0.0f, 0.0f, 0.0f};
      if constexpr (ADDS) r = load_channels4(from + (h * added.h + w * added.w), added.channel, args.vector_residual != 0, this->left);
      const float4 v = finish4(args.epilogue, this->sum_of(sums, p), r);
      store_channels4(this->out + (h * strides.h + w * strides.w), strides.channel, args.vector_out != 0, this->left, v);
      total = add4(total, v);
    }
    return total;
  }
  // `total`: the thread's four channels. of_warps: [channel][warp].
  RK_INLINE static void store_sums(const Task<Veu>& task, const StagedConvArgs& args, const StagedTile& tile, float4 total,
                                   float* of_warps) {
#pragma unroll 1
    for (int step = Base::kChannelThreads; step < kWarp; step *= 2) {
      total = add4(total, float4{__shfl_xor_sync(kFullMask, total.x, step), __shfl_xor_sync(kFullMask, total.y, step),
                                 __shfl_xor_sync(kFullMask, total.z, step), __shfl_xor_sync(kFullMask, total.w, step)});
    }
    if (lane_id() < Base::kChannelThreads) {
      float* const to = of_warps + lane_id() * 4 * kComputeWarps + warp_id();
      to[0] = total.x, to[kComputeWarps] = total.y, to[2 * kComputeWarps] = total.z, to[3 * kComputeWarps] = total.w;
    }
    const SummedConvArgs& own = task.template arguments<SummedConvArgs>();
    uint32_t part;
    divide(task.index, args.tiles, part);
    const int in_group = static_cast<int>(tile.n_block) * kChannels, channel = static_cast<int>(tile.group) * args.channels + in_group;
    const int left = min(args.channels - in_group, own.channels - channel);
    float* const out = task.address(own.sums) + (static_cast<int>(part) * own.part_stride + channel);
    sync_compute<Veu>();
#pragma unroll 1
    for (int i = static_cast<int>(threadIdx.x); i < kChannels * kComputeWarps; i += kThreads) {
      float v = of_warps[i];
#pragma unroll
      for (int step = 1; step < kComputeWarps; step *= 2) v += __shfl_xor_sync(kFullMask, v, step);
      const int n = i / kComputeWarps;
      if (i % kComputeWarps == 0 && n < left) store1(out + n, v);
    }
  }
};

template <class Veu, class Math, int MT, int NT, int WARPS_M, int WARPS_N, bool ADDS = false>
RK_BODY void summed_conv(const Task<Veu>& task) {
  using Product = StagedProduct<Veu, Math, MT, NT, WARPS_M, WARPS_N>;
  staged_rtask<Veu, Product, SummedResults<Veu, Product, ADDS>>(task);
}

}  // namespace rk
