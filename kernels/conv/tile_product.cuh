// The product of one tile by the 8 compute warps of a vEU: C[BLOCK_M][BLOCK_N] += A[BLOCK_M][32] * B[32][BLOCK_N].
//
// A is in shared memory, row-major, 128 bytes a row, its eight 16-byte cells permuted by cell_offset so that 8 rows at
// the same k lie in different banks. B is in shared memory in the order in which it is read (pack_step in
// kernels/conv/implicit_gemm.cpp):
//   Fp32: B[k][n];
//   Tf32: per 8 of k and 16 of n, lane by lane {b0, b1 of one mma, b0, b1 of a second}. The columns of the two are dealt out
//         so that the 4 results of a lane in a row are 4 neighbouring channels.
// Both give a thread kRows rows and in each of them kVectors times 4 neighbouring columns.
#pragma once

#include "kernels/vdevice/memory.cuh"
#include "kernels/vdevice/mma.cuh"

namespace rk {

struct Fp32 {};
struct Tf32 {};

constexpr int kBlockK = 32;
constexpr int kRowBytes = kBlockK * 4;
constexpr int kComputeWarps = 8;

RK_INLINE int cell_offset(int row, int cell) { return row * kRowBytes + ((cell ^ (row & 7)) << 4); }

template <class Math, int BLOCK_M, int BLOCK_N>
struct TileProduct;

template <int BLOCK_M, int BLOCK_N>
struct TileProduct<Fp32, BLOCK_M, BLOCK_N> {
  // A warp is 4 rows x 8 vectors of threads; a thread's rows are kRowThreads apart.
  static constexpr int kWarpColumns = BLOCK_N / 32;
  static constexpr int kRowThreads = kComputeWarps / kWarpColumns * 4;
  static constexpr int kRows = BLOCK_M / kRowThreads;
  static constexpr int kVectors = 1;
  static constexpr int kUnroll = kRows >= 8 ? 1 : 2;  // registers
  static_assert(kComputeWarps % kWarpColumns == 0 && BLOCK_M % kRowThreads == 0 && kRowThreads % 8 == 0);

  float4 sum[kRows];

  RK_INLINE static int first_row() { return warp_id() / kWarpColumns * 4 + lane_id() / 8; }
  RK_INLINE static int row(int i) { return first_row() + i * kRowThreads; }
  RK_INLINE static int column(int) { return warp_id() % kWarpColumns * 32 + lane_id() % 8 * 4; }
  RK_INLINE float4 get(int i, int) const { return sum[i]; }
  RK_INLINE void set(int i, int, float4 v) { sum[i] = v; }

  RK_INLINE void step(const char* a_tile, const char* b_tile) {
    const char* const a_row = a_tile + first_row() * kRowBytes;
    const int permutation = first_row() & 7;  // the same for all rows of the thread
    const float* const b_column = reinterpret_cast<const float*>(b_tile) + column(0);
#pragma unroll kUnroll
    for (int cell = 0; cell < kBlockK / 4; ++cell) {
      float4 a[kRows];
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
        a[i] = *reinterpret_cast<const float4*>(a_row + i * kRowThreads * kRowBytes + ((cell ^ permutation) << 4));
      }
      const auto b = [&](int k) { return *reinterpret_cast<const float4*>(b_column + (cell * 4 + k) * BLOCK_N); };
      const float4 b0 = b(0), b1 = b(1), b2 = b(2), b3 = b(3);
#pragma unroll
      for (int i = 0; i < kRows; ++i) add(sum[i], a[i].x, b0);
#pragma unroll
      for (int i = 0; i < kRows; ++i) add(sum[i], a[i].y, b1);
#pragma unroll
      for (int i = 0; i < kRows; ++i) add(sum[i], a[i].z, b2);
#pragma unroll
      for (int i = 0; i < kRows; ++i) add(sum[i], a[i].w, b3);
    }
  }

 private:
  RK_INLINE static void add(float4& s, float a, float4 b) {
    s.x = fmaf(a, b.x, s.x);
    s.y = fmaf(a, b.y, s.y);
    s.z = fmaf(a, b.z, s.z);
    s.w = fmaf(a, b.w, s.w);
  }
};

template <int BLOCK_M, int BLOCK_N>
struct TileProduct<Tf32, BLOCK_M, BLOCK_N> {
  static constexpr int kWarpsM = BLOCK_M >= 64 ? 4 : 2;
  static constexpr int kWarpsN = kComputeWarps / kWarpsM;
  static constexpr int kWarpM = BLOCK_M / kWarpsM;
  static constexpr int kWarpN = BLOCK_N / kWarpsN;
  static constexpr int kTilesM = kWarpM / 16;
  static constexpr int kRows = 2 * kTilesM;
  static constexpr int kVectors = kWarpN / 16;
  // An mma waits for the one before it on the same accumulators; with fewer than four of them a second set takes
  // every other step of k.
  static constexpr int kSets = kTilesM * kVectors * 2 < 4 ? 2 : 1;
  static_assert(kWarpM % 16 == 0 && kWarpN % 16 == 0);

  float sum[kSets][kTilesM][2 * kVectors][4];

  RK_INLINE static int warp_row() { return warp_id() / kWarpsN * kWarpM; }
  RK_INLINE static int warp_column() { return warp_id() % kWarpsN * kWarpN; }
  RK_INLINE static int row(int i) { return warp_row() + i * 8 + lane_id() / 4; }
  RK_INLINE static int column(int j) { return warp_column() + j * 16 + lane_id() % 4 * 4; }
  RK_INLINE float4 get(int i, int j) const {
    float v[4];
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      v[e] = sum[0][i / 2][2 * j + e / 2][i % 2 * 2 + e % 2];
      if (kSets == 2) v[e] += sum[kSets - 1][i / 2][2 * j + e / 2][i % 2 * 2 + e % 2];
    }
    return {v[0], v[1], v[2], v[3]};
  }
  RK_INLINE void set(int i, int j, float4 v) {
    const float values[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      if (kSets == 2) sum[kSets - 1][i / 2][2 * j + e / 2][i % 2 * 2 + e % 2] = 0.0f;
      sum[0][i / 2][2 * j + e / 2][i % 2 * 2 + e % 2] = values[e];
    }
  }

  RK_INLINE void step(const char* a_tile, const char* b_tile) {
    // Lane l reads row l % 16 of a 16-row tile, at k 0-3 (l < 16) or 4-7; see ldmatrix4.
    const char* const a_row = a_tile + (warp_row() + lane_id() % 16) * kRowBytes;
    const int cell = (lane_id() / 16) ^ (lane_id() & 7);
    const char* const b_lane = b_tile + (warp_column() / 16 * kWarp + lane_id()) * 16;
#pragma unroll
    for (int k8 = 0; k8 < kBlockK / 8; ++k8) {
      uint32_t a[kTilesM][4];
#pragma unroll
      for (int i = 0; i < kTilesM; ++i) {
        ldmatrix4(a[i], a_row + i * 16 * kRowBytes + ((cell ^ (k8 * 2)) << 4));
#pragma unroll
        for (int e = 0; e < 4; ++e) a[i][e] = to_tf32(__uint_as_float(a[i][e]));
      }
#pragma unroll
      for (int j = 0; j < kVectors; ++j) {
        const uint4 b = *reinterpret_cast<const uint4*>(b_lane + (k8 * (BLOCK_N / 16) + j) * kWarp * 16);
        const uint32_t first[2] = {b.x, b.y}, second[2] = {b.z, b.w};
#pragma unroll
        for (int i = 0; i < kTilesM; ++i) {
          mma_tf32(sum[k8 % kSets][i][2 * j], a[i], first);
          mma_tf32(sum[k8 % kSets][i][2 * j + 1], a[i], second);
        }
      }
    }
  }
};

}  // namespace rk
