// Convolution of few input channels (the first of a network) on tensor cores:
//   out[pixel][m] = act(bias[m] + residual[pixel][m] + sum over taps and channels of in * weight)
//
// A rTask is a tile of tile_h x tile_w output pixels of one image by a block of 16 * M_TILES * WARPS_M output channels. Its threads copy
// the tile's input, with the halo and with zeros for the padding, to shared memory: this is the patch. All copies are in flight at once,
// CELL floats a copy (4 where the rows are aligned). Operand A of the products is the weights, B is the patch itself: k runs over
// (channel, row of the filter, column padded to a multiple of 4), so that a lane finds its element at the address of its pixel's first
// tap plus a number from a table. A chunk of the ring is the table of some steps of 8 k, [step][lane % 4] of {bytes of k, bytes of k +
// 4}, and the weights of these steps in fragment order, [step][tile of 16 channels][lane] of 16 bytes. A k that only pads repeats a tap
// and shares the tap's weight, so that no element is touched that is not the pixel's own: zero times infinity is not zero.
//
// WARPS_K groups of warps take every WARPS_K-th step; their sums go through shared memory, as many pixels at once as there is room for,
// where they are added and become vectors of 4 channels of a pixel. The channels of a warp are dealt out such that a lane's results are
// neighbours.
//
// Example: a filter of 3 x 3 with stride 2, a tile 8 pixels wide, a patch with a pitch of 40 floats whose first tap is in column 1. Pixel
// 27 of the tile is row 3, column 3; its first tap is at byte ((3 * 2) * 40 + 3 * 2 + 1) * 4 = 988 of the patch. k 0 to 3 are columns 0,
// 1, 2 and 2 again of the filter's row 0, k 4 to 7 those of row 1, so lane 13 (13 % 4 = 1) has k = 1 and 5 in the first step: bytes 4 and
// (40 + 1) * 4 = 164 from the first tap.
#pragma once

#include "kernels/first/numbers.cuh"
#include "kernels/tile/lean_epilogue.cuh"
#include "kernels/tile/numbers.cuh"
#include "kernels/vdevice/mma.cuh"

namespace rk {

struct PatchConvArgs {  // in tables
  TensorRef in, out;
  EpilogueArgs epilogue;  // bias: padded to whole blocks, never null; residual strides: image, channel, h, w; PLAIN: a and b are limits
  PixelStrides in_strides, out_strides;
  int32_t in_h, in_w, out_h, out_w, channels;
  int32_t stride_h, stride_w, pad_h, pad_w;
  int32_t tile_h, tile_w;
  int32_t rows, patch_h;                // of the patch: of all channels, of one
  int32_t pitch, columns_copied;        // elements of a row of the patch
  int32_t pass_rows, row_shift;         // rows that the threads copy at once; log2 of the threads of a row
  int32_t part_pixels;                  // pixels whose sums are in shared memory together
  int32_t steps, chunk_steps;           // of 8 of k; all, and of a chunk
  int32_t vector_out, vector_residual;  // 4 channels are one aligned access, those that do not exist included
  Divisor tiles_w, tiles_h, images;     // of the rTask index
  Divisor columns;                      // of the tile
};

// Where a rTask is: its first output pixel (oh, ow), and that pixel's first tap (y, x) in the input.
struct PatchPlace {
  int32_t image, oh, ow, y, x;
  int32_t n_block;
};

RK_INLINE PatchPlace patch_place(const PatchConvArgs& args, uint32_t index) {
  uint32_t tile_x, tile_y, image;
  index = divide(index, args.tiles_w, tile_x);
  index = divide(index, args.tiles_h, tile_y);
  const int32_t n_block = static_cast<int32_t>(divide(index, args.images, image));
  const int32_t oh = static_cast<int32_t>(tile_y) * args.tile_h, ow = static_cast<int32_t>(tile_x) * args.tile_w;
  return {static_cast<int32_t>(image), oh, ow, oh * args.stride_h - args.pad_h, ow * args.stride_w - args.pad_w, n_block};
}

// The column of the patch's first element: that of the first tap or, for aligned copies, up to 3 to its left.
template <int CELL>
RK_INLINE int32_t patch_column(const PatchPlace& place) {
  return place.x & ~(CELL - 1);
}

// Starts the copies. A thread has one column of cells, in every pass_rows-th row; the threads of a row are a power of two.
template <int CELL>
RK_INLINE void copy_patch(const PatchConvArgs& args, const PatchPlace& place, const float* in, char* patch) {
  int32_t row = static_cast<int32_t>(threadIdx.x) >> args.row_shift;
  const int32_t column = (static_cast<int32_t>(threadIdx.x) - (row << args.row_shift)) * CELL;
  if (column >= args.columns_copied) return;
  const PixelStrides s = args.in_strides;
  const int32_t x = patch_column<CELL>(place) + column, patch_h = args.patch_h, end = place.y + patch_h;
  const int32_t pass_rows = args.pass_rows, pass = pass_rows * s.h, next_channel = s.channel - patch_h * s.h;
  const int32_t rows = args.rows, pitch = args.pitch;
  const uint32_t in_h = static_cast<uint32_t>(x) < static_cast<uint32_t>(args.in_w) ? static_cast<uint32_t>(args.in_h) : 0u;
  int32_t y = place.y + row;
  in += offset_of({place.image, y, x}, s);
  char* to = patch + (row * pitch + column) * 4;
#pragma unroll 1
  for (; row < rows; row += pass_rows) {
#pragma unroll 1
    for (; y >= end; y -= patch_h) in += next_channel;
    const bool valid = static_cast<uint32_t>(y) < in_h;
    if constexpr (CELL == 4)
      cp_async16(to, in, valid);
    else
      cp_async4(to, in, valid);
    to += pass_rows * pitch * 4;
    y += pass_rows;
    in += pass;
  }
}

template <int M_TILES, int N_TILES, int WARPS_M, int WARPS_K>
struct PatchProduct {
  static constexpr int kWarps = kComputeWarps;
  static constexpr int kGroupWarps = kWarps / WARPS_K;
  static constexpr int kWarpsN = kGroupWarps / WARPS_M;
  static constexpr int kBlock = 16 * M_TILES * WARPS_M;  // channels
  static constexpr int kPixels = 8 * N_TILES * kWarpsN;
  static constexpr int kTableBytes = kPatchTableBytes, kTileBytes = kPatchTileBytes;
  static constexpr int kSumRow = (kBlock + kSumPad) * 4;  // bytes of a pixel's sums: 8 lanes storing 16 bytes each do not conflict
  static_assert(kWarps % (WARPS_M * WARPS_K) == 0);

  float sum[M_TILES][N_TILES][4];
  const char* base[N_TILES];  // the first tap of pixel lane / 4 of each tile

  RK_INLINE static int group() { return warp_id() / kGroupWarps; }
  RK_INLINE static int warp_m() { return warp_id() % kGroupWarps / kWarpsN; }
  RK_INLINE static int first_pixel() { return warp_id() % kWarpsN * N_TILES * 8; }

  RK_INLINE void place(const PatchConvArgs& args, const char* patch, int32_t shift) {
    const int32_t row = args.stride_h * args.pitch, column = args.stride_w;
    // Pixels behind the end of the tile are computed, too, from the tile's last pixel.
    const int32_t last = ((args.tile_h - 1) * row + (static_cast<int32_t>(args.columns.divisor) - 1) * column + shift) * 4;
#pragma unroll
    for (int i = 0; i < N_TILES; ++i) {
      uint32_t w;
      const int32_t h = static_cast<int32_t>(divide(static_cast<uint32_t>(first_pixel() + i * 8 + lane_id() / 4), args.columns, w));
      base[i] = patch + min((h * row + static_cast<int32_t>(w) * column + shift) * 4, last);
    }
  }

  RK_INLINE void clear() {
#pragma unroll
    for (int m = 0; m < M_TILES; ++m) {
#pragma unroll
      for (int i = 0; i < N_TILES; ++i) {
#pragma unroll
        for (int e = 0; e < 4; ++e) sum[m][i][e] = 0.0f;
      }
    }
  }

  // `count` steps of a chunk. The elements of a step are loaded while the step before is multiplied.
  RK_INLINE void add(const char* chunk, int chunk_steps, int count) {
    constexpr int kTableStep = WARPS_K * kTableBytes;
    if (count <= group()) return;
    const int last = (count - 1 - group()) / WARPS_K * kTableStep;  // of this group's entries in the table
    const char* const table = chunk + group() * kTableBytes + lane_id() % 4 * 8;
    const char* weights = chunk + chunk_steps * kTableBytes + ((group() * WARPS_M + warp_m()) * M_TILES * kWarp + lane_id()) * 16;
    float next[N_TILES][2];
    load(table, next);
#pragma unroll 1
    for (int at = 0; at <= last; at += kTableStep) {
      uint32_t a[M_TILES][4], b[N_TILES][2];
#pragma unroll
      for (int m = 0; m < M_TILES; ++m) {
        const float4 w = *reinterpret_cast<const float4*>(weights + m * kTileBytes);
        a[m][0] = __float_as_uint(w.x), a[m][1] = __float_as_uint(w.y), a[m][2] = __float_as_uint(w.z), a[m][3] = __float_as_uint(w.w);
      }
#pragma unroll
      for (int i = 0; i < N_TILES; ++i) b[i][0] = to_tf32(next[i][0]), b[i][1] = to_tf32(next[i][1]);
      load(table + min(at + kTableStep, last), next);  // the last step loads its own elements once more
      weights += WARPS_K * WARPS_M * M_TILES * kTileBytes;
#pragma unroll
      for (int i = 0; i < N_TILES; ++i) {
#pragma unroll
        for (int m = 0; m < M_TILES; ++m) mma_tf32(sum[m][i], a[m], b[i]);
      }
    }
  }

  RK_INLINE void load(const char* entry, float (&to)[N_TILES][2]) const {
    const int2 taps = *reinterpret_cast<const int2*>(entry);
#pragma unroll
    for (int i = 0; i < N_TILES; ++i) {
      to[i][0] = *reinterpret_cast<const float*>(base[i] + taps.x);
      to[i][1] = *reinterpret_cast<const float*>(base[i] + taps.y);
    }
  }

  // Stores the sums of `pixels` pixels from `first` on, if they are this warp's: kSumRow bytes a pixel, `pixels` pixels for each group
  // of warps. A lane has pixels 2t and 2t + 1 of a tile (t = lane % 4), and of each 4 channels from every pair of tiles of 16 channels;
  // where the number of tiles is odd, 2 from the last.
  RK_INLINE void store(char* sums, int first, int pixels) const {
    const int lane = lane_id(), g = lane / 4, pixel_of_part = first_pixel() - first;
    if (pixel_of_part < 0 || pixel_of_part >= pixels) return;
    char* const to = sums + (group() * pixels + pixel_of_part + lane % 4 * 2) * kSumRow + warp_m() * M_TILES * 64;
#pragma unroll
    for (int i = 0; i < N_TILES; ++i) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        char* const pixel = to + (i * 8 + e) * kSumRow;
#pragma unroll
        for (int m = 0; m + 1 < M_TILES; m += 2) {
          *reinterpret_cast<float4*>(pixel + m * 64 + g * 16) = {sum[m][i][e], sum[m][i][e + 2], sum[m + 1][i][e], sum[m + 1][i][e + 2]};
        }
        if constexpr (M_TILES % 2 == 1) {
          constexpr int kLast = M_TILES - 1;
          *reinterpret_cast<float2*>(pixel + kLast * 64 + g * 8) = {sum[kLast][i][e], sum[kLast][i][e + 2]};
        }
      }
    }
  }
};

// Makes results of sums: a thread has 4 channels of every kRowPixels-th pixel.
template <class Product, bool PLAIN, class Out>
struct PatchFinish {
  static constexpr int kVectors = Product::kBlock / 4, kRowPixels = 256 / kVectors;
  Out* out;
  const Out* residual;
  float4 bias;
  float low, high;
  int32_t left;  // channels

  RK_INLINE static int first_pixel() { return static_cast<int>(threadIdx.x) / kVectors; }
  RK_INLINE static int vector() { return static_cast<int>(threadIdx.x) % kVectors; }

  template <class Veu>
  RK_INLINE void start(const Task<Veu>& task, const PatchConvArgs& args, const PatchPlace& place) {
    const EpilogueArgs& e = args.epilogue;
    const int channel = place.n_block * Product::kBlock + vector() * 4;
    left = first_pixel() < kRowPixels ? args.channels - channel : 0;
    bias = load_weight4(task.address(e.bias) + channel);
    out = values_at<Out>(task, args.out) + offset_of({place.image, place.oh, place.ow}, args.out_strides) +
          channel * args.out_strides.channel;
    if constexpr (PLAIN) {
      low = e.a;
      high = e.b;
    } else {
      const PixelStrides s = narrow(e.residual_strides);
      residual = values_at<Out>(task, e.residual);
      if (residual != nullptr) residual += offset_of({place.image, place.oh, place.ow}, s) + channel * s.channel;
    }
  }

  // Pixels [first, first + pixels) of the tile.
  template <int GROUPS>
  RK_INLINE void store(const PatchConvArgs& args, const PatchPlace& place, const char* sums, int first, int pixels) const {
    if (left <= 0) return;
    const int32_t rows = min(args.tile_h, args.out_h - place.oh), columns = args.out_w - place.ow;
    const PixelStrides s = args.out_strides, r = narrow(args.epilogue.residual_strides);
    const Divisor tile_w = args.columns;
    sums += vector() * 16;
#pragma unroll 1
    for (int32_t pixel = first_pixel(); pixel < pixels; pixel += kRowPixels) {
      uint32_t column;
      const int32_t h = static_cast<int32_t>(divide(static_cast<uint32_t>(first + pixel), tile_w, column)),
                    w = static_cast<int32_t>(column);
      if (h >= rows) break;
      if (w >= columns) continue;
      float4 v = bias;
#pragma unroll
      for (int g = 0; g < GROUPS; ++g) v = add4(v, *reinterpret_cast<const float4*>(sums + (g * pixels + pixel) * Product::kSumRow));
      Out* const to = out + (h * s.h + w * s.w);
      if constexpr (PLAIN) {
        store_left(to, left, clamp4(v, low, high));
      } else {
        float4 x = {0.0f, 0.0f, 0.0f, 0.0f};
        if (residual != nullptr) x = load_channels4(residual + (h * r.h + w * r.w), r.channel, args.vector_residual != 0, left);
        store_channels4(to, s.channel, args.vector_out != 0 && left >= 4, left, finish4(args.epilogue, v, x));
      }
    }
  }
};

template <class Product, class Finish, int WARPS_K, int CELL, class Veu, class Args>
RK_INLINE void patch_product(const Task<Veu>& task, const Args& all, const PatchConvArgs& args) {
  static_assert(Veu::kComputeThreads == Product::kWarps * kWarp);
  char* const patch = as_shared(task.work);
  const PatchPlace place = patch_place(args, task.index);
  copy_patch<CELL>(args, place, task.address(args.in), patch);
  cp_async_commit();

  // What depends on no copy is done while the copies are in flight.
  Finish finish;
  finish.start(task, all, place);
  Product product;
  product.place(args, patch, place.x - patch_column<CELL>(place));
  product.clear();
  WeightPipe<Veu> weights = task.weights;
  const int chunk_steps = args.chunk_steps;
  cp_async_wait<0>();
  if constexpr (requires { finish.template prepare<CELL>(args, patch); }) finish.template prepare<CELL>(args, patch);
  sync_compute<Veu>();
  int steps = args.steps;  // at least one
#pragma unroll 1
  do {
    product.add(as_shared(weights.acquire()), chunk_steps, min(chunk_steps, steps));
    weights.release();
    steps -= chunk_steps;
  } while (steps > 0);
  // The sums lie where the patch was.
  const int part_pixels = args.part_pixels;
#pragma unroll 1
  for (int first = 0; first < Product::kPixels; first += part_pixels) {
    sync_compute<Veu>();
    product.store(patch, first, part_pixels);
    sync_compute<Veu>();
    finish.template store<WARPS_K>(args, place, patch, first, part_pixels);
  }
}

// PLAIN: no residual, aligned vectors of channels, and an activation that is none or a clip to [epilogue.a, epilogue.b]. Out: the type of
// the results and the residual in memory.
template <class Veu, int M_TILES, int N_TILES, int WARPS_M, int WARPS_K, int CELL, bool PLAIN, class Out = float>
RK_BODY void patch_conv(const Task<Veu>& caller) {
  using Product = PatchProduct<M_TILES, N_TILES, WARPS_M, WARPS_K>;
  const Task<Veu> task = caller;  // in registers; the caller's copy is in memory
  const PatchConvArgs& args = task.template arguments<PatchConvArgs>();
  patch_product<Product, PatchFinish<Product, PLAIN, Out>, WARPS_K, CELL>(task, args, args);
}

}  // namespace rk
