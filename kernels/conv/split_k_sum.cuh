// Second phase of a product whose k was split:
//   out[m][n] = act(bias[n] + residual[m][n] + partial[0][m][n] + partial[1][m][n] + ...)
// in this order, so the result does not depend on which vEU was first. A rTask is `rows_per_rtask` pixels x 64 channels.
#pragma once

#include "kernels/conv/channels4.cuh"
#include "kernels/conv/implicit_gemm.cuh"

namespace rk {

constexpr int kSumColumns = 64;

struct SplitKSumArgs {
  TensorRef partial;  // [splits][rows][pitch]
  TensorRef out;
  EpilogueArgs epilogue;   // bias: padded to a multiple of 64; residual strides: image, channel, h, w
  int64_t out_strides[4];  // image, channel, h, w
  int64_t split_stride;    // of partial
  int32_t rows, channels, pitch, splits, rows_per_rtask;
  int32_t vector_out, vector_residual;
  Divisor row_blocks, pixels, out_w;
};

template <class Veu>
RK_BODY void split_k_sum(const Task<Veu>& task) {
  constexpr int kRowThreads = Veu::kComputeThreads / (kSumColumns / 4);
  const auto& args = task.template arguments<SplitKSumArgs>();
  uint32_t row_block;
  const int n = static_cast<int>(divide(task.index, args.row_blocks, row_block)) * kSumColumns + static_cast<int>(threadIdx.x) % (kSumColumns / 4) * 4;
  if (n >= args.channels) return;
  const int first = static_cast<int>(row_block) * args.rows_per_rtask;
  const int last = min(first + args.rows_per_rtask, args.rows);
  const float* const partial = task.address(args.partial) + n;
  const float* const residual = task.address(args.epilogue.residual);
  const float* const bias = task.address(args.epilogue.bias);
  float* const out = task.address(args.out) + n * args.out_strides[1];
  const Activate4<Veu> activation(args.epilogue);
  const bool residual_last = args.epilogue.residual_after_activation != 0;
  const float4 zero = {0.0f, 0.0f, 0.0f, 0.0f};
  const float4 start = bias == nullptr ? zero : load_weight4(bias + n);

#pragma unroll 1
  for (int m = first + static_cast<int>(threadIdx.x) / (kSumColumns / 4); m < last; m += kRowThreads) {
    const Pixel p = pixel_of(args, static_cast<uint32_t>(m));
    float4 r = zero;
    if (residual != nullptr) {
      const int64_t stride = args.epilogue.residual_strides[1];
      r = load_channels4(residual + offset_of(p, args.epilogue.residual_strides) + n * stride, stride, args.vector_residual != 0, args.channels - n);
    }
    float4 v = residual_last ? start : add4(start, r);
    const float* from = partial + static_cast<int64_t>(m) * args.pitch;
#pragma unroll 4
    for (int s = 0; s < args.splits; ++s, from += args.split_stride) v = add4(v, load4(from));
    v = activation(v);
    if (residual_last) v = add4(v, r);
    store_channels4(out + offset_of(p, args.out_strides), args.out_strides[1], args.vector_out != 0, args.channels - n, v);
  }
}

}  // namespace rk
