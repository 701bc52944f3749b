// The product of one tile by the 8 compute warps of a vEU: C[BLOCK_M][BLOCK_N] += A[BLOCK_M][k] * B[k][BLOCK_N]. The warps are K_GROUPS
// groups. Each group makes a C of its own from its share of k, 32 of k a step; store() leaves the groups' C in shared memory, one behind
// the other, to be added. With two groups a warp has a larger part of C, so that it reads less for each multiplication, and the groups
// need not keep step: one multiplies while the other waits.
//
// A is in shared memory, row-major, 128 bytes a row. The eight 16-byte cells of a row are permuted by box_cell so that 8 rows at the
// same k lie in different banks. B is in shared memory in the order in which it is read (index_in_step in
// kernels/product/implicit_gemm.cpp):
//   Fp32: B[k][n];
//   Tf32: per 8 of k and 16 of n, lane by lane {b0, b1 of one mma, b0, b1 of a second}. The 16 columns are dealt out to the two
//         so that the 4 results of a lane in a row are 4 neighbouring channels.
//
// Example: k 12 to 15 of row 5 of A are cell 3, which lies at byte 5 * 128 + (3 ^ 5) * 16 = 736. In a tile of 64 x 64 with two groups
// lane 13 of warp 6 is of group 1 (6 / 4). In fp32 it has rows 5, 13, .. 61 and columns 20 to 23 of C; in tf32 it has rows 35, 43, 51 and
// 59 and columns 4 to 7 and 20 to 23. Row 3, columns 20 to 23 of C lie at byte (3 * 64 + (20 ^ 16)) * 4 = 784.
#pragma once

#include "kernels/tile/numbers.cuh"
#include "kernels/vdevice/memory.cuh"
#include "kernels/vdevice/mma.cuh"

namespace rk {

struct Fp32 {};  // in tables
struct Tf32 {};  // in tables

inline constexpr int kRowBytes = kBoxRowBytes;
static_assert(kRowBytes == kGroupK * 4);

// The byte of 4 columns of C in shared memory: rows of BLOCK_N values. Every other row is permuted against bank conflicts.
template <int BLOCK_N>
RK_INLINE int sum_offset(int row, int column) {
  return (row * BLOCK_N + (column ^ (row % 2 * 16))) * 4;
}

template <class Math, int BLOCK_M, int BLOCK_N, int K_GROUPS>
struct TileProduct;

template <int BLOCK_M, int BLOCK_N, int K_GROUPS>
struct TileProduct<Fp32, BLOCK_M, BLOCK_N, K_GROUPS> {
  // A warp is 4 rows x 8 vectors of threads; a thread has every kRowThreads-th row and 4 columns.
  static constexpr int kWarps = kComputeWarps / K_GROUPS;
  static constexpr int kWarpColumns = BLOCK_N / 32;
  static constexpr int kRowThreads = kWarps / kWarpColumns * 4;
  static constexpr int kRows = BLOCK_M / kRowThreads;
  static constexpr int kUnroll = kRows >= 8 ? 1 : 2;  // more would run out of registers
  static_assert(kWarps % kWarpColumns == 0 && BLOCK_M % kRowThreads == 0 && kRowThreads % 8 == 0);

  float4 sum[kRows];

  RK_INLINE static int first_row() { return warp_id() % kWarps / kWarpColumns * 4 + lane_id() / 8; }
  RK_INLINE static int column() { return warp_id() % kWarpColumns * 32 + lane_id() % 8 * 4; }

  RK_INLINE void clear() {
#pragma unroll
    for (int i = 0; i < kRows; ++i) sum[i] = {0.0f, 0.0f, 0.0f, 0.0f};
  }

  RK_INLINE void step(const char* a_tile, const char* b_tile) {
    const char* const a_row = a_tile + first_row() * kRowBytes;
    const int permutation = first_row() & 7;  // the same for all rows of the thread
    const char* const b_column = b_tile + column() * 4;
#pragma unroll kUnroll
    for (int cell = 0; cell < kGroupK / 4; ++cell) {
      float4 a[kRows];
#pragma unroll
      for (int i = 0; i < kRows; ++i) a[i] = load_shared4(a_row, i * kRowThreads * kRowBytes + ((cell ^ permutation) << 4));
      const auto b = [&](int k) { return load_shared4(b_column, (cell * 4 + k) * BLOCK_N * 4); };
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

  RK_INLINE void store(char* to) const {
    to += warp_id() / kWarps * BLOCK_M * BLOCK_N * 4;
#pragma unroll
    for (int i = 0; i < kRows; ++i) store_shared4(to, sum_offset<BLOCK_N>(first_row() + i * kRowThreads, column()), sum[i]);
  }

 private:
  RK_INLINE static void add(float4& s, float a, float4 b) {
    s.x = fmaf(a, b.x, s.x);
    s.y = fmaf(a, b.y, s.y);
    s.z = fmaf(a, b.z, s.z);
    s.w = fmaf(a, b.w, s.w);
  }
};

template <int BLOCK_M, int BLOCK_N, int K_GROUPS>
struct TileProduct<Tf32, BLOCK_M, BLOCK_N, K_GROUPS> {
  // A warp has 32 columns; the warps of a group that have the same columns share the rows.
  static constexpr int kWarps = kComputeWarps / K_GROUPS;
  static constexpr int kWarpsN = BLOCK_N / 32;
  static constexpr int kWarpM = BLOCK_M / (kWarps / kWarpsN);
  static constexpr int kTilesM = kWarpM / 16;
  static_assert(kWarps % kWarpsN == 0 && kWarpM % 16 == 0);

  float sum[kTilesM][4][4];

  RK_INLINE static int warp_row() { return warp_id() % kWarps / kWarpsN * kWarpM; }
  RK_INLINE static int warp_column() { return warp_id() % kWarpsN * 32; }

  RK_INLINE void clear() {
#pragma unroll
    for (int i = 0; i < kTilesM; ++i) {
#pragma unroll
      for (int j = 0; j < 4; ++j) {
#pragma unroll
        for (int e = 0; e < 4; ++e) sum[i][j][e] = 0.0f;
      }
    }
  }

  RK_INLINE void step(const char* a_tile, const char* b_tile) {
    // Lane l reads row l % 16 of a 16-row tile, at k 0-3 (l < 16) or 4-7; see ldmatrix4.
    const char* const a_row = a_tile + (warp_row() + lane_id() % 16) * kRowBytes;
    const int cell = (lane_id() / 16) ^ (lane_id() & 7);
    const char* const b_lane = b_tile + (warp_column() / 16 * kWarp + lane_id()) * 16;
#pragma unroll
    for (int k8 = 0; k8 < kGroupK / 8; ++k8) {
      uint32_t a[kTilesM][4];
#pragma unroll
      for (int i = 0; i < kTilesM; ++i) {
        ldmatrix4(a[i], a_row, i * 16 * kRowBytes + ((cell ^ (k8 * 2)) << 4));
#pragma unroll
        for (int e = 0; e < 4; ++e) a[i][e] = to_tf32(__uint_as_float(a[i][e]));
      }
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const float4 b = load_shared4(b_lane, (k8 * (BLOCK_N / 16) + j) * kWarp * 16);
        const uint32_t first[2] = {__float_as_uint(b.x), __float_as_uint(b.y)}, second[2] = {__float_as_uint(b.z), __float_as_uint(b.w)};
#pragma unroll
        for (int i = 0; i < kTilesM; ++i) {
          mma_tf32(sum[i][2 * j], a[i], first);
          mma_tf32(sum[i][2 * j + 1], a[i], second);
        }
      }
    }
  }

  RK_INLINE void store(char* to) const {
    to += warp_id() / kWarps * BLOCK_M * BLOCK_N * 4;
    const int row = warp_row() + lane_id() / 4, column = warp_column() + lane_id() % 4 * 4;
#pragma unroll
    for (int i = 0; i < kTilesM * 2; ++i) {
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const float(&first)[4] = sum[i / 2][2 * j], (&second)[4] = sum[i / 2][2 * j + 1];
        const int e = i % 2 * 2;
        store_shared4(to, sum_offset<BLOCK_N>(row + i * 8, column + j * 16), {first[e], first[e + 1], second[e], second[e + 1]});
      }
    }
  }
};

}  // namespace rk
