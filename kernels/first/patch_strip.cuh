// Convolution of few input channels, as patch_conv.cuh computes it, where a vEU has many tiles of output pixels. A rTask takes `turns`
// tiles, one after another: the input of the next tile is on its way while the present one is multiplied, weights stay in registers, and
// results go from registers to memory, 16 bytes a store.
//
// The patch of a tile has the row of every channel for every row of the image, [y][channel][x], so that the rows of a filter lie equally
// far apart. k runs over (row of the filter, channel, column padded to COLUMNS), in granules of 8: lane t = lane % 4 of a pixel has the
// neighbours 2t and 2t + 1 of a granule, one load. For that the stride is even, and the padded row begins one column ahead of the filter
// where `pad_w` is odd. What only pads is cut off after the load (zero times infinity is not zero). In fp16 and bf16 the patch arrives as
// floats and is rounded into a second place, of which there are two; in tf32 there are two patches.
//
// A warp has 32 * WARPS_N pixels of the 256 of a tile, 32 at a time, by 32 channels (16 in tf32). Pixels are operand A. The channels of a
// warp are dealt out such that the results of a lane are neighbours.
//
// Example: a filter of 7 x 7 with stride 2, pads of 3 and 3 input channels, and tiles of 16 x 16 pixels. Tile 8 of an image with 7 tiles a
// row begins at pixel (16, 16), whose first tap is (29, 29). The padded row begins at column 28, so the patch does, too. Pixel 37 of the
// tile is row 2, column 5; its first tap is in row 2 * 2 * 3 = 12 of the patch. Lane 13 has g = 3 and t = 1: of granule 4, which is row 1
// of the filter and channel 1, it loads columns 2 and 3 from row 16 of the patch, places 12 and 13.
#pragma once

#include "kernels/first/numbers.cuh"
#include "kernels/tile/channels4.cuh"
#include "kernels/vdevice/mma.cuh"

namespace rk {

struct PatchStripArgs {              // in tables
  TensorRef in, out, weights, bias;  // bias: padded to whole blocks of channels
  PixelStrides in_strides, out_strides;
  int32_t in_h, in_w, out_h, out_w, channels;
  int32_t stride_h, stride_w, pad_h, pad_w;
  int32_t tile_h, tile_w, kernel_w;
  int32_t rows, patch_bytes;  // of a patch of floats: rows to copy; what it takes
  int32_t tiles, turns;       // of all images, of a rTask
  int32_t activation;         // kStripSmooth
  float low, high;            // otherwise
  Divisor strips;             // rTasks of a block of channels
  Divisor tiles_w, tiles_h, columns;
  float in_step{}, in_low{}, in_high{};  // QUANTISES: inputs become rounded(x / in_step; in_low, in_high)
};

// A tile: its first output pixel, and what the patch begins with; `shift` columns later the first pixel's padded row begins.
struct StripPlace {
  int32_t image, oh, ow, y, x, shift;
};

RK_INLINE StripPlace strip_place(const PatchStripArgs& args, int tile) {
  uint32_t tile_x, tile_y;
  const uint32_t image = divide(divide(static_cast<uint32_t>(tile), args.tiles_w, tile_x), args.tiles_h, tile_y);
  const int32_t oh = static_cast<int32_t>(tile_y) * args.tile_h, ow = static_cast<int32_t>(tile_x) * args.tile_w;
  const int32_t first = ow * args.stride_w - args.pad_w - args.pad_w % 2, x = first & ~3;
  return {static_cast<int32_t>(image), oh, ow, oh * args.stride_h - args.pad_h, x, first - x};
}

// Starts the copies of a patch, CELL floats each. Every place of a row is copied, also those that no pixel needs.
template <int CHANNELS, int ROW_CELLS, int CELL>
RK_INLINE void copy_strip(const PatchStripArgs& args, const StripPlace& place, const float* in, char* patch) {
  constexpr int kRowCopies = ROW_CELLS * 4 / CELL;
  const PixelStrides s = args.in_strides;
  const int copies = args.rows * kRowCopies;
  in += place.image * s.image;
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x); i < copies; i += kComputeWarps * kWarp) {
    const int row = i / kRowCopies, y = place.y + row / CHANNELS, x = place.x + i % kRowCopies * CELL;
    const bool valid =
        static_cast<uint32_t>(y) < static_cast<uint32_t>(args.in_h) && static_cast<uint32_t>(x) < static_cast<uint32_t>(args.in_w);
    const float* const from = in + (row % CHANNELS * s.channel + y * s.h + x * s.w);
    if constexpr (CELL == 4)
      cp_async16(patch + i * 16, from, valid);
    else
      cp_async4(patch + i * 4, from, valid);
  }
}

// Rounds a patch of floats to 16 bits. A thread takes the cells that it has copied, if they were copied by 16 bytes. QUANTISES: to whole
// numbers first, as the quantisation of a network's input does; what lies outside the image is 0 before and after.
template <class Math, int ROW_CELLS, bool QUANTISES>
RK_INLINE void round_strip(const PatchStripArgs& args, const char* floats, char* rounded) {
  const int cells = args.rows * ROW_CELLS;
  const float step = args.in_step, per_step = 1.0f / step, low = args.in_low, high = args.in_high;
#pragma unroll 2
  for (int i = static_cast<int>(threadIdx.x); i < cells; i += kComputeWarps * kWarp) {
    float4 v = load_shared4(floats, i * 16);
    if constexpr (QUANTISES)
      v = clamped4<true>(
          {quotient(v.x, step, per_step), quotient(v.y, step, per_step), quotient(v.z, step, per_step), quotient(v.w, step, per_step)}, low,
          high);
    store_shared2(rounded, i * 8, {float_of(pair_of<Math>(v.x, v.y)), float_of(pair_of<Math>(v.z, v.w))});
  }
}

// Math: what is multiplied: Half, Bfloat, or float for tf32. ROWS: of the filter, of all channels. ROW_CELLS: 16-byte cells of a patch's
// row of floats.
template <class Math, int ROWS, int CHANNELS, int COLUMNS, int ROW_CELLS, int WARPS_N>
struct StripProduct {
  static constexpr bool kNarrow = sizeof(Math) == 2;
  static constexpr int kTiles = strip_tiles(kNarrow);  // of 8 channels
  static constexpr int kLaneChannels = 2 * kTiles, kWarpChannels = 8 * kTiles, kBlock = WARPS_N * kWarpChannels;
  static constexpr int kGranules = strip_granules(ROWS, COLUMNS);
  static constexpr bool kHalfGranule = ROWS * COLUMNS % 8 != 0;  // the last granule has one row of 4 columns only
  static constexpr int kBytes = sizeof(Math), kRowBytes = ROW_CELLS * 4 * kBytes, kGranuleBytes = 8 / COLUMNS * kRowBytes;
  static constexpr int kWarpsM = kComputeWarps / WARPS_N, kChunkPixels = 32, kChunks = kStripPixels / (kWarpsM * kChunkPixels);
  static_assert(COLUMNS == 4 || COLUMNS == 8);

  uint32_t weight[kGranules][4];  // 16 bits: k 2t and 2t + 1 of tile i; tf32: k 2t and then 2t + 1 of tile 0, those of tile 1
  float sum[2][kTiles][4];
  uint32_t keep[2];  // the bits of a lane's two values of k that do not only pad; of a pair of 16 bits keep[0] has both

  RK_INLINE static int warp_n() { return warp_id() % WARPS_N; }
  RK_INLINE static int lane_channel() { return warp_n() * kWarpChannels + lane_id() % 4 * kLaneChannels; }
  // Which pixel of the tile row `row` of operand A is; row: 0 to 31, lane / 4 left out.
  RK_INLINE static int pixel(int chunk, int row) { return (chunk * kWarpsM + warp_id() / WARPS_N) * kChunkPixels + row + lane_id() / 4; }

  template <class Veu>
  RK_INLINE void start(const Task<Veu>& task, const PatchStripArgs& args, int block) {
    const float* const weights = task.address(args.weights) + ((block * WARPS_N + warp_n()) * kGranules * kWarp + lane_id()) * 4;
#pragma unroll
    for (int i = 0; i < kGranules; ++i) {
      const float4 v = load_weight4(weights + i * kWarp * 4);
      weight[i][0] = bits_of(v.x), weight[i][1] = bits_of(v.y), weight[i][2] = bits_of(v.z), weight[i][3] = bits_of(v.w);
    }
    const int column = lane_id() % (COLUMNS / 2) * 2 - args.pad_w % 2;  // of the filter
    const auto exists = [&](int c) { return static_cast<uint32_t>(c) < static_cast<uint32_t>(args.kernel_w); };
    if constexpr (kNarrow) {
      keep[0] = (exists(column) ? 0xffffu : 0u) | (exists(column + 1) ? 0xffff0000u : 0u);
    } else {
      keep[0] = exists(column) ? kFullMask : 0u;
      keep[1] = exists(column + 1) ? kFullMask : 0u;
    }
  }

  // Where pixel p of a tile finds this lane's first values; pixels behind the end of the tile take those of the last one.
  RK_INLINE static int offset_in_patch(const PatchStripArgs& args, const StripPlace& place, int p) {
    const int t = lane_id() % 4, row = COLUMNS == 8 ? 0 : t / 2, column = t % (COLUMNS / 2) * 2;
    uint32_t w;
    const int h = static_cast<int>(divide(static_cast<uint32_t>(min(p, args.tile_h * args.tile_w - 1)), args.columns, w));
    return (h * args.stride_h * CHANNELS + row) * kRowBytes + (static_cast<int>(w) * args.stride_w + place.shift + column) * kBytes;
  }

  template <int GRANULE>
  RK_INLINE uint32_t kept(uint32_t value, int which) const {
    if (kHalfGranule && GRANULE == kGranules - 1 && lane_id() % 4 >= 2) return 0;
    return value & keep[which];
  }
  // Operand A of a granule for two rows that are 8 apart: in 16 bits words 0 and 1, or 2 and 3, in tf32 all four.
  template <int GRANULE>
  RK_INLINE void load(const char* upper, const char* lower, uint32_t (&a)[4]) const {
    constexpr int kAt = GRANULE * kGranuleBytes, kWord = kNarrow ? GRANULE % 2 * 2 : 0;
    if constexpr (GRANULE >= kGranules) {
      a[kWord] = a[kWord + 1] = 0;
    } else if constexpr (kNarrow) {
      a[kWord] = kept<GRANULE>(*reinterpret_cast<const uint32_t*>(upper + kAt), 0);
      a[kWord + 1] = kept<GRANULE>(*reinterpret_cast<const uint32_t*>(lower + kAt), 0);
    } else {
      const float2 x = *reinterpret_cast<const float2*>(upper + kAt), y = *reinterpret_cast<const float2*>(lower + kAt);
      a[0] = kept<GRANULE>(to_tf32(x.x), 0), a[1] = kept<GRANULE>(to_tf32(y.x), 0);
      a[2] = kept<GRANULE>(to_tf32(x.y), 1), a[3] = kept<GRANULE>(to_tf32(y.y), 1);
    }
  }
  // All products of granules from GRANULE on.
  template <int GRANULE = 0>
  RK_INLINE void add(const char* const (&row)[4]) {
    if constexpr (GRANULE < kGranules) {
      uint32_t a[2][4];
#pragma unroll
      for (int m = 0; m < 2; ++m) {
        load<GRANULE>(row[2 * m], row[2 * m + 1], a[m]);
        if constexpr (kNarrow) load<GRANULE + 1>(row[2 * m], row[2 * m + 1], a[m]);
      }
#pragma unroll
      for (int i = 0; i < kTiles; ++i) {
        uint32_t b[2];
        if constexpr (kNarrow) {
          b[0] = weight[GRANULE][i];
          b[1] = 0;
          if constexpr (GRANULE + 1 < kGranules) b[1] = weight[GRANULE + 1][i];
        } else {
          b[0] = weight[GRANULE][2 * i];
          b[1] = weight[GRANULE][2 * i + 1];
        }
#pragma unroll
        for (int m = 0; m < 2; ++m) {
          if constexpr (!kNarrow)
            mma_tf32(sum[m][i], a[m], b);
          else if constexpr (std::is_same_v<Math, Half>)
            mma_f16(sum[m][i], a[m], b);
          else
            mma_bf16(sum[m][i], a[m], b);
        }
      }
      add<GRANULE + (kNarrow ? 2 : 1)>(row);
    }
  }

  // The sums of 32 pixels; SCALED: without the bias, else with it.
  template <bool SCALED>
  RK_INLINE void compute(const PatchStripArgs& args, const StripPlace& place, const char* patch, const char* bias, int chunk) {
    __syncwarp();  // lanes without a pixel or channel are ahead
    const char* row[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) row[i] = patch + offset_in_patch(args, place, pixel(chunk, i * 8));
#pragma unroll
    for (int i = 0; i < kTiles; i += 2) {
      float4 v = {0.0f, 0.0f, 0.0f, 0.0f};
      if constexpr (!SCALED) v = load_shared4(bias, (lane_channel() + 2 * i) * 4);
#pragma unroll
      for (int m = 0; m < 2; ++m) {
        sum[m][i][0] = sum[m][i][2] = v.x, sum[m][i][1] = sum[m][i][3] = v.y;
        sum[m][i + 1][0] = sum[m][i + 1][2] = v.z, sum[m][i + 1][1] = sum[m][i + 1][3] = v.w;
      }
    }
    add(row);
  }
  // Channels 4 q to 4 q + 3 of the lane's, of the pixel in row i * 8 of the chunk.
  RK_INLINE float4 sums_of(int i, int q) const {
    const auto& s = sum[i / 2];
    const int e = i % 2 * 2;
    return {s[2 * q][e], s[2 * q][e + 1], s[2 * q + 1][e], s[2 * q + 1][e + 1]};
  }
};

// The sums of four channels from `channel` of the block on. kStripRounded: of whole numbers, which have a scale (behind the biases).
template <int END, int BLOCK>
RK_INLINE float4 finish_strip(const PatchStripArgs& args, const float4& v, const char* bias, int channel) {
  if constexpr (END == kStripSmooth) return smooth4(args.activation, v);
  if constexpr (END == kStripClamped) return clamp4(v, args.low, args.high);
  const float4 plus = load_shared4(bias, channel * 4), times = load_shared4(bias, (BLOCK + channel) * 4);
  return clamped4<true>({fmaf(v.x, times.x, plus.x), fmaf(v.y, times.y, plus.y), fmaf(v.z, times.z, plus.z), fmaf(v.w, times.w, plus.w)},
                        args.low, args.high);
}

// Stores the results of 32 pixels of a tile whose first result is `out`, already that of the lane's first channel.
template <int END, class Product, class Out>
RK_INLINE void store_strip(const PatchStripArgs& args, const StripPlace& place, const Product& product, int chunk, const char* bias,
                           Out* out) {
  const auto finished = [&](int i, int q) {
    return finish_strip<END, Product::kBlock>(args, product.sums_of(i, q), bias, Product::lane_channel() + 4 * q);
  };
  const PixelStrides s = args.out_strides;
  const int rows = min(args.tile_h, args.out_h - place.oh), columns = args.out_w - place.ow;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    uint32_t column;
    const int h = static_cast<int>(divide(static_cast<uint32_t>(Product::pixel(chunk, i * 8)), args.columns, column)),
              w = static_cast<int>(column);
    if (h >= rows || w >= columns) continue;
    Out* const to = out + (h * s.h + w * s.w);
    if constexpr (sizeof(Out) == 2 && Product::kLaneChannels == 8) {
      const float4 a = finished(i, 0), b = finished(i, 1);
      store4(reinterpret_cast<float*>(to), {float_of(pair_of<Out>(a.x, a.y)), float_of(pair_of<Out>(a.z, a.w)),
                                            float_of(pair_of<Out>(b.x, b.y)), float_of(pair_of<Out>(b.z, b.w))});
    } else {
#pragma unroll
      for (int q = 0; q < Product::kLaneChannels / 4; ++q) store4(to + 4 * q, finished(i, q));
    }
  }
}

// END: a StripEnd.
template <class Veu, class Math, int ROWS, int CHANNELS, int COLUMNS, int ROW_CELLS, int WARPS_N, int CELL, int END, class Out = float,
          bool QUANTISES = false>
RK_BODY void patch_strip(const Task<Veu>& caller) {
  using Product = StripProduct<Math, ROWS, CHANNELS, COLUMNS, ROW_CELLS, WARPS_N>;
  static_assert(Veu::kComputeThreads == kComputeWarps * kWarp);
  const Task<Veu> task = caller;  // in registers; the caller's copy is in memory
  const PatchStripArgs& args = task.template arguments<PatchStripArgs>();
  uint32_t strip;
  const int block = static_cast<int>(divide(task.index, args.strips, strip));
  int tile = static_cast<int>(strip) * args.turns;
  const int end = min(tile + args.turns, args.tiles), bytes = args.patch_bytes;
  char* const work = as_shared(task.work);
  copy_strip<CHANNELS, ROW_CELLS, CELL>(args, strip_place(args, tile), task.address(args.in), work);
  cp_async_commit();

  // The bias lies in shared memory: beside weights and sums there are too few registers.
  constexpr int kBiases = END == kStripRounded ? 2 * Product::kBlock : Product::kBlock;  // scales behind them
  char* const bias = work + 2 * bytes;
  if (threadIdx.x < kBiases)
    store_shared_word(bias, static_cast<int>(threadIdx.x) * 4,
                      bits_of(load_weight1(task.address(args.bias) + block * kBiases + static_cast<int>(threadIdx.x))));
  Product product;
  product.start(task, args, block);
  // Little is kept from tile to tile: weights and sums take nearly all registers.
  bool more;
  int turn = 0;
#pragma unroll 1
  do {
    const StripPlace place = strip_place(args, tile);
    cp_async_wait<0>();
    char* patch = work + turn * bytes;
    if constexpr (Product::kNarrow) {
      if constexpr (CELL == 1) sync_compute<Veu>();
      patch = work + bytes + turn * (bytes / 2);
      round_strip<Math, ROW_CELLS, QUANTISES>(args, work, patch);
    }
    // Every thread has multiplied the tile before, so the place of that tile is free.
    sync_compute<Veu>();
    turn ^= 1;
    more = ++tile < end;
    if (more) {
      copy_strip<CHANNELS, ROW_CELLS, CELL>(args, strip_place(args, tile), task.address(args.in),
                                            Product::kNarrow ? work : work + turn * bytes);
      cp_async_commit();
    }
    const int channel = block * Product::kBlock + Product::lane_channel();
#pragma unroll 1
    for (int chunk = 0; chunk < Product::kChunks; ++chunk) {
      product.template compute<END == kStripRounded>(args, place, patch, bias, chunk);
      Out* const first = values_at<Out>(task, args.out) + offset_of({place.image, place.oh, place.ow}, args.out_strides) + channel;
      if (channel < args.channels) store_strip<END>(args, place, product, chunk, bias, first);
    }
  } while (more);
}

}  // namespace rk
