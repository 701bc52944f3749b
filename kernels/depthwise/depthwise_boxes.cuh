// Depthwise convolution with large filters, inputs by boxes: y[h, w, c] = clip(bias[c] + sum of x[h + ky, w + kx, c] * weight[ky, kx, c]),
// stride 1, no dilation.
//
// A rTask is a tile of `tile_h` rows by kPixels columns of the channels of one box (kernels/vdevice/boxes.cuh): 64 channels of 16 bits, or
// 32 of floats. The waiter copies the tile's input with its halo, and zeros for the padding, in one box, so no thread computes an address
// in global memory or asks where the map ends. The channels' weights and their bias are one chunk of the ring of weight stages,
// [tap][channel], then the bias.
//
// A thread has two channels, so the lanes of a row read whole rows of the box: 128 bytes, without bank conflicts. A box is
// kDepthwiseColumns pixels wide, a multiple of eight, so cells of column i are permuted by i % 8 in every row. The threads are cut into
// slots of a box's channels; `parts` slots, a power of two, share a row of the tile, each with some rows of the filter. Their sums meet in
// shared memory, where each slot takes those of some pixels.
//
// Where kKeeps says so, the 16 lanes that have 32 neighbouring channels give the moments of each pixel as well (kernels/tile/moments.cuh),
// for the normalisation behind the convolution; and where kRounds says so, results of fp32 are stored a second time, in fp16.
//
// Example: 7 taps, inputs of 16 bits, tiles of 2 x 7, 4 parts. A box is 8 x 16 pixels. Warp 6 is slot 6: part 2 of row 1, so it has rows 2
// and 6 of the filter, and in the end pixels 2 and 6. Its lane 13 has channels 26 and 27 of the box. For row 2 of the filter it reads rows
// (1 + 2)
// * 16 + 0 to 12 of the box. Its channels are in cell 3, which in column 5 is at place 3 ^ 5 = 6: byte (48 + 5) * 128 + 6 * 16 + 4.
#pragma once

#include "kernels/depthwise/numbers.cuh"
#include "kernels/tile/lean_epilogue.cuh"
#include "kernels/tile/moments.cuh"

namespace rk {

struct DepthwiseBoxesArgs {  // in tables
  TensorRef out, kept;       // kept: moments [pixel][part]{mean, squares} of the results' pixels, or none
  TensorRef rounded;         // as out, or none
  int32_t out_strides[3];    // elements: image, row, column
  int32_t channels;          // of the map
  int32_t grid_h, grid_w;    // of the results
  int32_t tile_h;
  int32_t parts_log2;  // no more parts than slots / tile_h
  int32_t kept_parts;  // moments of a pixel
  ClipArgs clip;       // the activation, where no moments are kept; no residual
  Divisor tiles, tiles_w, tiles_h;
};

template <class Veu, int kTaps, int kPixels, bool kKeeps, class In, class Out, bool kRounds>
struct DepthwiseTile {
  static constexpr int kSeen = kPixels + kTaps - 1;                                             // columns of the box that are of use
  static constexpr int kChannels = kBoxRowBytes / static_cast<int>(sizeof(In));                 // of the box
  static constexpr int kLanes = kChannels / 2;                                                  // of a slot
  static constexpr int kRowBytes = kDepthwiseColumns * kBoxRowBytes, kPixelBytes = kLanes * 8;  // of the box; of the sums
  static_assert(kSeen <= kDepthwiseColumns && kDepthwiseColumns % 8 == 0);
  static_assert(depthwise_work_bytes(kPixels) == Veu::kComputeThreads * 8 * kPixels);

  int channel, part, parts, row, row_in_box;  // row: of the tile; row_in_box: the last where there is no such row
  int pixels;                                 // of the row that exist
  int pixel_stride, kept_stride;              // from a pixel to the next
  char* sums;                                 // of the row's part 0
  Out* out;                                   // of the row's first pixel
  Half* rounded;
  float2* kept;

  RK_INLINE void start(const Task<Veu>& task, const DepthwiseBoxesArgs& args) {
    uint32_t tile, column, line;
    const uint32_t group = divide(task.index, args.tiles, tile);
    const int image = static_cast<int>(divide(divide(tile, args.tiles_w, column), args.tiles_h, line));
    const int slot = static_cast<int>(threadIdx.x) / kLanes;
    parts = 1 << args.parts_log2;
    part = slot & (parts - 1);
    row = slot >> args.parts_log2;
    row_in_box = min(row, args.tile_h - 1);
    channel = static_cast<int>(threadIdx.x) % kLanes * 2;
    const int map_channel = static_cast<int>(group) * kChannels + channel;
    const int h = static_cast<int>(line) * args.tile_h + row, w = static_cast<int>(column) * kPixels;
    pixels = row < args.tile_h && h < args.grid_h && map_channel < args.channels ? min(args.grid_w - w, kPixels) : 0;
    pixel_stride = args.out_strides[2];
    out = values_at<Out>(task, args.out) + (image * args.out_strides[0] + h * args.out_strides[1] + w * pixel_stride + map_channel);
    if constexpr (kRounds) {
      rounded = values_at<Half>(task, args.rounded) + (out - values_at<Out>(task, args.out));
      known_now(rounded);
    }
    if constexpr (kKeeps) {
      kept_stride = args.kept_parts;
      kept = reinterpret_cast<float2*>(task.address(args.kept)) +
             (((image * args.grid_h + h) * args.grid_w + w) * kept_stride + map_channel / kMomentColumns);
      known_now(kept);
    }
    sums = task.work + ((slot - part) * kPixels * kPixelBytes + channel * 4);
    known_now(out);
  }

  // Leaves this part's sums in shared memory.
  RK_INLINE void add_up(const char* box, const char* filter) const {
    const float2 bias = load_shared2(filter, kTaps * kTaps * kChannels * 4);
    float2 acc[kPixels];
#pragma unroll
    for (float2& sum : acc) sum = part == 0 ? bias : float2{0.0f, 0.0f};
#pragma unroll 1
    for (int ky = part; ky < kTaps; ky += parts) {
      const int at = (row_in_box + ky) * kRowBytes, cell = channel * static_cast<int>(sizeof(In));
      Raw2<In> x[kSeen];
#pragma unroll
      for (int i = 0; i < kSeen; ++i) x[i] = load_shared_raw2<In>(box, at + (cell ^ (i % 8 << 4)) + i * kBoxRowBytes);
      float2 weights[kTaps];
#pragma unroll
      for (int kx = 0; kx < kTaps; ++kx) weights[kx] = load_shared2(filter, (ky * kTaps + kx) * kChannels * 4);
#pragma unroll
      for (int i = 0; i < kSeen; ++i) {
        const float2 v = x[i].floats();
#pragma unroll
        for (int kx = 0; kx < kTaps; ++kx) {
          const int p = i - kx;
          if (p < 0 || p >= kPixels) continue;
          acc[p].x = fmaf(v.x, weights[kx].x, acc[p].x);
          acc[p].y = fmaf(v.y, weights[kx].y, acc[p].y);
        }
      }
    }
    __syncwarp();  // slots of a warp may have different numbers of rows
    char* const own = sums + part * kPixels * kPixelBytes;
#pragma unroll
    for (int p = 0; p < kPixels; ++p) store_shared2(own, p * kPixelBytes, acc[p]);
  }

  // The results of pixels part, part + parts, .., four at a time.
  RK_INLINE void finish(const DepthwiseBoxesArgs& args) const {
#pragma unroll 1
    for (int first = part; first - part < kPixels; first += 4 * parts) {
      float2 v[4] = {};
#pragma unroll 1
      for (int other = 0; other < parts; ++other) {
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          const float2 more = load_shared2(sums, (other * kPixels + min(first + j * parts, kPixels - 1)) * kPixelBytes);
          v[j] = {v[j].x + more.x, v[j].y + more.y};
        }
      }
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const int p = first + j * parts;
        if constexpr (kKeeps)
          v[j] = as_stored<Out>(v[j]);
        else
          v[j] = {fminf(fmaxf(v[j].x, args.clip.low), args.clip.high), fminf(fmaxf(v[j].y, args.clip.low), args.clip.high)};
        if (p < pixels) {
          store2(out + p * pixel_stride, v[j]);
          if constexpr (kRounds) store2(rounded + p * pixel_stride, v[j]);
        }
      }
      if constexpr (kKeeps) {
        const PixelMoments own = moments_of_pixels(v);
        const int p = first + own.pixel * parts;
        if (own.writes && p < pixels) *as_global(kept + p * kept_stride) = own.moments;
      }
    }
  }
};

template <class Veu, int kTaps, int kPixels, bool kKeeps, class In, class Out, bool kRounds = false>
RK_BODY void depthwise_boxes(const Task<Veu>& task) {
  using Tile = DepthwiseTile<Veu, kTaps, kPixels, kKeeps, In, Out, kRounds>;
  const auto& args = task.template arguments<DepthwiseBoxesArgs>();
  WeightStages<Veu> weights = task.weight_stages();
  InputStages<Veu> inputs = task.input_stages();
  Tile tile;
  tile.start(task, args);
  weights.acquire();
  const char* const filter = weights.stages + weights.base + tile.channel * 4;
  inputs.acquire();
  tile.add_up(inputs.stages + inputs.base, filter);
  inputs.release();
  weights.release();
  sync_compute<Veu>();
  tile.finish(args);
}

}  // namespace rk
