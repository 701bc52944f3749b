// Numbers of the products that host and device code both know (kernels/vdevice/numbers.cuh).
#pragma once

#include "kernels/vdevice/numbers.cuh"

namespace rk {

inline constexpr int kGemvLaneK = 4;               // neighbours in `in` that a lane reads at once
inline constexpr int kGemvStepBytes = kWarp * 16;  // of a column's weights that a warp reads at once
inline constexpr int kGemvParts = 4;               // of gemv_of_sums: loads that a thread has under way
inline constexpr int kGemvRows = 8;                // at most, and of a gemv's arguments
inline constexpr int kGemvOperands = 4;            // of gemv_of_rows, at most
inline constexpr int kGemvFours = 4;               // the same: fours of k that a thread loads together
inline constexpr int kGemvBlockK = 32;             // the same: k side by side that one warp has of a row
inline constexpr int kMatmulBatchRank = 4;
// Bits of its WORDS besides those of its operands: the residual, the result.
inline constexpr int kGemvResidualBit = kGemvOperands, kGemvOutBit = kGemvOperands + 1;
inline constexpr uint32_t kGemvResidualWords = 1u << kGemvResidualBit, kGemvOutWords = 1u << kGemvOutBit;
// What gemv_of_rows does to its rows: nothing, divides them by the root of their mean square, or subtracts their mean first.
enum GemvNorm : int { kGemvAsIs, kGemvScaled, kGemvCentred };
// Words of shared memory behind its rows: two sums of each row in every warp.
constexpr int gemv_sums_floats(int rows) { return 2 * rows * kComputeWarps; }
// gemv_row: whether the residual is added, and whether before the activation or after it.
enum GemvResidual : int { kGemvNoResidual, kGemvBefore, kGemvAfter };
// gemv_row: turns of 256 fours of k, at most; floats of a column in a chunk besides its weights, which are its scale, its bias, and where
// the mean is subtracted from place kGemvRowSums on the sums of its weights for each warp.
inline constexpr int kGemvRowTurns = 3, kGemvRowSums = 4;
constexpr int gemv_row_stats_floats() { return 4 * kComputeWarps; }
constexpr int gemv_row_info(int norm) { return norm == kGemvCentred ? kGemvRowSums + kComputeWarps : 2; }
// A stage of matmul_direct: 32 of k by the rows or columns of a tile. The pitch keeps each k 16-byte aligned.
inline constexpr int kMatmulStep = 32, kMatmulStages = 2;
constexpr int matmul_pitch(int tile) { return tile + 4; }
constexpr int matmul_stage_floats(int tile) { return 2 * kMatmulStep * matmul_pitch(tile); }
inline constexpr int kFeedRows = 32;  // of a tile of feed_forward
inline constexpr int kFeedBoxRowBytes = 128, kFeedBoxBytes = kFeedRows * kFeedBoxRowBytes, kFeedWeightBoxBytes = 64 * kFeedBoxRowBytes;

// Sizes of a rTask of feed_forward with K columns of x, H of y and C of z; K and C are multiples of 32, H of 64.
struct FeedSizes {
  int k, h, c;

  // The first product: tiles of 64 columns of y. A chunk of weights is two tiles where these share half a box, else one.
  constexpr int full_boxes() const { return k / 64; }
  constexpr bool half() const { return k % 64 != 0; }
  constexpr int tiles() const { return h / 64; }
  constexpr int tile_bytes() const { return full_boxes() * kFeedWeightBoxBytes; }
  constexpr int chunks() const { return half() ? (tiles() + 1) / 2 : tiles(); }
  constexpr int chunk_bytes() const { return half() ? 2 * tile_bytes() + kFeedWeightBoxBytes : tile_bytes(); }
  // The second one: boxes of 64 columns of y.
  constexpr int out_tiles() const { return (c + 63) / 64; }
  constexpr int out_box_bytes() const { return c * kFeedBoxRowBytes; }
  constexpr int turn_boxes() const { return c <= 64 * 2 && tiles() % 2 == 0 ? 2 : 1; }  // of a turn of the loop
  constexpr int second_bytes() const { return tiles() * out_box_bytes(); }

  // Shared memory: the second product's weights (then sums of z, which also lie over x where these are longer; a row has four more, so that
  // a half-warp's stores of two columns hit each bank once), x, y, and what the other members of a cluster send; 1 KB more, since boxes
  // begin at a multiple of that.
  constexpr int rows_bytes() const { return (full_boxes() + (half() ? 1 : 0)) * kFeedBoxBytes; }
  constexpr int inner_bytes() const { return tiles() * kFeedBoxBytes; }
  constexpr int pitch() const { return c + 4; }
  constexpr int work_bytes(int members) const {
    return 1024 + second_bytes() + rows_bytes() + inner_bytes() + (members > 1 ? (members - 1) * (kFeedRows / members) * c * 4 : 0);
  }
};

}  // namespace rk
