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

// The products of pixels with weights, in the types in memory. Sums begin with kNone and become floats by number_of.
template <class In, int STEPS>
struct StreamedProducts {
  using Sum = float;
  static constexpr float kNone = 0.0f;
  RK_INLINE static void multiply(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) { NarrowProducts<In>::multiply(d, a, b); }
  RK_INLINE static float number_of(float sum) { return sum; }
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
  RK_INLINE void load(const char* in, uint32_t stride, uint32_t bytes, uint32_t first, uint32_t end) {
    const uint32_t g = static_cast<uint32_t>(lane_id()) / 4, t = static_cast<uint32_t>(lane_id()) % 4;
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const uint32_t pixel = first + static_cast<uint32_t>(r * kStreamedRows + h * 8) + g;
        const char* const from = in + static_cast<uint64_t>(pixel) * stride;
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

// What becomes of a warp's sums. All that arguments say is read once: behind a store the compiler would read it again.
//   Constants           what is the same for all channels
//   start               reads what a group's channels have of their own
//   fetch               starts to load a pixel's residual
//   store               makes a pixel's results of its sums; `exists`: whether there is such a pixel
// Here results of 16 bits or more, in floats until they are stored. ADDS: StreamedAdds; SMOOTH: the activation is no clamp.
template <class Of, int TILES, int ADDS, bool SMOOTH>
struct StreamedResults {
  using Out = typename Of::Out;
  using Added = typename Of::Added;
  static constexpr int kChannels = 2 * TILES, kFours = kChannels / 4;  // of a lane
  struct Constants {
    float low, high;
    int32_t activation;
    RK_INLINE explicit Constants(const StreamedConvArgs& args)
        : low(args.clip.low), high(args.clip.high), activation(args.epilogue.activation) {}
  };
  struct Residual {
    Raw4<Added> fours[ADDS != kStreamedNoResidual ? kFours : 1];
  };
  float4 bias[kFours], scale[Of::kScales ? kFours : 1];

  // `first`: of the lane's channels, in its block of `channels`.
  RK_INLINE void start(const char* rows, int first, int channels) {
#pragma unroll
    for (int i = 0; i < kFours; ++i) {
      if constexpr (Of::kScales) scale[i] = load_shared4(rows, (first + 4 * i) * 4);
      bias[i] = load_shared4(rows, streamed_row_bytes(channels) + (first + 4 * i) * 4);
    }
  }
  RK_INLINE static void fetch(const Added* from, int left, Residual& r) {
#pragma unroll
    for (int i = 0; i < (ADDS != kStreamedNoResidual ? kFours : 0); ++i) {
      if (4 * i < left) r.fours[i] = load_raw4(from + 4 * i);
    }
  }
  RK_INLINE static float4 activated(const Constants& k, const float4& v) {
    if constexpr (SMOOTH) return smooth4(k.activation, v);
    return clamp4(v, k.low, k.high);
  }
  RK_INLINE float4 four(const Constants& k, const float* sums, const Residual& r, int i) const {
    const float4 b = bias[i];
    float4 v = {sums[0], sums[1], sums[2], sums[3]};
    if constexpr (Of::kScales) {
      const float4 s = scale[i];
      v = {fmaf(v.x, s.x, b.x), fmaf(v.y, s.y, b.y), fmaf(v.z, s.z, b.z), fmaf(v.w, s.w, b.w)};
    } else {
      v = add4(v, b);
    }
    if constexpr (ADDS == kStreamedBefore) v = add4(v, r.fours[i].floats());
    v = activated(k, v);
    if constexpr (ADDS == kStreamedAfter) v = add4(v, r.fours[i].floats());
    return v;
  }
  RK_INLINE void store(const Constants& k, const float (&sums)[kChannels], const Residual& r, bool exists, int left, Out* to) const {
#pragma unroll
    for (int i = 0; i < kFours; i += 2) {
      const float4 v = four(k, sums + 4 * i, r, i);
      if constexpr (kFours == 1) {
        if (exists && left > 0) store4(to, v);
      } else {
        const float4 w = four(k, sums + 4 * i + 4, r, i + 1);
        const float eight[8] = {v.x, v.y, v.z, v.w, w.x, w.y, w.z, w.w};
        if (exists && 4 * i < left) store8(to + 4 * i, eight);
      }
    }
  }
};
template <class Of, int TILES, int ADDS, bool SMOOTH>
struct StreamedResultsOf {
  using Type = StreamedResults<Of, TILES, ADDS, SMOOTH>;
};

// What a rTask has in registers for all its turns.
template <class Results>
struct StreamedBlock {
  using Out = typename Results::Out;
  using Added = typename Results::Added;
  typename Results::Constants constants;
  const char* chunk;
  Out* out;            // of the block's first channel
  const Added* added;  // the same of the residual
  uint32_t out_stride, residual_stride;
  int left;  // channels that exist from the block's first one on
  int groups;

  template <class Veu>
  RK_INLINE StreamedBlock(const Task<Veu>& task, const StreamedConvArgs& args, const char* chunk_, int first)
      : constants(args),
        chunk(chunk_),
        out(values_at<Out>(task, args.out) + first),
        added(values_at<Added>(task, args.epilogue.residual) + first),
        out_stride(args.out_stride),
        residual_stride(args.residual_stride),
        left(args.channels - first),
        groups(args.groups) {}
};

// The sums of group `group` of a block, and what becomes of them. first: of the warp's pixels; end: of those that exist.
template <class Results, class Products, int STEPS, bool WIDE, int TILES, int ROWS, bool ADDS>
RK_INLINE void streamed_group(const StreamedBlock<Results>& block, const StreamedPixels<STEPS, WIDE, ROWS>& pixels, int group,
                              uint32_t first, uint32_t end) {
  constexpr int kChannels = 8 * TILES;
  const int channels = block.groups * kChannels, channel = group * kChannels + lane_id() % 4 * 2 * TILES, left = block.left - channel;
  const uint32_t own = first + static_cast<uint32_t>(lane_id()) / 4;
  typename Results::Residual residual[ROWS][2];
  if constexpr (ADDS) {
#pragma unroll
    for (int i = 0; i < 2 * ROWS; ++i) {
      const uint32_t pixel = own + static_cast<uint32_t>(i * 8);
      if (pixel < end)
        Results::fetch(block.added + static_cast<uint64_t>(pixel) * block.residual_stride + channel, left, residual[i / 2][i % 2]);
    }
  }
  Results results;
  results.start(block.chunk + streamed_weight_bytes(STEPS, channels), channel, channels);
  typename Products::Sum sums[ROWS][TILES][4];
#pragma unroll
  for (int i = 0; i < ROWS * TILES * 4; ++i) sums[i / (TILES * 4)][i / 4 % TILES][i % 4] = Products::kNone;
  const int weights = group * streamed_weight_bytes(STEPS, kChannels) + lane_id() * 16;
#pragma unroll
  for (int s = 0; s < STEPS; ++s) {
#pragma unroll
    for (int j = 0; j < TILES; j += 2) {
      const float4 w = load_shared4(block.chunk, weights + (s * TILES + j) * (kWarp * 8));
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
#pragma unroll
  for (int i = 0; i < 2 * ROWS; ++i) {
    const uint32_t pixel = own + static_cast<uint32_t>(i * 8);
    float of_pixel[2 * TILES];
#pragma unroll
    for (int j = 0; j < TILES; ++j) {
      of_pixel[2 * j] = Products::number_of(sums[i / 2][j][i % 2 * 2]);
      of_pixel[2 * j + 1] = Products::number_of(sums[i / 2][j][i % 2 * 2 + 1]);
    }
    results.store(block.constants, of_pixel, residual[i / 2][i % 2], pixel < end, left,
                  block.out + static_cast<uint64_t>(pixel) * block.out_stride + channel);
  }
}

template <class Veu, class Math, int STEPS, bool WIDE, int TILES, int ROWS, int ADDS, bool SMOOTH>
RK_BODY void streamed_conv(const Task<Veu>& caller) {
  using Results = typename StreamedResultsOf<StagedMath<Math>, TILES, ADDS, SMOOTH>::Type;
  using Products = StreamedProducts<typename StreamedInput<Math>::Type, STEPS>;
  const Task<Veu> task = caller;  // in registers; the caller's copy is in memory
  const StreamedConvArgs& args = task.template arguments<StreamedConvArgs>();
  uint32_t part;
  const auto number = static_cast<int>(divide(task.index, args.parts, part));
  constexpr uint32_t kPixels = ROWS * kStreamedRows, kTurn = kPixels * kComputeWarps;  // kPixels: of a warp's turn
  const uint32_t end = min((part + 1) * args.pixels_per_rtask, args.pixels);
  uint32_t first = part * args.pixels_per_rtask + static_cast<uint32_t>(warp_id()) * kPixels;
  WeightPipe<Veu> ring = task.weights;
  const StreamedBlock<Results> block(task, args, ring.acquire(), number * args.groups * 8 * TILES);
  const char* const in = reinterpret_cast<const char*>(task.address(args.in));
  const uint32_t in_stride = args.in_stride, in_bytes = args.in_bytes;
  task.await_inputs();
  StreamedPixels<STEPS, WIDE, ROWS> now, next;
  next.load(in, in_stride, in_bytes, first, end);
#pragma unroll 1
  for (; first < end; first += kTurn) {
    now = next;
    next.load(in, in_stride, in_bytes, first + kTurn, end);
#pragma unroll 1
    for (int group = 0; group < block.groups; ++group)
      streamed_group<Results, Products, STEPS, WIDE, TILES, ROWS, ADDS != kStreamedNoResidual>(block, now, group, first, end);
  }
  ring.release();
}

}  // namespace rk
