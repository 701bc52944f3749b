// Convolution and matrix product as one product of tiles:
//   out[m][n] = act(bias[n] + residual[m][n] + sum over k of in(m, k) * weight[k][n])
// m runs over the output pixels (image, oh, ow), n over the output channels of one group, k over taps x input channels of the group. A
// MatMul is the case of one tap. All strides are general.
//
// A rTask is a tile of BLOCK_M x BLOCK_N over one share of k. There are `splits` shares; with more than one a rTask stores partial sums,
// which split_k_sum adds. The input values are gathered by cp.async into A_STAGES steps in shared memory. A table in the packed data says
// where each comes from, one entry per 4 channels (GATHER = 4: contiguous and aligned) or per k (GATHER = 1), so that the loop divides
// nothing. The weights come through the ring, CHUNK_STEPS steps a chunk. Each group of warps (tile_product.cuh) gathers its own inputs,
// 32 of the 32 * K_GROUPS k of a step. Code that runs once is as dear as a barrier: the loops below are rolled where their bodies are
// long.
//
// Example: 7 blocks of m, 2 splits, 3 blocks of n, BLOCK_M 64. rTask 50 = ((1 * 3 + 0) * 2 + 1) * 7 + 1 is m 64 to 127 and block 0 of n
// of group 1 of the convolution, over the second share of k. With K_GROUPS 2 thread 141 is thread 13 of the second group of warps: with
// GATHER 4 it copies cell 5 (13 % 8: k 52 to 55 of the step's 64) of rows 1 (13 / 8), 17, 33 and 49; with GATHER 1 k 32, 36, .. 60 of
// rows 13 and 45.
#pragma once

#include "kernels/product/staged_numbers.cuh"
#include "kernels/tile/channels4.cuh"
#include "kernels/tile/tile_product.cuh"

namespace rk {

// Where the input of a k (or of 4 of k) lies for an output pixel, counted from the pixel's first tap: rows and columns in `place`,
// elements in `offset`. dh = 1 and dw = 2 make the place 0x00020001.
struct alignas(8) Tap {
  int32_t offset;
  uint32_t place;  // dh in the lower half, dw in the upper; kNoTap: past the end of k, reads as zero
};

struct ImplicitGemmArgs {  // in tables
  TensorRef in;
  TensorRef taps;  // Tap[], for A_STAGES steps more than are multiplied, since they are loaded ahead
  TensorRef out;
  EpilogueArgs epilogue;    // bias: per group, padded to whole blocks; residual strides: image, channel, h, w
  PixelStrides in_strides;  // channel: unused
  PixelStrides out_strides;
  int64_t in_group_stride;
  int64_t split_stride;    // of out
  int32_t rows, channels;  // m, n of a group
  int32_t in_h, in_w, stride_h, stride_w, pad_h, pad_w;
  int32_t steps, steps_per_split, chunks;  // steps of 32 * K_GROUPS of k: all, and of a split; ring chunks of a rTask
  int32_t vector_out, vector_residual;     // 4 channels are one aligned 16-byte access
  Divisor m_blocks, splits, n_blocks, pixels /*of an image*/, out_w;
};

// Copies the input values of a step of one group of warps to shared memory. GATHER = 4: 8 neighbouring threads copy the cells of one row.
// GATHER = 1: the lanes of a warp copy one k of 32 rows (neighbouring pixels, which is the order of memory in NCHW).
template <int BLOCK_M, int K_GROUPS, int GATHER>
struct Gather {
  static constexpr int kWarps = kComputeWarps / K_GROUPS;
  static constexpr int kRowThreads = GATHER == 4 ? kWarps * kWarp / 8 : kWarp;
  static constexpr int kRows = BLOCK_M / kRowThreads;
  static constexpr int kTaps = GATHER == 4 ? 1 : kGroupK / kWarps;  // of a thread, kWarps apart

  const float* in;
  int32_t pixel[kRows];  // offset of the first tap; outside of the tensor where that tap is padding
  int32_t h[kRows], w[kRows];
  const Tap* next;
  uint2 tap[kTaps];  // of the next step: loaded a step before its use
  uint32_t in_h, in_w;

  RK_INLINE static int group() { return warp_id() / kWarps; }
  RK_INLINE static int thread() { return static_cast<int>(threadIdx.x) % (kWarps * kWarp); }
  RK_INLINE static int row() { return GATHER == 4 ? thread() / 8 : lane_id(); }
  RK_INLINE static int column() { return GATHER == 4 ? thread() % 8 : warp_id() % kWarps; }

  RK_INLINE void start(const ImplicitGemmArgs& args, const float* in_, const Tap* taps, uint32_t first_m) {
    in = in_;
    next = taps + group() * (kGroupK / GATHER) + column();
    load_taps();
    in_h = static_cast<uint32_t>(args.in_h);
    in_w = static_cast<uint32_t>(args.in_w);
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const uint32_t m = first_m + static_cast<uint32_t>(row() + i * kRowThreads);
      const Pixel p = pixel_of(m, args.pixels, args.out_w);
      h[i] = p.h * args.stride_h - args.pad_h;
      w[i] = p.w * args.stride_w - args.pad_w;
      pixel[i] = offset_of({p.image, h[i], w[i]}, args.in_strides);
      if (m >= static_cast<uint32_t>(args.rows)) h[i] = INT32_MIN / 2;
    }
  }
  RK_INLINE void load_taps() {
#pragma unroll
    for (int t = 0; t < kTaps; ++t) tap[t] = load_weight2(next + t * kWarps);
    next += K_GROUPS * (kGroupK / GATHER);
  }
  // Copies zeros if there is no such step (`exists` is false), so that the caller need not branch.
  RK_INLINE void copy(char* tile, bool exists) {
#pragma unroll
    for (int t = 0; t < kTaps; ++t) {
      const int32_t offset = static_cast<int32_t>(tap[t].x);
      const int dh = static_cast<int>(tap[t].y & 0xffffu), dw = static_cast<int>(tap[t].y >> 16);
      const uint32_t limit_h = exists && tap[t].y != kNoTap ? in_h : 0u;
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
        const bool valid = static_cast<uint32_t>(h[i] + dh) < limit_h && static_cast<uint32_t>(w[i] + dw) < in_w;
        const float* const from = in + (pixel[i] + offset);
        const int to_row = row() + i * kRowThreads;
        if constexpr (GATHER == 4) {
          cp_async16(tile + box_cell(to_row, column()), from, valid);
        } else {
          const int k = column() + t * kWarps;
          cp_async4(tile + box_cell(to_row, k / 4) + k % 4 * 4, from, valid);
        }
      }
    }
    load_taps();
  }
};

// Which tile and which share of k a rTask is. m: its first row.
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

// Adds the sums of the groups of warps and stores the results.
template <class Out, int BLOCK_M, int BLOCK_N, int K_GROUPS, class Veu>
RK_INLINE void finish_tile(const Task<Veu>& task, const ImplicitGemmArgs& args, const TileOf& tile, const float4& bias, const char* sums) {
  constexpr int kThreadsPerRow = BLOCK_N / 4;
  constexpr int kRowThreads = Veu::kComputeThreads / kThreadsPerRow;
  const int column = static_cast<int>(threadIdx.x) % kThreadsPerRow * 4;
  const int n = static_cast<int>(tile.n_block) * BLOCK_N + column;  // in the group
  if (n >= args.channels) return;
  const Finish4<Out> finish =
      finish_of<Out>(task, args, static_cast<int>(tile.group) * args.channels + n, args.channels - n, bias, tile.split * args.split_stride);
  const uint32_t rows = static_cast<uint32_t>(args.rows);
#pragma unroll 2
  for (int r = static_cast<int>(threadIdx.x) / kThreadsPerRow; r < BLOCK_M; r += kRowThreads) {
    const uint32_t m = tile.m + static_cast<uint32_t>(r);
    if (m >= rows) break;
    const int from = sum_offset<BLOCK_N>(r, column);
    float4 v = load_shared4(sums, from);
    if constexpr (K_GROUPS == 2) v = add4(v, load_shared4(sums, from + BLOCK_M * BLOCK_N * 4));
    finish(m, v);
  }
}

template <class Veu, class Math, int BLOCK_M, int BLOCK_N, int K_GROUPS, int GATHER, int A_STAGES, int CHUNK_STEPS, class Out = float>
RK_BODY void implicit_gemm(const Task<Veu>& task) {
  constexpr int kGroupThreads = Veu::kComputeThreads / K_GROUPS;
  constexpr int kTileBytes = BLOCK_M * kRowBytes;             // of A: one group, one step
  constexpr int kStepBytes = K_GROUPS * BLOCK_N * kRowBytes;  // of B: all groups
  static_assert(Veu::kComputeThreads == kComputeWarps * kWarp && BLOCK_M % 32 == 0 && A_STAGES >= 2 && K_GROUPS <= 2);
  static_assert(CHUNK_STEPS * kStepBytes <= Veu::kWeightStageBytes && (CHUNK_STEPS & (CHUNK_STEPS - 1)) == 0);

  const auto& args = task.template arguments<ImplicitGemmArgs>();
  const TileOf tile = tile_of<BLOCK_M>(args, task.index);
  const int first_step = static_cast<int>(tile.split) * args.steps_per_split;
  const int steps = min(args.steps - first_step, args.steps_per_split);  // at least 1
  const int group = static_cast<int>(threadIdx.x) / kGroupThreads;
  char* const tiles = task.work + group * A_STAGES * kTileBytes;
  char* const sums = task.work;
  WeightPipe<Veu> weights = task.weights;

  Gather<BLOCK_M, K_GROUPS, GATHER> gather;
  gather.start(args, task.address(args.in) + tile.group * args.in_group_stride,
               reinterpret_cast<const Tap*>(task.address(args.taps)) + first_step * (K_GROUPS * kGroupK / GATHER), tile.m);
  const float4 bias = load_bias4(
      task, args, static_cast<int>((tile.group * args.n_blocks.divisor + tile.n_block) * BLOCK_N + threadIdx.x % (BLOCK_N / 4) * 4));
  TileProduct<Math, BLOCK_M, BLOCK_N, K_GROUPS> product;
  product.clear();

#pragma unroll 1
  for (int s = 0; s < A_STAGES - 1; ++s) {
    gather.copy(tiles + s * kTileBytes, s < steps);
    cp_async_commit();
  }
  const char* chunk = weights.acquire();
  int read = 0, write = (A_STAGES - 1) * kTileBytes;  // stages, as offsets
#pragma unroll 1
  for (int s = 0; s < steps; ++s) {
    cp_async_wait<A_STAGES - 2>();
    sync_group<kGroupThreads>(2 + group);  // step s has arrived for the whole group, and no thread of the group still reads stage `write`
    product.step(tiles + read, chunk + s % CHUNK_STEPS * kStepBytes + group * BLOCK_N * kRowBytes);
    gather.copy(tiles + write, s + A_STAGES - 1 < steps);
    cp_async_commit();
    write = read;
    read = read == (A_STAGES - 1) * kTileBytes ? 0 : read + kTileBytes;
    if (s % CHUNK_STEPS == CHUNK_STEPS - 1 && s + 1 < steps) {
      weights.release();
      chunk = weights.acquire();
    }
  }
  weights.release();
  for (int c = (steps + CHUNK_STEPS - 1) / CHUNK_STEPS; c < args.chunks; ++c) {
    weights.acquire();
    weights.release();
  }
  cp_async_wait<0>();
  sync_compute<Veu>();
  product.store(sums);
  sync_compute<Veu>();
  finish_tile<Out, BLOCK_M, BLOCK_N, K_GROUPS>(task, args, tile, bias, sums);
}

}  // namespace rk
