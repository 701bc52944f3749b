// Conv and Normalize (compiler/ir/ops.h): the convolution of patch_conv.cuh, whose pixels are normalised before they are stored:
//   s[pixel][m] = bias[m] + sum over taps and channels of in * weight
//   out[pixel][m] = (s - mean) / sqrt(variance + epsilon) * scale[m] + shift[m]     mean and variance of the pixel's s
// A rTask has all channels of its pixels, so the results are normalised where their sums have met, in shared memory. Eight lanes share a
// pixel, each with every eighth four of its channels in registers: the mean comes first, and then the squares around it. Channels are a
// multiple of four, and four are one aligned access. Without CENTRED the mean counts as 0.
// ORDERED: pixels of an image lie in another order, in which the place of (h, w) is a sum of what the digits of h say and of what those of
// w say. Digits are the bits 0 to 2, and what is above these.
// Example of an order: 4 by 4 pixels, of which squares of four lie side by side, (0, 0) (1, 0) (0, 1) (1, 1) (0, 2) .. Steps of h are 1,
// 8, 0 and 0, those of w 2, 4, 0 and 0: pixel (3, 2) has the place 1 + 8 + 4 = 13.
// Example: 96 channels. Thread 77 has pixels 77 / 8 = 9, 41, .., of these channels 20 to 23, 52 to 55 and 84 to 87.
#pragma once

#include "kernels/first/patch_conv.cuh"

namespace rk {

struct PatchNormalizeArgs {  // in tables
  PatchConvArgs conv;        // no residual, no activation
  TensorRef scale, shift;    // padded as the bias is
  float inverse_channels, epsilon;
  int32_t h_steps[4], w_steps[4];  // ORDERED: of each digit, in elements
};

RK_INLINE int32_t place_of_digits(int32_t v, const int32_t (&steps)[4]) {
  return (v & 1) * steps[0] + (v >> 1 & 1) * steps[1] + (v >> 2 & 1) * steps[2] + (v >> 3) * steps[3];
}

template <class Product, bool CENTRED, bool ORDERED, class Out>
struct PatchNormalize {
  static constexpr int kLanes = 8, kVectors = Product::kBlock / 4, kOwn = (kVectors + kLanes - 1) / kLanes;
  static constexpr int kRowPixels = Product::kWarps * kWarp / kLanes;
  Out* out;
  float4 bias[kOwn], scale[kOwn], shift[kOwn];
  float inverse_channels, epsilon;
  int32_t vectors;  // of a pixel
  const PatchNormalizeArgs* own;

  RK_INLINE static int first_pixel() { return static_cast<int>(threadIdx.x) / kLanes; }
  RK_INLINE static int vector(int i) { return static_cast<int>(threadIdx.x) % kLanes + i * kLanes; }

  template <class Veu>
  RK_INLINE void start(const Task<Veu>& task, const PatchNormalizeArgs& all, const PatchPlace& place) {
    const PatchConvArgs& args = all.conv;
    vectors = args.channels / 4;
    inverse_channels = all.inverse_channels;
    epsilon = all.epsilon;
#pragma unroll
    for (int i = 0; i < kOwn; ++i) {
      const int channel = min(vector(i), kVectors - 1) * 4;
      bias[i] = load_weight4(task.address(args.epilogue.bias) + channel);
      scale[i] = load_weight4(task.address(all.scale) + channel);
      shift[i] = load_weight4(task.address(all.shift) + channel);
    }
    const Pixel first = ORDERED ? Pixel{place.image, 0, 0} : Pixel{place.image, place.oh, place.ow};
    out = values_at<Out>(task, args.out) + offset_of(first, args.out_strides);
    if constexpr (ORDERED) own = &all;
  }

  RK_INLINE static float sum_of_lanes(float v) {
#pragma unroll
    for (int step = kLanes / 2; step > 0; step /= 2) v += __shfl_xor_sync(kFullMask, v, step);
    return v;
  }

  // Pixels [first, first + pixels) of the tile.
  template <int GROUPS>
  RK_INLINE void store(const PatchConvArgs& args, const PatchPlace& place, const char* sums, int first, int pixels) const {
    const int32_t rows = min(args.tile_h, args.out_h - place.oh), columns = args.out_w - place.ow;
    const PixelStrides s = args.out_strides;
    const Divisor tile_w = args.columns;
#pragma unroll 1
    for (int32_t base = 0; base < pixels; base += kRowPixels) {  // as many turns for all lanes of a warp
      const int32_t pixel = min(base + first_pixel(), pixels - 1);
      uint32_t column;
      const int32_t h = static_cast<int32_t>(divide(static_cast<uint32_t>(first + pixel), tile_w, column)),
                    w = static_cast<int32_t>(column);
      float4 v[kOwn];
      float sum = 0.0f, squares = 0.0f;
#pragma unroll
      for (int i = 0; i < kOwn; ++i) {
        v[i] = float4{0.0f, 0.0f, 0.0f, 0.0f};
        if (vector(i) >= vectors) continue;
        v[i] = bias[i];
#pragma unroll
        for (int g = 0; g < GROUPS; ++g)
          v[i] = add4(v[i], *reinterpret_cast<const float4*>(sums + (g * pixels + pixel) * Product::kSumRow + vector(i) * 16));
        sum += (v[i].x + v[i].y) + (v[i].z + v[i].w);
      }
      if constexpr (CENTRED) {
        const float mean = sum_of_lanes(sum) * inverse_channels;
#pragma unroll
        for (int i = 0; i < kOwn; ++i) {
          if (vector(i) < vectors) v[i] = float4{v[i].x - mean, v[i].y - mean, v[i].z - mean, v[i].w - mean};
        }
      }
#pragma unroll
      for (int i = 0; i < kOwn; ++i) squares += (v[i].x * v[i].x + v[i].y * v[i].y) + (v[i].z * v[i].z + v[i].w * v[i].w);
      const float factor = rsqrtf(fmaf(sum_of_lanes(squares), inverse_channels, epsilon));
      if (base + first_pixel() >= pixels || h >= rows || w >= columns) continue;
      Out* to = out;
      if constexpr (ORDERED)
        to += place_of_digits(place.oh + h, own->h_steps) + place_of_digits(place.ow + w, own->w_steps);
      else
        to += h * s.h + w * s.w;
#pragma unroll
      for (int i = 0; i < kOwn; ++i) {
        if (vector(i) >= vectors) continue;
        const float4 y = {fmaf(v[i].x * factor, scale[i].x, shift[i].x), fmaf(v[i].y * factor, scale[i].y, shift[i].y),
                          fmaf(v[i].z * factor, scale[i].z, shift[i].z), fmaf(v[i].w * factor, scale[i].w, shift[i].w)};
        store4(to + vector(i) * 4, y);
      }
    }
  }
};

// Out: the type of the results in memory.
template <class Veu, int M_TILES, int N_TILES, int WARPS_M, int WARPS_K, int CELL, bool CENTRED, class Out = float, bool ORDERED = false>
RK_BODY void patch_normalize(const Task<Veu>& caller) {
  using Product = PatchProduct<M_TILES, N_TILES, WARPS_M, WARPS_K>;
  const Task<Veu> task = caller;  // in registers; the caller's copy is in memory
  const PatchNormalizeArgs& all = task.template arguments<PatchNormalizeArgs>();
  patch_product<Product, PatchNormalize<Product, CENTRED, ORDERED, Out>, WARPS_K, CELL>(task, all, all.conv);
}

}  // namespace rk
