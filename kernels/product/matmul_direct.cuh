// Y[b, m, n] = alpha * sum over k of A[b, m, k] * B[b, k, n] + beta * C[b, m, n], with general strides, so that transposes and broadcasts
// are strides. fp32 multiply-adds. A tile is kTile x kTile outputs; steps of kMatmulStep along k go from memory through registers to
// shared memory, one step ahead. Thread (ty, tx) of 16 x 16 has kEach x kEach neighbouring outputs.
//
// Example: kTile 64, so kEach 4. Thread 77 is ty = 4, tx = 13: rows 16 to 19 and columns 52 to 55 of the tile. Of each operand it loads
// groups of four 77 and 333. If A's stride along k is 1, group 77 is row 9 (77 / 8), k 20 to 23 (77 % 8 * 4) of the step, and k = 20 goes
// to float 20 * 68 + 9 = 1369 of the stage; if the stride along m is 1, group 77 is rows 52 to 55 (77 % 16 * 4) at k = 4 (77 / 16).
#pragma once

#include "kernels/product/numbers.cuh"
#include "kernels/vdevice/epilogue.cuh"

namespace rk {

struct MatmulDirectArgs {  // in tables
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
  uint8_t a_vector, b_vector, out_vector;  // the dimension of stride 1 is whole groups of 16 aligned bytes
};

// One step of the operands in shared memory: a is [k][m], b is [k][n].
template <int kTile>
struct alignas(16) MatmulStage {
  static constexpr int kPitch = matmul_pitch(kTile);
  float a[kMatmulStep * kPitch], b[kMatmulStep * kPitch];
};
static_assert(sizeof(MatmulStage<32>) == matmul_stage_floats(32) * 4 && sizeof(MatmulStage<64>) == matmul_stage_floats(64) * 4);

// One operand's part of a step: matrix[x, k] for x < x_end and k < k_end. Groups of four run along the dimension of stride 1.
struct MatmulSource {
  const float* first;
  int32_t x_stride, k_stride, x_end, k_end;
  bool along_k, vector;
};
template <int kTile>
struct MatmulGroups {
  static constexpr int kCount = kTile / 32;  // per thread
  float4 v[kCount];
};

struct MatmulPlace {
  int x, k;
};
template <int kTile>
RK_INLINE MatmulPlace matmul_place(bool along_k, int group) {
  if (along_k) return {group / (kMatmulStep / 4), group % (kMatmulStep / 4) * 4};
  return {group % (kTile / 4) * 4, group / (kTile / 4)};
}

// All loads of a step are under way before the first is waited for: nothing here depends on a loaded value.
template <class Veu, int kTile>
RK_INLINE void matmul_load(const MatmulSource& s, MatmulGroups<kTile>& to) {
  constexpr int kCount = MatmulGroups<kTile>::kCount;
  const float* from[kCount];
  int left[kCount];  // number of elements of the group that exist
#pragma unroll
  for (int g = 0; g < kCount; ++g) {
    const MatmulPlace at = matmul_place<kTile>(s.along_k, static_cast<int>(threadIdx.x) + g * Veu::kComputeThreads);
    from[g] = s.first + static_cast<int64_t>(at.x) * s.x_stride + static_cast<int64_t>(at.k) * s.k_stride;
    left[g] = at.x >= s.x_end || at.k >= s.k_end ? 0 : s.along_k ? s.k_end - at.k : s.x_end - at.x;
    to.v[g] = float4{0, 0, 0, 0};
  }
  if (s.vector) {
#pragma unroll
    for (int g = 0; g < kCount; ++g) {
      if (left[g] > 0) to.v[g] = load4(from[g]);
    }
    return;
  }
  const int64_t step = s.along_k ? s.k_stride : s.x_stride;
#pragma unroll
  for (int g = 0; g < kCount; ++g) {
    if (left[g] > 0) to.v[g].x = load1(from[g]);
    if (left[g] > 1) to.v[g].y = load1(from[g] + step);
    if (left[g] > 2) to.v[g].z = load1(from[g] + 2 * step);
    if (left[g] > 3) to.v[g].w = load1(from[g] + 3 * step);
  }
}

template <class Veu, int kTile>
RK_INLINE void matmul_put(float* to, bool along_k, const MatmulGroups<kTile>& from) {
  constexpr int kPitch = MatmulStage<kTile>::kPitch;
#pragma unroll
  for (int g = 0; g < MatmulGroups<kTile>::kCount; ++g) {
    const MatmulPlace at = matmul_place<kTile>(along_k, static_cast<int>(threadIdx.x) + g * Veu::kComputeThreads);
    float* const p = to + at.k * kPitch + at.x;
    const int step = along_k ? kPitch : 1;
    p[0] = from.v[g].x;
    p[step] = from.v[g].y;
    p[2 * step] = from.v[g].z;
    p[3 * step] = from.v[g].w;
  }
}

// kEach neighbouring floats of shared memory.
template <int kEach>
RK_INLINE void matmul_read(const float* p, float (&to)[kEach]) {
  if constexpr (kEach == 4) {
    const float4 v = *reinterpret_cast<const float4*>(p);
    to[0] = v.x;
    to[1] = v.y;
    to[2] = v.z;
    to[3] = v.w;
  } else {
    const float2 v = *reinterpret_cast<const float2*>(p);
    to[0] = v.x;
    to[1] = v.y;
  }
}

// Offsets of one matrix of the batch.
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
RK_INLINE void matmul_multiply(const Task<Veu>& task, MatmulSource a, MatmulSource b, float (&acc)[kTile / 16][kTile / 16]) {
  constexpr int kEach = kTile / 16;
  constexpr int kPitch = MatmulStage<kTile>::kPitch;
  MatmulStage<kTile>* const stages = task.template work_as<MatmulStage<kTile>>();
  const int tx = static_cast<int>(threadIdx.x) % 16, ty = static_cast<int>(threadIdx.x) / 16;
  const int steps = (a.k_end + kMatmulStep - 1) / kMatmulStep;
  MatmulGroups<kTile> next_a, next_b;
  // Turn t loads step t, and multiplies step t - 1 meanwhile. One barrier a turn suffices: when a thread
  // writes a stage, the barrier of the turn before has shown that all threads have left that stage.
#pragma unroll 1
  for (int turn = 0; turn <= steps; ++turn) {
    MatmulStage<kTile>& stage = stages[turn % kMatmulStages];
    if (turn > 0) {
      matmul_put<Veu, kTile>(stage.a, a.along_k, next_a);
      matmul_put<Veu, kTile>(stage.b, b.along_k, next_b);
      sync_compute<Veu>();
    }
    if (turn < steps) {
      matmul_load<Veu, kTile>(a, next_a);
      matmul_load<Veu, kTile>(b, next_b);
      a.first += static_cast<int64_t>(kMatmulStep) * a.k_stride;
      b.first += static_cast<int64_t>(kMatmulStep) * b.k_stride;
      a.k_end -= kMatmulStep;
      b.k_end -= kMatmulStep;
    }
    if (turn == 0) continue;
    // The operands of k + 1 are read while those of k are multiplied.
    const float* const at_a = stage.a + ty * kEach;
    const float* const at_b = stage.b + tx * kEach;
    float x[2][kEach], y[2][kEach];
    matmul_read<kEach>(at_a, x[0]);
    matmul_read<kEach>(at_b, y[0]);
#pragma unroll 8
    for (int k = 0; k < kMatmulStep; ++k) {
      const int next = (k + 1) % kMatmulStep;
      matmul_read<kEach>(at_a + next * kPitch, x[(k + 1) % 2]);
      matmul_read<kEach>(at_b + next * kPitch, y[(k + 1) % 2]);
#pragma unroll
      for (int i = 0; i < kEach; ++i) {
#pragma unroll
        for (int j = 0; j < kEach; ++j) acc[i][j] += x[k % 2][i] * y[k % 2][j];
      }
    }
  }
  sync_compute<Veu>();  // the next tile begins with the same stages
}

// Stores columns n, n + 1, .. of row m.
template <int kEach, class Veu>
RK_INLINE void matmul_store(const Task<Veu>& task, const MatmulDirectArgs& args, const MatmulBatch& at, int32_t m, int32_t n,
                            const float (&acc)[kEach]) {
  static_assert(kEach <= 4, "a float4 of columns");
  const EpilogueArgs& e = args.epilogue;
  const float* const c = task.address(args.c);
  const float* const bias = task.address(e.bias);
  const float* const residual = task.address(e.residual);
  float y[4] = {0, 0, 0, 0}, r[4] = {0, 0, 0, 0};
#pragma unroll
  for (int j = 0; j < kEach; ++j) {
    const int32_t column = n + j;
    if (column >= args.n) continue;
    y[j] = args.alpha * acc[j];
    if (c != nullptr) y[j] += args.beta * load1(c + at.c + static_cast<int64_t>(m) * args.c_m + static_cast<int64_t>(column) * args.c_n);
    if (bias != nullptr) y[j] += load_weight1(bias + column);
    if (residual != nullptr) r[j] = load1(residual + at.residual + m * e.residual_strides[0] + column * e.residual_strides[1]);
  }
  const float4 v = finish4(e, float4{y[0], y[1], y[2], y[3]}, float4{r[0], r[1], r[2], r[3]});
  const float result[4] = {v.x, v.y, v.z, v.w};
  float* const out = task.address(args.out) + at.out + static_cast<int64_t>(m) * args.out_m;
  if (kEach == 4 && args.out_vector && n + 4 <= args.n) return store4(out + n, v);
#pragma unroll
  for (int j = 0; j < kEach; ++j) {
    if (n + j < args.n) store1(out + static_cast<int64_t>(n + j) * args.out_n, result[j]);
  }
}

template <class Veu, int kTile>
RK_BODY void matmul_direct(const Task<Veu>& caller) {
  const Task<Veu> task = caller;  // in registers; the caller's copy is in memory
  static_assert(Veu::kComputeThreads == 256, "16 x 16 threads");
  constexpr int kEach = kTile / 16;
  const MatmulDirectArgs& args = task.template arguments<MatmulDirectArgs>();
  const int tx = static_cast<int>(threadIdx.x) % 16, ty = static_cast<int>(threadIdx.x) / 16;
  const uint32_t limit = (task.index + 1) * args.tiles_per_rtask;
  const uint32_t end = limit < args.tiles ? limit : args.tiles;
  task.await_inputs();
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
    const MatmulSource a{task.address(args.a) + at.a + static_cast<int64_t>(m0) * args.a_m,
                         args.a_m,
                         args.a_k,
                         args.m - m0,
                         args.k,
                         args.a_k == 1,
                         args.a_vector != 0};
    const MatmulSource b{task.address(args.b) + at.b + static_cast<int64_t>(n0) * args.b_n,
                         args.b_n,
                         args.b_k,
                         args.n - n0,
                         args.k,
                         args.b_k == 1,
                         args.b_vector != 0};
    matmul_multiply<Veu, kTile>(task, a, b, acc);
    // acc[0] is stored and the other rows move up, so that the code of the epilogue is there once.
#pragma unroll 1
    for (int32_t m = m0 + ty * kEach; m < args.m && m < m0 + (ty + 1) * kEach; ++m) {
      matmul_store<kEach>(task, args, at, m, n0 + tx * kEach, acc[0]);
#pragma unroll
      for (int i = 0; i + 1 < kEach; ++i) {
#pragma unroll
        for (int j = 0; j < kEach; ++j) acc[i][j] = acc[i + 1][j];
      }
    }
  }
}

}  // namespace rk
