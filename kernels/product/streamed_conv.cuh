// Pointwise convolutions (and products of rows) of few channels over many pixels: act(bias[n] + residual[m][n] + sum over k of in(m, k) *
// weight[k][n]), where input, weights and result are of 16 bits or less (streamed_bytes.cuh: bytes).
//
// Such a convolution moves bytes and computes little: 16 channels of fp16 are 32 bytes a pixel. staged_conv brings them in boxes of 128
// bytes a pixel, through shared memory, tile by tile, with barriers between. Here a rTask has a long row of pixels and a block of output
// channels. The weights of the block lie in one stage of the ring for as long as the rTask runs. Each warp has its own pixels: it loads
// them from global memory straight into the operands of its products, a turn ahead, and stores its results from the registers in which
// the sums are. There is no barrier, and no shared memory but the weights.
//
// Pixels are the rows of the product (mma's operand A), channels its columns. A lane's access of 16 bytes is neighbouring channels of one
// pixel, which become k of two products; the weights are packed in the same order (streamed_byte). Output channels are dealt to columns
// so that a lane has the sums of 2 * TILES neighbours (streamed_channel), which are one access of 16 bytes, too, where TILES is 4.
//
// Example: 24 channels of fp16 to 72, STEPS 2, TILES 4, ROWS 2. Lane 13 (g = 3, t = 1) loads channels 8 to 15 of pixels 3, 11, 19 and 27
// of its warp's 32. A group is 32 output channels; of the second one (32 to 63) the lane has channels 40 to 47 of these four pixels.
#pragma once

#include "kernels/product/streamed_numbers.cuh"
#include "kernels/tile/lean_epilogue.cuh"
#include "kernels/tile/staged_math.cuh"

namespace rk {

struct StreamedConvArgs {  // in tables
  TensorRef in, out;
  EpilogueArgs epilogue;  // no bias: that is in the ring
  ClipArgs clip;          // the epilogue's activation
  uint32_t pixels, pixels_per_rtask;
  uint32_t in_stride, in_bytes;                         // bytes: from a pixel to the next, and of a pixel's channels
  uint32_t out_stride, residual_stride;                 // elements, from a pixel to the next
  int32_t channels, groups;                             // of the output; groups of channels in a block
  int32_t wide_out;                                     // 16 bytes of results are an aligned access
  Divisor parts;                                        // rTasks of a block
  float out_low, residual_low;                          // of bytes (StagedConvArgs)
  float again_scale, again_low, again_high, table_low;  // AgainArgs
};

// The product of ROWS rows with weights, in the types in memory.
template <class In>
struct StreamedProducts {
  using Sum = float;
  RK_INLINE static void multiply(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) { NarrowProducts<In>::multiply(d, a, b); }
};

template <class Math>
struct StreamedInput;
template <class In, class Out, class Added, int WHOLE>
struct StreamedInput<Narrow<In, Out, Added, WHOLE>> {
  using Type = In;
};

// The operands of a warp's pixels: words 2 s and 2 s + 1 of half h of block r are those of step s of pixel r * 16 + h * 8 + lane / 4.
template <int STEPS, bool WIDE, int ROWS>
struct StreamedPixels {
  uint32_t words[ROWS][2][STEPS * 2];

  // What does not exist is zero.
  RK_INLINE void load(const char* in, const StreamedConvArgs& args, uint32_t first, uint32_t end) {
    const uint32_t g = static_cast<uint32_t>(lane_id()) / 4, t = static_cast<uint32_t>(lane_id()) % 4, bytes = args.in_bytes;
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const uint32_t pixel = first + static_cast<uint32_t>(r * kStreamedRows + h * 8) + g;
        const char* const from = in + static_cast<uint64_t>(pixel) * args.in_stride;
#pragma unroll
        for (int s = 0; s < STEPS; ++s) {
          const uint32_t byte = static_cast<uint32_t>(streamed_byte(STEPS, WIDE, s, 0, 0)) + t * ((WIDE && (s | 1) < STEPS) ? 16 : 8);
          if (WIDE && (s | 1) < STEPS) {
            if (s % 2 == 1) continue;
            uint4 v = {0, 0, 0, 0};
            if (pixel < end && byte < bytes) v = load_pairs4(from + byte);
            words[r][h][2 * s] = v.x, words[r][h][2 * s + 1] = v.y;
            words[r][h][2 * s + 2] = v.z, words[r][h][2 * s + 3] = v.w;
          } else {
            uint2 v = {0, 0};
            if (pixel < end && byte < bytes) v = load_pairs2(from + byte);
            words[r][h][2 * s] = v.x, words[r][h][2 * s + 1] = v.y;
          }
        }
      }
    }
  }
};

// Results of 16 bits or more, in floats until they are stored.
template <class Of, int TILES>
struct StreamedResults {
  using Out = typename Of::Out;
  using Added = typename Of::Added;
  static constexpr int kChannels = 2 * TILES, kFours = kChannels / 4;  // of a lane
  float4 bias[kFours], scale[kFours];

  // Of the lane's channels of a group, whose first is channel `first` of `channels` in the block.
  RK_INLINE void start(const StreamedConvArgs&, const char* rows, int first, int channels) {
#pragma unroll
    for (int i = 0; i < kFours; ++i) {
      if constexpr (Of::kScales) scale[i] = load_shared4(rows, (first + 4 * i) * 4);
      bias[i] = load_shared4(rows, streamed_row_bytes(channels) + (first + 4 * i) * 4);
    }
  }
  // The residual of a pixel, on its way.
  struct Residual {
    Raw4<Added> fours[kFours];
  };
  RK_INLINE static void fetch(const Added* from, int left, Residual& r) {
#pragma unroll
    for (int i = 0; i < kFours; ++i) {
      if (4 * i < left) r.fours[i] = load_raw4(from + 4 * i);
    }
  }
  RK_INLINE void store(const StreamedConvArgs& args, const float (&sums)[kChannels], const Residual& r, bool adds, int left,
                       Out* to) const {
    float4 v[kFours];
#pragma unroll
    for (int i = 0; i < kFours; ++i) {
      v[i] = {sums[4 * i], sums[4 * i + 1], sums[4 * i + 2], sums[4 * i + 3]};
      const float4 b = bias[i];
      if constexpr (Of::kScales) {
        const float4 s = scale[i];
        v[i] = {fmaf(v[i].x, s.x, b.x), fmaf(v[i].y, s.y, b.y), fmaf(v[i].z, s.z, b.z), fmaf(v[i].w, s.w, b.w)};
      } else {
        v[i] = add4(v[i], b);
      }
      v[i] = lean_finish4(args.clip, args.epilogue, v[i], adds ? r.fours[i].floats() : float4{});
    }
#pragma unroll
    for (int i = 0; i < kFours; i += 2) {
      if constexpr (kFours > 1 && sizeof(Out) == 2) {
        if (4 * i + 4 < left) {
          const float eight[8] = {v[i].x, v[i].y, v[i].z, v[i].w, v[i + 1].x, v[i + 1].y, v[i + 1].z, v[i + 1].w};
          store8(to + 4 * i, eight);
          continue;
        }
      }
      if (4 * i < left) store4(to + 4 * i, v[i]);
      if (kFours > 1 && 4 * i + 4 < left) store4(to + 4 * i + 4, v[kFours > 1 ? i + 1 : i]);
    }
  }
};
template <class Of, int TILES>
struct StreamedResultsOf {
  using Type = StreamedResults<Of, TILES>;
};

// The sums of group `group` of a block, and what becomes of them.
template <class Veu, class Of, class Products, int STEPS, bool WIDE, int TILES, int ROWS>
RK_INLINE void streamed_group(const Task<Veu>& task, const StreamedConvArgs& args, const char* chunk,
                              const StreamedPixels<STEPS, WIDE, ROWS>& pixels, int block, int group, uint32_t first, uint32_t end) {
  using Results = typename StreamedResultsOf<Of, TILES>::Type;
  using Out = typename Of::Out;
  using Added = typename Of::Added;
  constexpr int kChannels = 8 * TILES;
  const int channels = args.groups * kChannels, lane_first = group * kChannels + lane_id() % 4 * 2 * TILES;
  const int channel = block * channels + lane_first, left = args.channels - channel;
  const bool adds = args.epilogue.residual.base != kNullBase;
  Results results;
  results.start(args, chunk + streamed_weight_bytes(STEPS, channels), lane_first, channels);
  typename Results::Residual residual[ROWS][2];
  if (adds) {
    const Added* const from = values_at<Added>(task, args.epilogue.residual) + channel;
#pragma unroll
    for (int i = 0; i < 2 * ROWS; ++i) {
      const uint32_t pixel = first + static_cast<uint32_t>(i * 8 + lane_id() / 4);
      if (pixel < end) Results::fetch(from + static_cast<uint64_t>(pixel) * args.residual_stride, left, residual[i / 2][i % 2]);
    }
  }
  typename Products::Sum sums[ROWS][TILES][4] = {};
  const int weights = group * streamed_weight_bytes(STEPS, kChannels) + lane_id() * 16;
#pragma unroll
  for (int s = 0; s < STEPS; ++s) {
#pragma unroll
    for (int j = 0; j < TILES; j += 2) {
      const float4 w = load_shared4(chunk, weights + (s * TILES + j) * (kWarp * 8));
      const uint32_t even[2] = {bits_of(w.x), bits_of(w.y)}, odd[2] = {bits_of(w.z), bits_of(w.w)};
#pragma unroll
      for (int r = 0; r < ROWS; ++r) {
        const uint32_t a[4] = {pixels.words[r][0][2 * s], pixels.words[r][1][2 * s], pixels.words[r][0][2 * s + 1],
                               pixels.words[r][1][2 * s + 1]};
        Products::multiply(sums[r][j], a, even);
        Products::multiply(sums[r][j + 1], a, odd);
      }
    }
  }
  Out* const out = values_at<Out>(task, args.out) + channel;
#pragma unroll
  for (int i = 0; i < 2 * ROWS; ++i) {
    const uint32_t pixel = first + static_cast<uint32_t>(i * 8 + lane_id() / 4);
    if (pixel >= end || left <= 0) continue;
    float of_pixel[2 * TILES];
#pragma unroll
    for (int j = 0; j < TILES; ++j) {
      of_pixel[2 * j] = static_cast<float>(sums[i / 2][j][i % 2 * 2]);
      of_pixel[2 * j + 1] = static_cast<float>(sums[i / 2][j][i % 2 * 2 + 1]);
    }
    results.store(args, of_pixel, residual[i / 2][i % 2], adds, left, out + static_cast<uint64_t>(pixel) * args.out_stride);
  }
}

template <class Veu, class Math, int STEPS, bool WIDE, int TILES, int ROWS>
RK_BODY void streamed_conv(const Task<Veu>& caller) {
  using Of = StagedMath<Math>;
  const Task<Veu> task = caller;  // in registers; the caller's copy is in memory
  const StreamedConvArgs& args = task.template arguments<StreamedConvArgs>();
  uint32_t part;
  const auto block = static_cast<int>(divide(task.index, args.parts, part));
  constexpr uint32_t kPixels = ROWS * kStreamedRows;  // of a warp's turn
  const uint32_t end = min((part + 1) * args.pixels_per_rtask, args.pixels);
  uint32_t first = part * args.pixels_per_rtask + static_cast<uint32_t>(warp_id()) * kPixels;
  const int groups = args.groups;
  WeightPipe<Veu> ring = task.weights;
  const char* const chunk = ring.acquire();
  task.await_inputs();
  const char* const in = reinterpret_cast<const char*>(task.address(args.in));
  StreamedPixels<STEPS, WIDE, ROWS> now, next;
  next.load(in, args, first, end);
#pragma unroll 1
  for (; first < end; first += kPixels * kComputeWarps) {
    now = next;
    next.load(in, args, first + kPixels * kComputeWarps, end);
#pragma unroll 1
    for (int group = 0; group < groups; ++group)
      streamed_group<Veu, Of, StreamedProducts<typename StreamedInput<Math>::Type>, STEPS, WIDE, TILES, ROWS>(task, args, chunk, now, block,
                                                                                                              group, first, end);
  }
  ring.release();
}

}  // namespace rk
