// Numbers of implicit_gemm and staged_conv that host and device code both know (kernels/vdevice/numbers.cuh).
#pragma once

#include <stdint.h>

#include "kernels/tile/numbers.cuh"
#include "kernels/vdevice/numbers.cuh"

namespace rk {

// --- implicit_gemm -----------------------------------------------------------------------------------------------------

inline constexpr uint32_t kNoTap = 0xffffffffu;  // the word of a Tap past the end of k

// --- staged_conv -------------------------------------------------------------------------------------------------------

inline constexpr int kWideSumPad = 8;   // kSumPad for sums of wgmma (wide_sums in kernels/product/staged_product.cuh)
inline constexpr int kMostSteps = 160;  // of an input chunk, times teams; in tables
inline constexpr int kMostBatch = 4;    // steps whose operands are loaded together; in tables

// The fewest rounds of at most `most` sums, each of a multiple of `step` pixels.
constexpr int rounds_of(int channels, int pixels, int most, int step) {
  int rounds = (channels * pixels + most - 1) / most;
  while (pixels % (rounds * step) != 0) ++rounds;
  return rounds;
}
// In how many rounds the sums of a tile are stored and its results made: shared memory has room for 128 * 64 sums. Example: 128 channels
// by 160 pixels in 4 rounds of 40 pixels.
constexpr int staged_rounds(int channels, int pixels) { return rounds_of(channels, pixels, 128 * 64, 8); }
// The same where sums are rounded to 16 bits (StagedRoundedResults): room for 128 * 128.
constexpr int rounded_rounds(int channels, int pixels) { return rounds_of(channels, pixels, 128 * 128, 16); }
// The same where results are bytes (StagedByteResults): room for 128 * 192.
constexpr int byte_rounds(int channels, int pixels) { return rounds_of(channels, pixels, 128 * 192, 16); }
// Bytes of a pixel's results there: the 2-byte stores of a warp to four pairs of pixels hit each bank once.
constexpr int byte_pitch(int channels) { return channels + 16; }
// Whether the two warpgroups of a wgmma body share the pixels of a tile of 64 channels, 8 at a time; else they share k. With up to 80
// pixels each multiplies them all: for half of them an instruction would wait longer for its weights than for its products.
constexpr bool groups_share_pixels(int channels, int pixels) { return channels == 64 && pixels > 80; }
// Tiles of more sums want more registers for each thread than an even share (registers.cuh).
constexpr bool has_many_sums(int channels, int pixels) { return channels * pixels > 128 * 128; }
// How StagedResults makes its results: clamped and stored in 16 bytes, without a residual or with one that lies as they do; by finish_gelu;
// by finish_smooth; or by finish_any.
enum ResultsWay { kPlainWay, kAddedWay, kGeluWay, kSmoothWay, kAnyWay };  // in tables
// moment_conv: how many threads combine the moments of a row of the tile, a power of two.
constexpr int threads_of_row(int threads, int rows) { return rows * 2 > threads ? 1 : 2 * threads_of_row(threads / 2, rows); }
constexpr int staged_teams(int warps_k, int units) { return warps_k > units ? warps_k / units : 1; }
// `operands`: of a step and a warp, in 16-byte loads.
constexpr int staged_batch(int operands) { return operands <= 4 ? kMostBatch : operands <= 8 ? 2 : 1; }

// Behind the sums of a tile: those that a vEU gets from the other members of its cluster for the first pixel that each thread keeps, in
// cluster_conv. Those of further pixels lie where the vEU's own sums were.
constexpr int received_bytes(int threads) { return (kClusterMembers - 1) * threads * 16; }
// How many of a thread's `outputs` pixels a member keeps.
constexpr int kept_outputs(int outputs) { return (outputs + kClusterMembers - 1) / kClusterMembers; }
// Behind the sums of a tile: those of each warp's pixels, in summed_conv.
constexpr int summed_work_bytes(int channels) { return channels * kComputeWarps * 4; }

}  // namespace rk
