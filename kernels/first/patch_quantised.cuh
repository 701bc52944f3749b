// patch_conv for a quantised network: the pixels are quantised where they have been copied to, weights are whole numbers (of which tf32
// holds all that bytes can be), and the sums, times the channel's scale, are rounded. With kTable a result is what a table says of that
// (kernels/tile/requantised.h). Out: the type of the results, also bytes, which may begin at another number than 0.
#pragma once

#include "kernels/first/patch_conv.cuh"
#include "kernels/tile/depthwise_item.cuh"

namespace rk {

struct PatchQuantisedArgs {        // in tables
  PatchConvArgs conv;              // epilogue: no residual; a and b are the least and the greatest sum
  TensorRef scale;                 // padded as the bias is
  TensorRef table;                 // of the results from a on, as they are stored
  float in_step, in_low, in_high;  // pixels become rounded(x / in_step; in_low, in_high)
  float out_low;                   // the number that a byte of 0 is; else 0
};

template <class Product, class Out, bool kTable>
struct PatchQuantised {
  static constexpr int kVectors = Product::kBlock / 4, kRowPixels = 256 / kVectors;
  Out* out;
  float4 bias, scale;
  float low, high, out_low;
  int32_t left;  // channels
  const float* table;
  const PatchQuantisedArgs* own;

  RK_INLINE static int first_pixel() { return static_cast<int>(threadIdx.x) / kVectors; }
  RK_INLINE static int vector() { return static_cast<int>(threadIdx.x) % kVectors; }

  template <class Veu>
  RK_INLINE void start(const Task<Veu>& task, const PatchQuantisedArgs& all, const PatchPlace& place) {
    const PatchConvArgs& args = all.conv;
    const int channel = place.n_block * Product::kBlock + vector() * 4;
    left = first_pixel() < kRowPixels ? args.channels - channel : 0;
    bias = load_weight4(task.address(args.epilogue.bias) + channel);
    scale = load_weight4(task.address(all.scale) + channel);
    out = values_at<Out>(task, args.out) + offset_of({place.image, place.oh, place.ow}, args.out_strides) +
          channel * args.out_strides.channel;
    low = args.epilogue.a;
    high = args.epilogue.b;
    out_low = all.out_low;
    if constexpr (kTable) table = task.address(all.table);
    own = &all;
  }

  // Quantises what the thread has copied, as copy_patch has it. What lies outside of the image is 0 before and after.
  template <int CELL>
  RK_INLINE void prepare(const PatchConvArgs& args, char* patch) const {
    int32_t row = static_cast<int32_t>(threadIdx.x) >> args.row_shift;
    const int32_t column = (static_cast<int32_t>(threadIdx.x) - (row << args.row_shift)) * CELL;
    if (column >= args.columns_copied) return;
    const float step = own->in_step, per_step = 1.0f / step, least = own->in_low, most = own->in_high;
    const auto quantised = [=](float x) { return rounded(quotient(x, step, per_step), least, most); };
#pragma unroll 1
    for (; row < args.rows; row += args.pass_rows) {
      float* const at = reinterpret_cast<float*>(patch + (row * args.pitch + column) * 4);
      if constexpr (CELL == 4) {
        float4& v = *reinterpret_cast<float4*>(at);
        v = float4{quantised(v.x), quantised(v.y), quantised(v.z), quantised(v.w)};
      } else {
        *at = quantised(*at);
      }
    }
  }

  template <int GROUPS>
  RK_INLINE void store(const PatchConvArgs& args, const PatchPlace& place, const char* sums, int first, int pixels) const {
    if (left <= 0) return;
    const int32_t rows = min(args.tile_h, args.out_h - place.oh), columns = args.out_w - place.ow;
    const PixelStrides s = args.out_strides;
    const Divisor tile_w = args.columns;
    sums += vector() * 16;
#pragma unroll 1
    for (int32_t pixel = first_pixel(); pixel < pixels; pixel += kRowPixels) {
      uint32_t column;
      const int32_t h = static_cast<int32_t>(divide(static_cast<uint32_t>(first + pixel), tile_w, column)),
                    w = static_cast<int32_t>(column);
      if (h >= rows) break;
      if (w >= columns) continue;
      float4 v = splat(0.0f);
#pragma unroll
      for (int g = 0; g < GROUPS; ++g) v = add4(v, *reinterpret_cast<const float4*>(sums + (g * pixels + pixel) * Product::kSumRow));
      v = float4{rounded(fmaf(v.x, scale.x, bias.x), low, high), rounded(fmaf(v.y, scale.y, bias.y), low, high),
                 rounded(fmaf(v.z, scale.z, bias.z), low, high), rounded(fmaf(v.w, scale.w, bias.w), low, high)};
      if constexpr (kTable)
        v = NumberTable{table, low}.of(v);
      else
        v = float4{v.x - out_low, v.y - out_low, v.z - out_low, v.w - out_low};
      store_left(out + (h * s.h + w * s.w), left, v);
    }
  }
};

template <class Veu, int M_TILES, int N_TILES, int WARPS_M, int WARPS_K, int CELL, bool kTable, class Out = float>
RK_BODY void patch_quantised(const Task<Veu>& caller) {
  using Product = PatchProduct<M_TILES, N_TILES, WARPS_M, WARPS_K>;
  const Task<Veu> task = caller;  // in registers; the caller's copy is in memory
  const PatchQuantisedArgs& args = task.template arguments<PatchQuantisedArgs>();
  patch_product<Product, PatchQuantised<Product, Out, kTable>, WARPS_K, CELL>(task, args, args.conv);
}

}  // namespace rk
