// Convolution and matrix product as one product of tiles:
//   out[m][n] = act(bias[n] + residual[m][n] + sum over k of in(m, k) * weight[k][n])
// m runs over the output pixels (image, oh, ow), n over the output channels of one group, k over taps x input channels of the
// group. A MatMul is the case of one tap. All strides are general.
//
// A rTask is a tile of BLOCK_M x BLOCK_N over one share of k (`splits` shares; with more than one it stores partial sums,
// which split_k_sum adds). Its input values are gathered by cp.async into A_STAGES tiles in shared memory. Where they come
// from is in a table in the packed data, one entry per 4 channels (GATHER = 4: contiguous and aligned) or per k
// (GATHER = 1), so that the loop divides nothing. The weights come through the ring, CHUNK_STEPS steps of 32 k a chunk.
#pragma once

#include "kernels/conv/channels4.cuh"
#include "kernels/conv/tile_product.cuh"

namespace rk {

// Where k (or 4 of k) of an output pixel is: rows and columns from the pixel's first tap, elements from its address.
struct alignas(8) Tap {
  int32_t offset;  // kNoTap: past the end of k, reads as zero
  int16_t dh, dw;
};
constexpr int32_t kNoTap = INT32_MIN;

struct ImplicitGemmArgs {
  TensorRef in;
  TensorRef taps;  // Tap[], one step more than there are
  TensorRef out;
  EpilogueArgs epilogue;  // bias: per group, padded to whole blocks; residual strides: image, channel, h, w
  int64_t in_strides[3];  // image, h, w
  int64_t in_group_stride;
  int64_t out_strides[4];  // image, channel, h, w
  int64_t split_stride;    // of out
  int32_t rows, channels;  // m, n of a group
  int32_t in_h, in_w, stride_h, stride_w, pad_h, pad_w;
  int32_t steps, steps_per_split, chunks;  // of kBlockK, all and per split; ring chunks of a rTask
  int32_t vector_out, vector_residual;     // 4 channels are one aligned 16-byte access
  Divisor m_blocks, splits, n_blocks, pixels /*of an image*/, out_w;
};

struct Pixel {
  int64_t image;
  int32_t h, w;
};

template <class Args>
RK_INLINE Pixel pixel_of(const Args& args, uint32_t m) {
  uint32_t in_image, w;
  const uint32_t image = divide(m, args.pixels, in_image);
  const uint32_t h = divide(in_image, args.out_w, w);
  return {static_cast<int64_t>(image), static_cast<int32_t>(h), static_cast<int32_t>(w)};
}

RK_INLINE int64_t offset_of(const Pixel& p, const int64_t (&strides)[4]) {
  return p.image * strides[0] + p.h * strides[2] + p.w * strides[3];
}

// Copies the input values of a step to shared memory. A thread's rows are 32 apart. GATHER = 4: 8 neighbouring threads copy
// the cells of one row. GATHER = 1: the lanes of a warp copy one k of 32 rows (neighbouring pixels, the order of memory in
// NCHW), and the warp does 4 of k.
template <int BLOCK_M, int GATHER>
struct Gather {
  static constexpr int kRows = BLOCK_M / 32;
  static constexpr int kTaps = GATHER == 4 ? 1 : 4;
  static constexpr int kTapStride = GATHER == 4 ? 8 : kComputeWarps;

  const float* pixel[kRows];  // address of the first tap, outside of the tensor where it is padding
  int32_t h[kRows], w[kRows];
  const Tap* next;
  Tap tap[kTaps];
  int32_t in_h, in_w;

  RK_INLINE static int row() { return GATHER == 4 ? static_cast<int>(threadIdx.x) / 8 : lane_id(); }
  RK_INLINE static int column() { return GATHER == 4 ? static_cast<int>(threadIdx.x) % 8 : warp_id(); }

  RK_INLINE void start(const ImplicitGemmArgs& args, const float* in, const Tap* taps, uint32_t first_m) {
    next = taps + column();
    load_taps();
    in_h = args.in_h;
    in_w = args.in_w;
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const uint32_t m = first_m + static_cast<uint32_t>(row() + i * 32);
      const Pixel p = pixel_of(args, m);
      h[i] = p.h * args.stride_h - args.pad_h;
      w[i] = p.w * args.stride_w - args.pad_w;
      pixel[i] = in + p.image * args.in_strides[0] + h[i] * args.in_strides[1] + w[i] * args.in_strides[2];
      if (m >= static_cast<uint32_t>(args.rows)) h[i] = INT32_MIN / 2;
    }
  }
  RK_INLINE void load_taps() {
#pragma unroll
    for (int t = 0; t < kTaps; ++t) tap[t] = next[t * kTapStride];
    next += kTaps * kTapStride;
  }
  RK_INLINE void copy(char* tile) {
#pragma unroll
    for (int t = 0; t < kTaps; ++t) {
      const uint32_t limit_h = tap[t].offset == kNoTap ? 0u : static_cast<uint32_t>(in_h);
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
        const bool valid = static_cast<uint32_t>(h[i] + tap[t].dh) < limit_h && static_cast<uint32_t>(w[i] + tap[t].dw) < static_cast<uint32_t>(in_w);
        const int to_row = row() + i * 32;
        if constexpr (GATHER == 4) {
          cp_async16(tile + cell_offset(to_row, column()), pixel[i] + tap[t].offset, valid);
        } else {
          const int k = column() + t * kTapStride;
          cp_async4(tile + cell_offset(to_row, k / 4) + k % 4 * 4, pixel[i] + tap[t].offset, valid);
        }
      }
    }
    load_taps();
  }
};

// Which tile a rTask is.
struct TileOf {
  uint32_t m, n_block, split, group;
};
template <int BLOCK_M>
RK_INLINE TileOf tile_of(const ImplicitGemmArgs& args, uint32_t index) {
  uint32_t m_block, split, n_block;
  const uint32_t block = divide(index, args.m_blocks, m_block);
  const uint32_t group = divide(divide(block, args.splits, split), args.n_blocks, n_block);
  return {m_block * BLOCK_M, n_block, split, group};
}

// The sums begin with bias and residual, whose latency the pipeline's own hides.
template <class Veu, int BLOCK_N, class Product>
RK_INLINE void start_sums(const Task<Veu>& task, const ImplicitGemmArgs& args, const TileOf& tile, Product& product) {
  const float* const bias = task.address(args.epilogue.bias);
  const float* const residual = args.epilogue.residual_after_activation ? nullptr : task.address(args.epilogue.residual);
  const int64_t channel_stride = args.epilogue.residual_strides[1];
  const int first = static_cast<int>(tile.n_block) * BLOCK_N;
#pragma unroll
  for (int i = 0; i < Product::kRows; ++i) {
    const uint32_t m = tile.m + static_cast<uint32_t>(product.row(i));
    const int64_t at = residual == nullptr ? 0 : offset_of(pixel_of(args, m), args.epilogue.residual_strides);
#pragma unroll
    for (int j = 0; j < Product::kVectors; ++j) {
      const int n = first + product.column(j);
      float4 v = {0.0f, 0.0f, 0.0f, 0.0f};
      if (bias != nullptr) v = load_weight4(bias + (tile.group * args.n_blocks.divisor * BLOCK_N + static_cast<uint32_t>(n)));
      if (residual != nullptr && m < static_cast<uint32_t>(args.rows) && n < args.channels) {
        const float* const from = residual + at + (static_cast<int64_t>(tile.group) * args.channels + n) * channel_stride;
        v = add4(v, load_channels4(from, channel_stride, args.vector_residual != 0, args.channels - n));
      }
      product.set(i, j, v);
    }
  }
}

template <class Veu, int BLOCK_N, class Product>
RK_INLINE void store_sums(const Task<Veu>& task, const ImplicitGemmArgs& args, const TileOf& tile, const Product& product) {
  float* const out = task.address(args.out) + tile.split * args.split_stride;
  const float* const residual = args.epilogue.residual_after_activation ? task.address(args.epilogue.residual) : nullptr;
  const Activate4<Veu> activation(args.epilogue);
  const int first = static_cast<int>(tile.n_block) * BLOCK_N;
#pragma unroll
  for (int i = 0; i < Product::kRows; ++i) {
    const uint32_t m = tile.m + static_cast<uint32_t>(product.row(i));
    if (m >= static_cast<uint32_t>(args.rows)) continue;
    const Pixel p = pixel_of(args, m);
#pragma unroll
    for (int j = 0; j < Product::kVectors; ++j) {
      const int n = first + product.column(j);
      if (n >= args.channels) continue;
      const int64_t channel = static_cast<int64_t>(tile.group) * args.channels + n;
      float4 v = activation(product.get(i, j));
      if (residual != nullptr) {
        const int64_t stride = args.epilogue.residual_strides[1];
        const float* const from = residual + offset_of(p, args.epilogue.residual_strides) + channel * stride;
        v = add4(v, load_channels4(from, stride, args.vector_residual != 0, args.channels - n));
      }
      store_channels4(out + offset_of(p, args.out_strides) + channel * args.out_strides[1], args.out_strides[1], args.vector_out != 0,
                      args.channels - n, v);
    }
  }
}

template <class Veu, class Math, int BLOCK_M, int BLOCK_N, int GATHER, int A_STAGES, int CHUNK_STEPS>
RK_BODY void implicit_gemm(const Task<Veu>& task) {
  constexpr int kTileBytes = BLOCK_M * kRowBytes;
  constexpr int kStepBytes = BLOCK_N * kRowBytes;
  static_assert(Veu::kComputeThreads == kComputeWarps * kWarp && BLOCK_M % 32 == 0 && A_STAGES >= 2);
  static_assert(CHUNK_STEPS * kStepBytes <= Veu::kWeightStageBytes && (CHUNK_STEPS & (CHUNK_STEPS - 1)) == 0);

  const auto& args = task.template arguments<ImplicitGemmArgs>();
  const TileOf tile = tile_of<BLOCK_M>(args, task.index);
  const int first_step = static_cast<int>(tile.split) * args.steps_per_split;
  const int steps = min(args.steps - first_step, args.steps_per_split);  // at least 1

  Gather<BLOCK_M, GATHER> gather;
  gather.start(args, task.address(args.in) + tile.group * args.in_group_stride,
               reinterpret_cast<const Tap*>(task.address(args.taps)) + first_step * (kBlockK / GATHER), tile.m);
#pragma unroll
  for (int s = 0; s < A_STAGES - 1; ++s) {
    if (s < steps) gather.copy(task.work + s * kTileBytes);
    cp_async_commit();
  }

  TileProduct<Math, BLOCK_M, BLOCK_N> product;
  start_sums<Veu, BLOCK_N>(task, args, tile, product);

  WeightPipe<Veu> weights = task.weights;
  const char* chunk = nullptr;
  int read = 0, write = (A_STAGES - 1) * kTileBytes;  // stages, as offsets
#pragma unroll 1
  for (int s = 0; s < steps; ++s) {
    cp_async_wait<A_STAGES - 2>();
    sync_compute<Veu>();  // step s is there for all, and nobody reads stage `write` any more
    if (s + A_STAGES - 1 < steps) gather.copy(task.work + write);
    cp_async_commit();
    if (s % CHUNK_STEPS == 0) chunk = weights.acquire();
    product.step(task.work + read, chunk + s % CHUNK_STEPS * kStepBytes);
    if (s % CHUNK_STEPS == CHUNK_STEPS - 1 || s == steps - 1) weights.release();
    write = read;
    read = read == (A_STAGES - 1) * kTileBytes ? 0 : read + kTileBytes;
  }
  cp_async_wait<0>();
  for (int c = (steps + CHUNK_STEPS - 1) / CHUNK_STEPS; c < args.chunks; ++c) {
    weights.acquire();
    weights.release();
  }
  store_sums<Veu, BLOCK_N>(task, args, tile, product);
}

}  // namespace rk
