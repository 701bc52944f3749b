// Numbers of the products in a row that host and device code both know (kernels/vdevice/numbers.cuh).
#pragma once

#include "kernels/vdevice/numbers.cuh"

namespace rk {

// --- feed_forward ------------------------------------------------------------------------------------------------------

inline constexpr int kFeedRows = 32;  // of a tile of feed_forward
inline constexpr int kFeedBoxBytes = kFeedRows * kBoxRowBytes, kFeedWeightBoxBytes = 64 * kBoxRowBytes;

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
  constexpr int out_box_bytes() const { return c * kBoxRowBytes; }
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

// --- self_attention ----------------------------------------------------------------------------------------------------

// Rows of a window, padded; elements of a row of Q, K or V; columns of the product of a head. Rows of Q, K and V lie beside
// each other, padded so that the same cell of eight neighbouring rows lies in eight groups of banks. A piece is what is added to the scores
// of 16 queries and 32 keys; a window has eight of them.
inline constexpr int kSelfRows = 64, kSelfSize = 32, kSelfColumns = 3 * kSelfSize;
inline constexpr int kSelfBoxBytes = kSelfRows * kBoxRowBytes, kSelfWeightBoxBytes = kSelfColumns * kBoxRowBytes;
inline constexpr int kSelfPitchBytes = kSelfColumns * 2 + 16, kSelfMadeBytes = kSelfRows * kSelfPitchBytes;
inline constexpr int kSelfPieceBytes = 16 * 32 * 4, kSelfScoresBytes = 8 * kSelfPieceBytes;
inline constexpr int kSelfConstantBytes = kSelfColumns * 8;  // of a head: of each column the sum of its weights, and its bias
inline constexpr int kSelfMergedBytes = 4 * 32 * 5 * 16;     // what one warpgroup gives to the other

// Shared memory of a rTask with `windows` windows of rows of `boxes` boxes of 64 columns. All begins at a multiple of 1024 bytes. The rows
// of Q, K and V of a single window lie over its rows, and behind them what the warpgroups give each other.
struct SelfSizes {
  int boxes, windows;

  constexpr int rows_bytes() const { return windows * boxes * kSelfBoxBytes; }
  constexpr int made_at() const { return windows > 1 ? rows_bytes() : 0; }
  constexpr int merged_at() const { return made_at() + windows * kSelfMadeBytes; }
  constexpr int made_end() const { return merged_at() + (windows > 1 ? 0 : kSelfMergedBytes); }
  constexpr int scores_at() const { return made_end() > rows_bytes() ? made_end() : rows_bytes(); }
  constexpr int constants_at() const { return scores_at() + windows * kSelfScoresBytes; }
  constexpr int norms_at() const { return constants_at() + kSelfConstantBytes; }
  constexpr int table_at() const { return norms_at() + windows * kSelfRows * 8; }
  constexpr int work_bytes() const { return 1024 + table_at() + windows * kSelfRows * 4; }
};

// --- pointwise_pair ----------------------------------------------------------------------------------------------------

inline constexpr int kPairTiles = 2, kPairBlock = 16 * kPairTiles;  // tiles of 16 channels of a warp; its channels
inline constexpr int kPairUnitBytes = 32, kPairBoxUnits = kBoxRowBytes / kPairUnitBytes;

}  // namespace rk
