// What the body and the host side of feed_forward both count with.
#pragma once

namespace rk {

constexpr int kFeedRows = 32;  // of a tile
constexpr int kFeedBoxRowBytes = 128, kFeedBoxBytes = kFeedRows * kFeedBoxRowBytes, kFeedWeightBoxBytes = 64 * kFeedBoxRowBytes;

// Of a rTask with K columns of x, H of y and C of z; K and C are multiples of 32, H of 64.
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
