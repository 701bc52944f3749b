// Numbers of the convolutions that host and device code both know (kernels/vdevice/numbers.cuh).
#pragma once

#include <stdint.h>

#include "kernels/vdevice/numbers.cuh"

namespace rk {

inline constexpr int kSumPad = 4;      // floats behind a pixel's sums in shared memory, against bank conflicts
inline constexpr int kWideSumPad = 8;  // the same for sums of wgmma (wide_sums in kernels/product/staged_product.cuh)

// --- implicit_gemm, split_k_sum, separable_conv ------------------------------------------------------------------------

inline constexpr int kGroupK = 32;                                          // k of a step of one group of warps
inline constexpr int kSumColumns = 64;                                      // channels of a rTask of split_k_sum
inline constexpr int kSumRows = kComputeWarps * kWarp / (kSumColumns / 4);  // rows of a rTask of split_k_sum at once
inline constexpr int kSumLoads = 8;              // loads of partial sums that a thread of split_k_sum_rows has under way
inline constexpr int kSeparableTileW = 8;        // pixels
inline constexpr int kMostTapDistance = 32767;   // of rows or of columns: the two share a word of a Tap
inline constexpr uint32_t kNoTap = 0xffffffffu;  // the word of a Tap past the end of k

// --- separable_conv with inputs of 16 bits -----------------------------------------------------------------------------

// A column of the filter is cut into words of two taps. Returns how many rows apart the two taps of a word are.
constexpr int separable_tap_distance(int stride, int rows) { return stride == 1 && rows == 2 ? 2 : 1; }
constexpr int separable_words(int taps) { return (taps + 1) / 2; }
// The tap in the lower (upper) half of a word; a number of `taps` or more means none. With 7 taps that are 2 rows apart the words hold
// taps {0, 2}, {1, 3}, {4, 6} and {5, none}; with taps 1 row apart {0, 1}, {2, 3}, {4, 5} and {6, none}.
constexpr int separable_tap(int distance, int word, bool upper) {
  if (distance == 1) return 2 * word + (upper ? 1 : 0);
  return word / 2 * 4 + word % 2 + (upper ? 2 : 0);
}
constexpr int separable_word_bytes(int taps) { return taps > 1 ? 64 * taps * separable_words(taps) : 0; }  // of 16 channels
constexpr int separable_filter_bytes(int taps) { return taps > 1 ? separable_word_bytes(taps) + 128 : 0; }

// --- depthwise_boxes ---------------------------------------------------------------------------------------------------

inline constexpr int kDepthwiseColumns = 16;  // pixels of a row of the box: a multiple of eight
// The sums of all threads, two channels each.
constexpr int depthwise_work_bytes(int pixels) { return kComputeWarps * kWarp * 8 * pixels; }

// --- patch_conv --------------------------------------------------------------------------------------------------------

inline constexpr int kPatchTableBytes = 32, kPatchTileBytes = 512;  // of a step: its table; weights of 16 channels

// --- patch_strip -------------------------------------------------------------------------------------------------------

inline constexpr int kStripPixels = 256;                                                  // of a tile
constexpr int strip_tiles(bool narrow) { return narrow ? 4 : 2; }                         // of 8 channels, of a warp
constexpr int strip_granules(int rows, int columns) { return (rows * columns + 7) / 8; }  // of 8 k

// --- staged_conv -------------------------------------------------------------------------------------------------------

inline constexpr int kMostSteps = 160;  // of an input chunk, times teams
inline constexpr int kMostBatch = 4;    // steps whose operands are loaded together

struct StagedUnits {
  int units, loads;  // of a box; ldmatrix of a unit
  int words;         // of weights: of a lane, 16 channels and a unit
};
inline constexpr StagedUnits kStagedTf32{4, 1, 2}, kStaged16Bits{2, 2, 4}, kStagedNarrow{4, 1, 4};  // narrow: inputs of 16 bits

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
// Whether the two warpgroups of a wgmma body share the pixels of a tile of 64 channels, 8 at a time; else they share k. With up to 80
// pixels each multiplies them all: for half of them an instruction would wait longer for its weights than for its products.
constexpr bool groups_share_pixels(int channels, int pixels) { return channels == 64 && pixels > 80; }
// Tiles of more sums want more registers for each thread than an even share (registers.cuh).
constexpr bool has_many_sums(int channels, int pixels) { return channels * pixels > 128 * 128; }
// Bytes of a pixel's sums of 16 bits. 8 values of padding: 4-byte stores of a warp to four pairs of pixels hit a bank twice at most.
constexpr int rounded_pitch(int channels) { return (channels + 8) * 2; }
// How StagedResults makes its results: clamped and stored in 16 bytes, without a residual or with one that lies as they do; by finish_gelu;
// by finish_smooth; or by finish_any.
enum ResultsWay { kPlainWay, kAddedWay, kGeluWay, kSmoothWay, kAnyWay };
// moments.cuh: neighbours that have moments of their own (compiler/ir/ops.h, too), and how many threads combine those of a row of the
// tile: a power of two.
inline constexpr int kMomentColumns = 32;
constexpr int threads_of_row(int threads, int rows) { return rows * 2 > threads ? 1 : 2 * threads_of_row(threads / 2, rows); }
// cluster_conv.cuh: how many vEUs share the k of a tile.
inline constexpr int kClusterMembers = 4;
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
