// Y[b, m, n] = alpha * sum over k of A[b, m, k] * B[b, k, n] + beta * C[b, m, n], with general strides, so that transposes and
// broadcasts are strides. fp32 multiply-adds. A tile of kTile x kTile outputs; steps of kStep along k go through shared memory,
// one step ahead. Thread (ty, tx) of 16 x 16 has outputs (ty + 16 i, tx + 16 j).
#pragma once

#include "kernels/vdevice/epilogue.cuh"

namespace rk {

constexpr int kMatmulBatchRank = 4;

struct MatmulDirectArgs {
  TensorRef out, a, b, c;  // c may be null
  EpilogueArgs epilogue;   // residual_strides: m, n
  int32_t out_batch[kMatmulBatchRank], a_batch[kMatmulBatchRank], b_batch[kMatmulBatchRank], c_batch[kMatmulBatchRank],
      residual_batch[kMatmulBatchRank];
  Divisor batch_divisors[kMatmulBatchRank - 1];
  int32_t batch_rank;
  int32_t m, n, k;
  int32_t out_m, out_n, a_m, a_k, b_k, b_n, c_m, c_n;  // strides
  Divisor tiles_m, tiles_n;
  uint32_t tiles, tiles_per_rtask;
  float alpha, beta;
};
static_assert(sizeof(MatmulDirectArgs) <= 768, "an argument slot has 768 bytes");

constexpr int kMatmulStep = 32;

template <int kTile>
struct MatmulStage {
  static constexpr int kPitch = kTile + 1;  // odd: no bank conflicts in either direction
  float a[kMatmulStep * kPitch], b[kMatmulStep * kPitch];
};
template <int kTile>
constexpr int kMatmulWorkBytes = 2 * static_cast<int>(sizeof(MatmulStage<kTile>));

// to[k][x] = from[x * x_stride + k * k_stride] for x < x_end and k < k_end, else 0. Neighbouring lanes take neighbouring memory.
template <class Veu, int kTile>
RK_INLINE void matmul_fetch(float* to, const float* from, int32_t x_stride, int32_t k_stride, int32_t x_end, int32_t k_end) {
  constexpr int kElements = kTile * kMatmulStep;
  const bool k_first = k_stride == 1 || k_stride == -1;
#pragma unroll 4
  for (int e = static_cast<int>(threadIdx.x); e < kElements; e += Veu::kComputeThreads) {
    const int k = k_first ? e % kMatmulStep : e / kTile;
    const int x = k_first ? e / kMatmulStep : e % kTile;
    const bool valid = x < x_end && k < k_end;
    const int64_t offset = valid ? static_cast<int64_t>(x) * x_stride + static_cast<int64_t>(k) * k_stride : 0;
    cp_async4(to + k * MatmulStage<kTile>::kPitch + x, from + offset, valid);
  }
}

// Offsets of one batch element.
struct MatmulBatch {
  int64_t out = 0, a = 0, b = 0, c = 0, residual = 0;
};
RK_INLINE MatmulBatch matmul_batch(const MatmulDirectArgs& args, uint32_t batch) {
  MatmulBatch at;
#pragma unroll 1
  for (int d = args.batch_rank - 1; d >= 0; --d) {
    uint32_t i = batch;
    if (d > 0) batch = divide(batch, args.batch_divisors[d - 1], i);
    at.out += static_cast<int64_t>(i) * args.out_batch[d];
    at.a += static_cast<int64_t>(i) * args.a_batch[d];
    at.b += static_cast<int64_t>(i) * args.b_batch[d];
    at.c += static_cast<int64_t>(i) * args.c_batch[d];
    at.residual += static_cast<int64_t>(i) * args.residual_batch[d];
  }
  return at;
}

template <class Veu, int kTile>
RK_INLINE void matmul_multiply(const Task<Veu>& task, const MatmulDirectArgs& args, const float* a, const float* b, int32_t rows, int32_t columns,
                               float (&acc)[kTile / 16][kTile / 16]) {
  constexpr int kEach = kTile / 16;
  constexpr int kPitch = MatmulStage<kTile>::kPitch;
  MatmulStage<kTile>* const stages = reinterpret_cast<MatmulStage<kTile>*>(task.work);
  const int tx = static_cast<int>(threadIdx.x) % 16, ty = static_cast<int>(threadIdx.x) / 16;
  const int steps = (args.k + kMatmulStep - 1) / kMatmulStep;
  const auto fetch = [&](int step) {
    if (step < steps) {
      const int32_t k = step * kMatmulStep;
      MatmulStage<kTile>& stage = stages[step % 2];
      matmul_fetch<Veu, kTile>(stage.a, a + static_cast<int64_t>(k) * args.a_k, args.a_m, args.a_k, rows, args.k - k);
      matmul_fetch<Veu, kTile>(stage.b, b + static_cast<int64_t>(k) * args.b_k, args.b_n, args.b_k, columns, args.k - k);
    }
    cp_async_commit();
  };
  fetch(0);
#pragma unroll 1
  for (int step = 0; step < steps; ++step) {
    fetch(step + 1);
    cp_async_wait<1>();
    sync_compute<Veu>();
    const MatmulStage<kTile>& stage = stages[step % 2];
#pragma unroll 4
    for (int k = 0; k < kMatmulStep; ++k) {
      float x[kEach], y[kEach];
#pragma unroll
      for (int i = 0; i < kEach; ++i) x[i] = stage.a[k * kPitch + ty + 16 * i];
#pragma unroll
      for (int j = 0; j < kEach; ++j) y[j] = stage.b[k * kPitch + tx + 16 * j];
#pragma unroll
      for (int i = 0; i < kEach; ++i) {
#pragma unroll
        for (int j = 0; j < kEach; ++j) acc[i][j] += x[i] * y[j];
      }
    }
    sync_compute<Veu>();  // before the next fetch overwrites the stage
  }
  cp_async_wait<0>();
}

template <class Veu>
RK_INLINE void matmul_store(const Task<Veu>& task, const MatmulDirectArgs& args, const MatmulBatch& at, int32_t m, int32_t n, float acc) {
  const EpilogueArgs& e = args.epilogue;
  float y = args.alpha * acc;
  if (const float* const c = task.address(args.c)) {
    y += args.beta * load1(c + at.c + static_cast<int64_t>(m) * args.c_m + static_cast<int64_t>(n) * args.c_n);
  }
  if (const float* const bias = task.address(e.bias)) y += load_weight1(bias + n);
  float r = 0.0f;
  if (const float* const residual = task.address(e.residual)) r = load1(residual + at.residual + m * e.residual_strides[0] + n * e.residual_strides[1]);
  store1(task.address(args.out) + at.out + static_cast<int64_t>(m) * args.out_m + static_cast<int64_t>(n) * args.out_n, finish(e, y, r));
}

template <class Veu, int kTile>
RK_BODY void matmul_direct(const Task<Veu>& task) {
  static_assert(Veu::kComputeThreads == 256, "16 x 16 threads");
  constexpr int kEach = kTile / 16;
  const MatmulDirectArgs& args = task.template arguments<MatmulDirectArgs>();
  const int tx = static_cast<int>(threadIdx.x) % 16, ty = static_cast<int>(threadIdx.x) / 16;
  const uint32_t limit = (task.index + 1) * args.tiles_per_rtask;
  const uint32_t end = limit < args.tiles ? limit : args.tiles;
#pragma unroll 1
  for (uint32_t tile = task.index * args.tiles_per_rtask; tile < end; ++tile) {
    uint32_t tile_m, tile_n;
    const uint32_t batch = divide(divide(tile, args.tiles_n, tile_n), args.tiles_m, tile_m);
    const MatmulBatch at = matmul_batch(args, batch);
    const int32_t m0 = static_cast<int32_t>(tile_m) * kTile, n0 = static_cast<int32_t>(tile_n) * kTile;
    float acc[kEach][kEach];
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
#pragma unroll
      for (int j = 0; j < kEach; ++j) acc[i][j] = 0.0f;
    }
    const float* const a = task.address(args.a) + at.a + static_cast<int64_t>(m0) * args.a_m;
    const float* const b = task.address(args.b) + at.b + static_cast<int64_t>(n0) * args.b_n;
    matmul_multiply<Veu, kTile>(task, args, a, b, args.m - m0, args.n - n0, acc);
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
#pragma unroll
      for (int j = 0; j < kEach; ++j) {
        const int32_t m = m0 + ty + 16 * i, n = n0 + tx + 16 * j;
        if (m < args.m && n < args.n) matmul_store(task, args, at, m, n, acc[i][j]);
      }
    }
  }
}

}  // namespace rk
