// Four neighbouring channels of one pixel: loads, stores and the epilogue of convolutions and matrix products. Channels may lie apart
// (`stride` elements); `vector` says that the four are contiguous, aligned to four values and all there, so that one access loads or
// stores them. `left` is the number of channels that exist.
//
// Example: an output of 2 images of 14 x 14 pixels has pixel number m = 300 at image 1, row 7, column 6 (300 = 196 + 7 * 14 + 6). With
// strides (image, channel, h, w) = (12544, 1, 896, 64), a row of 14 pixels times 64 channels, it is 12544 + 7 * 896 + 6 * 64 = 19200
// elements from the start.
#pragma once

#include "kernels/vdevice/epilogue.cuh"
#include "kernels/vdevice/values.cuh"

namespace rk {

// Channels one by one. Out of line: epilogues are unrolled, and hardly any model needs this.
template <class Value>
RK_BODY float4 load_each(const Value* p, int stride, int left) {
  float4 v = {0.0f, 0.0f, 0.0f, 0.0f};
  if (left > 0) v.x = load1(p);
  if (left > 1) v.y = load1(p + stride);
  if (left > 2) v.z = load1(p + 2 * static_cast<int64_t>(stride));
  if (left > 3) v.w = load1(p + 3 * static_cast<int64_t>(stride));
  return v;
}
template <class Value>
RK_BODY void store_each(Value* p, int stride, int left, float4 v) {
  if (left > 0) store1(p, v.x);
  if (left > 1) store1(p + stride, v.y);
  if (left > 2) store1(p + 2 * static_cast<int64_t>(stride), v.z);
  if (left > 3) store1(p + 3 * static_cast<int64_t>(stride), v.w);
}

template <class Value>
RK_INLINE float4 load_channels4(const Value* p, int stride, bool vector, int left) {
  return vector ? load4(p) : load_each(p, stride, left);
}
template <class Value>
RK_INLINE void store_channels4(Value* p, int stride, bool vector, int left, float4 v) {
  if (vector)
    store4(p, v);
  else
    store_each(p, stride, left, v);
}

// The output pixel with number m, and its offset in a tensor with given strides (image, channel, h, w). Offsets within a tensor fit 32
// bits.
struct Pixel {
  int32_t image, h, w;
};

RK_INLINE Pixel pixel_of(uint32_t m, const Divisor& pixels, const Divisor& out_w) {
  uint32_t in_image, w;
  const uint32_t image = divide(m, pixels, in_image);
  const uint32_t h = divide(in_image, out_w, w);
  return {static_cast<int32_t>(image), static_cast<int32_t>(h), static_cast<int32_t>(w)};
}

struct PixelStrides {  // in tables
  int32_t image, channel, h, w;
};
RK_INLINE int32_t offset_of(const Pixel& p, const PixelStrides& s) { return p.image * s.image + p.h * s.h + p.w * s.w; }
RK_INLINE PixelStrides narrow(const int64_t (&s)[4]) {
  return {static_cast<int32_t>(s[0]), static_cast<int32_t>(s[1]), static_cast<int32_t>(s[2]), static_cast<int32_t>(s[3])};
}

// Makes results of sums: 4 neighbouring channels, `left` of which exist, of any pixel. Made once per rTask. Value: the type of the
// results and the residual in memory.
template <class Value>
struct Finish4 {
  EpilogueArgs epilogue;
  Divisor pixels, out_w;
  PixelStrides out_strides, residual_strides;
  Value* out;  // of the first of the 4 channels
  const Value* residual;
  float4 bias;
  int32_t left;
  bool has_residual, vector_out, vector_residual;
  float out_low;  // where a Value is a byte: the number that stands for 0

  RK_INLINE void operator()(uint32_t m, float4 sum) const {
    const Pixel p = pixel_of(m, pixels, out_w);
    float4 r = {0.0f, 0.0f, 0.0f, 0.0f};
    if (has_residual) r = load_channels4(residual + offset_of(p, residual_strides), residual_strides.channel, vector_residual, left);
    float4 v = finish4(epilogue, add4(sum, bias), r);
    if constexpr (sizeof(Value) == 1) v = {v.x - out_low, v.y - out_low, v.z - out_low, v.w - out_low};
    store_channels4(out + offset_of(p, out_strides), out_strides.channel, vector_out, left, v);
  }
};

template <class Veu, class Args>
RK_INLINE float4 load_bias4(const Task<Veu>& task, const Args& args, int offset) {
  if (args.epilogue.bias.base == kNullBase) return {0.0f, 0.0f, 0.0f, 0.0f};
  return load_weight4(task.address(args.epilogue.bias) + offset);
}

// Channels n.. of the rTask's output.
template <class Value = float, class Veu, class Args>
RK_INLINE Finish4<Value> finish_of(const Task<Veu>& task, const Args& args, int n, int left, const float4& bias, int64_t out_offset) {
  Finish4<Value> f{};
  f.epilogue = args.epilogue;
  f.pixels = args.pixels;
  f.out_w = args.out_w;
  f.out_strides = args.out_strides;
  f.residual_strides = narrow(args.epilogue.residual_strides);
  f.out = values_at<Value>(task, args.out) + out_offset + static_cast<int64_t>(n) * args.out_strides.channel;
  f.has_residual = args.epilogue.residual.base != kNullBase;
  if (f.has_residual) f.residual = values_at<Value>(task, args.epilogue.residual) + static_cast<int64_t>(n) * f.residual_strides.channel;
  f.bias = bias;
  f.left = left;
  f.vector_out = args.vector_out != 0;
  f.vector_residual = args.vector_residual != 0;
  return f;
}

}  // namespace rk
