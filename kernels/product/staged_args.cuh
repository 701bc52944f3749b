// What a rTask of staged_conv is told, and which tile is its own.
#pragma once

#include "kernels/product/staged_numbers.cuh"
#include "kernels/tile/lean_epilogue.cuh"

namespace rk {

struct StagedConvArgs {  // in tables
  TensorRef out;
  TensorRef scale;                      // of each output channel's sums, in the order of the bias; tf32 only
  EpilogueArgs epilogue;                // bias: per group, padded to whole blocks; residual strides: image, channel, h, w of the grid
  ClipArgs clip;                        // the epilogue's activation
  PixelStrides out_strides;             // of the grid
  int64_t split_stride;                 // of out
  int32_t channels;                     // of a group
  int32_t steps, last_steps;            // of a rTask, and of one of the last split
  int32_t input_steps;                  // of an input chunk
  int32_t chunks, chunk_steps;          // of weights: of a rTask, and steps of a chunk
  int32_t pixel_row_h, pixel_row_w;     // rows of a box from an output pixel to the one below, and to its right
  int32_t eight_rows;                   // rows of a box from 8 pixels to the next 8, where the body multiplies by wgmma
  int32_t tile_h, tile_w, pixels;       // of a tile; tile_h * tile_w
  int32_t row_multiplier;               // 2^16 / tile_w, rounded up
  int32_t grid_h, grid_w;               // pixels of an image of the grid
  int32_t vector_out, vector_residual;  // so many channels are one aligned access: 4, 8, 16 or (0) none
  int32_t way;                          // ResultsWay
  Divisor tiles, splits, n_blocks, tiles_w, tiles_h;
  // [team][step of an input chunk]: the first row of the stage that the step reads, times 16. Taps and steps that do not exist have
  // weights of zero. (The rows of the next batch are loaded ahead; at the end those loads read behind the table.)
  int16_t step_row[kMostSteps + kMostBatch];
  float out_low{}, residual_low{};  // the numbers that bytes of 0 stand for, of results and of a residual in Unsigned8

  // p / tile_w of a pixel of the tile: exact below 256. Example: tiles 14 wide have the multiplier 4682; 27 * 4682 / 65536 is 1.93, row 1.
  RK_INLINE int row_of(int p) const { return p * row_multiplier >> 16; }
};

// How results become other whole numbers once they are rounded: rounded(scale * result + row; low, high), and then the byte of `table`
// that is so many bytes behind its first as that is more than `table_low`. (kWholeRow, kWholeTable: one of the two alone.)
struct AgainArgs {       // in tables
  TensorRef row, table;  // row: in the order of the bias; table: kTableBytes
  float scale, low, high, table_low;
};
// Of a staged_conv with such results, which finds `again` behind its own arguments.
struct AgainConvArgs {  // in tables
  StagedConvArgs conv;
  AgainArgs again;
};
RK_INLINE const AgainArgs& again_of(const StagedConvArgs& args) { return reinterpret_cast<const AgainConvArgs&>(args).again; }

// Where a rTask's tile is.
// Example: two images in tiles of 8 x 14 pixels, 4 side by side and 7 below each other (56 tiles), 2 splits, 3 blocks of channels a group.
// rTask 725 is tile 53 of block 725 / 56 = 12. Block 12 is split 0 of 6, block 0 of group 2. Tile 53 is column 1 of 13, row 6 of image 1:
// its first pixel is (48, 14).
struct StagedTile {
  uint32_t image, h, w, split, n_block, group;
  RK_INLINE Pixel first() const { return {static_cast<int32_t>(image), static_cast<int32_t>(h), static_cast<int32_t>(w)}; }
};
RK_INLINE StagedTile staged_tile(const StagedConvArgs& args, uint32_t index) {
  StagedTile t;
  uint32_t tile;
  const uint32_t block = divide(index, args.tiles, tile);
  t.group = divide(divide(block, args.splits, t.split), args.n_blocks, t.n_block);
  t.image = divide(divide(tile, args.tiles_w, t.w), args.tiles_h, t.h);
  t.w *= static_cast<uint32_t>(args.tile_w);
  t.h *= static_cast<uint32_t>(args.tile_h);
  return t;
}

}  // namespace rk
