// Convolution and matrix product as one product of tiles:
//   out[m][n] = act(bias[n] + residual[m][n] + sum over k of in(m, k) * weight[k][n])
// m runs over the output pixels (image, oh, ow), n over the output channels of one group, k over taps x input channels of the
// group. A MatMul is the case of one tap. All strides are general.
//
// A rTask is a tile of BLOCK_M x BLOCK_N over one share of k (`splits` shares; with more than one it stores partial sums,
// which split_k_sum adds). Its input values are gathered by cp.async into A_STAGES steps in shared memory. Where they come
// from is in a table in the packed data, one entry per 4 channels (GATHER = 4: contiguous and aligned) or per k
// (GATHER = 1), so that the loop divides nothing. The weights come through the ring, CHUNK_STEPS steps a chunk.
// Code that runs once is as dear as a barrier: the loops below are rolled where their bodies are long.
#pragma once

#include "kernels/conv/channels4.cuh"
#include "kernels/conv/tile_product.cuh"

namespace rk {

// Where k (or 4 of k) of an output pixel is: rows and columns from the pixel's first tap, elements from its address.
struct alignas(8) Tap {
  int32_t offset;  // kNoTap: past the end of k, reads as zero
  uint32_t place;  // dh in the lower half, dw in the upper
};
constexpr int32_t kNoTap = INT32_MIN;

struct ImplicitGemmArgs {
  TensorRef in;
  TensorRef taps;  // Tap[], one step more than there are
  TensorRef out;
  EpilogueArgs epilogue;     // bias: per group, padded to whole blocks; residual strides: image, channel, h, w
  PixelStrides in_strides;   // channel: unused
  PixelStrides out_strides;
  int64_t in_group_stride;
  int64_t split_stride;      // of out
  int32_t rows, channels;    // m, n of a group
  int32_t in_h, in_w, stride_h, stride_w, pad_h, pad_w;
  int32_t steps, steps_per_split, chunks;  // of 32 * K_GROUPS of k, all and per split; ring chunks of a rTask
  int32_t vector_out, vector_residual;     // 4 channels are one aligned 16-byte access
  Divisor m_blocks, splits, n_blocks, pixels /*of an image*/, out_w;
};

// Copies the input values of a step to shared memory. A thread's rows are 32 apart. GATHER = 4: 8 neighbouring threads copy
// the cells of one row. GATHER = 1: the lanes of a warp copy one k of 32 rows (neighbouring pixels, the order of memory in
// NCHW), and the warp does 4 of k.
template <int BLOCK_M, int K_GROUPS, int GATHER>
struct Gather {
  static constexpr int kRows = BLOCK_M / 32;
  static constexpr int kTaps = (GATHER == 4 ? 1 : 4) * K_GROUPS;
  static constexpr int kTapStride = GATHER == 4 ? 8 : kComputeWarps;

  const float* pixel[kRows];  // address of the first tap, outside of the tensor where it is padding
  int32_t h[kRows], w[kRows];
  const Tap* next;
  Tap tap[kTaps];  // of the next step: loaded a step before its use
  uint32_t in_h, in_w;

  RK_INLINE static int row() { return GATHER == 4 ? static_cast<int>(threadIdx.x) / 8 : lane_id(); }
  RK_INLINE static int column() { return GATHER == 4 ? static_cast<int>(threadIdx.x) % 8 : warp_id(); }

  RK_INLINE void start(const ImplicitGemmArgs& args, const float* in, const Tap* taps, uint32_t first_m) {
    next = taps + column();
    load_taps();
    in_h = static_cast<uint32_t>(args.in_h);
    in_w = static_cast<uint32_t>(args.in_w);
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const uint32_t m = first_m + static_cast<uint32_t>(row() + i * 32);
      const Pixel p = pixel_of(m, args.pixels, args.out_w);
      h[i] = p.h * args.stride_h - args.pad_h;
      w[i] = p.w * args.stride_w - args.pad_w;
      pixel[i] = in + offset_of({p.image, h[i], w[i]}, args.in_strides);
      if (m >= static_cast<uint32_t>(args.rows)) h[i] = INT32_MIN / 2;
    }
  }
  RK_INLINE void load_taps() {
#pragma unroll
    for (int t = 0; t < kTaps; ++t) tap[t] = next[t * kTapStride];
    next += kTaps * kTapStride;
  }
  RK_INLINE void copy(char* tiles) {
#pragma unroll
    for (int t = 0; t < kTaps; ++t) {
      const uint32_t limit_h = tap[t].offset == kNoTap ? 0u : in_h;
      const int dh = static_cast<int>(tap[t].place & 0xffffu), dw = static_cast<int>(tap[t].place >> 16);
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
        const bool valid = static_cast<uint32_t>(h[i] + dh) < limit_h && static_cast<uint32_t>(w[i] + dw) < in_w;
        const int to_row = row() + i * 32;
        if constexpr (GATHER == 4) {
          cp_async16(tiles + t * BLOCK_M * kRowBytes + cell_offset(to_row, column()), pixel[i] + tap[t].offset, valid);
        } else {
          const int k = column() + t % 4 * kTapStride;
          cp_async4(tiles + t / 4 * BLOCK_M * kRowBytes + cell_offset(to_row, k / 4) + k % 4 * 4, pixel[i] + tap[t].offset, valid);
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

// The thread's 4 channels of the tile and how they are finished.
template <class Veu, int BLOCK_N>
RK_INLINE Finish4 finish_of(const Task<Veu>& task, const ImplicitGemmArgs& args, const TileOf& tile) {
  const int column = static_cast<int>(threadIdx.x) % (BLOCK_N / 4) * 4;
  const int in_group = static_cast<int>(tile.n_block) * BLOCK_N + column;
  const int bias_offset = static_cast<int>(tile.group * args.n_blocks.divisor + tile.n_block) * BLOCK_N + column;
  return finish_of(task, args, static_cast<int>(tile.group) * args.channels + in_group, args.channels - in_group, bias_offset,
                   tile.split * args.split_stride);
}

// Adds the sums of the groups of warps and stores the results.
template <class Veu, int BLOCK_M, int BLOCK_N, int K_GROUPS>
RK_INLINE void finish_tile(const Finish4& finish, const char* sums, uint32_t first_m, uint32_t rows) {
  constexpr int kThreadsPerRow = BLOCK_N / 4;
  constexpr int kRowThreads = Veu::kComputeThreads / kThreadsPerRow;
  const int column = static_cast<int>(threadIdx.x) % kThreadsPerRow * 4;
  if (finish.left <= 0) return;
#pragma unroll 2
  for (int r = static_cast<int>(threadIdx.x) / kThreadsPerRow; r < BLOCK_M; r += kRowThreads) {
    const uint32_t m = first_m + static_cast<uint32_t>(r);
    if (m >= rows) break;
    const int from = sum_offset<BLOCK_N>(r, column);
    float4 v = load_shared4(sums, from);
    if constexpr (K_GROUPS == 2) v = add4(v, load_shared4(sums, from + BLOCK_M * BLOCK_N * 4));
    finish(m, v);
  }
}

template <class Veu, class Math, int BLOCK_M, int BLOCK_N, int K_GROUPS, int GATHER, int A_STAGES, int CHUNK_STEPS>
RK_BODY void implicit_gemm(const Task<Veu>& task) {
  constexpr int kTileBytes = K_GROUPS * BLOCK_M * kRowBytes;
  constexpr int kStepBytes = K_GROUPS * BLOCK_N * kRowBytes;
  static_assert(Veu::kComputeThreads == kComputeWarps * kWarp && BLOCK_M % 32 == 0 && A_STAGES >= 2 && K_GROUPS <= 2);
  static_assert(CHUNK_STEPS * kStepBytes <= Veu::kWeightStageBytes && (CHUNK_STEPS & (CHUNK_STEPS - 1)) == 0);

  const auto& args = task.template arguments<ImplicitGemmArgs>();
  const TileOf tile = tile_of<BLOCK_M>(args, task.index);
  const int first_step = static_cast<int>(tile.split) * args.steps_per_split;
  const int steps = min(args.steps - first_step, args.steps_per_split);  // at least 1
  const int chunks = args.chunks;
  const uint32_t rows = static_cast<uint32_t>(args.rows);
  char* const work = task.work;
  WeightPipe<Veu> weights = task.weights;

  Gather<BLOCK_M, K_GROUPS, GATHER> gather;
  gather.start(args, task.address(args.in) + tile.group * args.in_group_stride,
               reinterpret_cast<const Tap*>(task.address(args.taps)) + first_step * (K_GROUPS * kGroupK / GATHER), tile.m);
  const Finish4 finish = finish_of<Veu, BLOCK_N>(task, args, tile);
  TileProduct<Math, BLOCK_M, BLOCK_N, K_GROUPS> product;
  product.clear();

  const char* chunk = work;
  int read = 0, write = 0;  // stages, as offsets
#pragma unroll 1
  for (int s = 1 - A_STAGES; s < steps; ++s) {  // the copies are A_STAGES - 1 steps ahead
    if (s >= 0) {
      cp_async_wait<A_STAGES - 2>();
      sync_compute<Veu>();  // step s is there for all, and nobody reads stage `write` any more
    }
    if (s + A_STAGES - 1 < steps) gather.copy(work + write);
    cp_async_commit();
    write = write == (A_STAGES - 1) * kTileBytes ? 0 : write + kTileBytes;
    if (s < 0) continue;
    if (s % CHUNK_STEPS == 0) chunk = weights.acquire();
    product.step(work + read, chunk + s % CHUNK_STEPS * kStepBytes);
    if (s % CHUNK_STEPS == CHUNK_STEPS - 1 || s == steps - 1) weights.release();
    read = read == (A_STAGES - 1) * kTileBytes ? 0 : read + kTileBytes;
  }
  for (int c = (steps + CHUNK_STEPS - 1) / CHUNK_STEPS; c < chunks; ++c) {
    weights.acquire();
    weights.release();
  }
  cp_async_wait<0>();
  sync_compute<Veu>();
  product.store(work);
  sync_compute<Veu>();
  finish_tile<Veu, BLOCK_M, BLOCK_N, K_GROUPS>(finish, work, tile.m, rows);
}

}  // namespace rk
