// A share of a recurrent gang (recurrent_gang.cuh): its arguments, and its sizes, which are all known when the kernel is compiled.
#pragma once

#include "kernels/recurrent/cell_functions.cuh"
#include "kernels/recurrent/numbers.cuh"

namespace rk {

// Strides are in elements; a null TensorRef: there is no such tensor. Word of a hidden state: (step * batch + row) * gang_word_row + unit.
// Example: a batch of 4 rows and 5 hidden units, so gang_word_row is 6. Unit 1 of row 2 in step 3 is word (3 * 4 + 2) * 6 + 1 = 85.
struct GangArgs {    // in tables
  TensorRef image;   // packed, share_floats for each share
  TensorRef x;       // tensor or words
  TensorRef own;     // words of the hidden states that the shares of this cell publish
  TensorRef last_c;  // words [batch][row] of the last cell states that the shares publish, or null
  TensorRef y, y_h, y_c, lengths;
  TensorRef h0, c0;  // tensors, or words [batch][row]
  int32_t h0_is_words, c0_is_words;
  int32_t publishes;  // h, word by word; a gang of one share may do without
  int32_t share_floats;
  int32_t steps;
  int32_t x_t, x_b, x_k;
  int32_t y_t, y_b, y_k, y_h_b, y_h_k, y_c_b, y_c_k;
  int32_t h0_b, h0_k, c0_b, c0_k;
  int32_t lengths_b;
  int32_t reverse;  // used for the lengths only; for x and y the strides say it
  // Read where the shape is not plain.
  int32_t has_peepholes, input_forget;
  float clip;
  CellFunction functions[3];
};

inline constexpr int kGangWarps = kComputeWarps;
inline constexpr int kGangThreads = kGangWarps * kWarp;

// The batch, ALL_ROWS, goes in groups of BATCH rows. A share has UNITS hidden units with all their gates; row = unit * gates + gate.
// Warp w takes slice w of the input and of the hidden state for all rows, so it waits for its own slice only, and the eight
// partial sums of a row are added at the end. Within a
// warp, lane = split * (32 / SPLIT) + r has the rows r + j * (32 / SPLIT), j < ROWS, and from every SPLIT * 4 elements of the
// slice (a chunk) the four of its split.
// Example: an lstm of 256 hidden units with UNITS 4, SPLIT 2, ROWS 1. A share has 4 * 4 = 16 rows, and a slice of h is 256 / 8 = 32
// elements, which is 4 chunks of 8. Lane 21 has split 1 and r 5, so row 5: unit 1, gate 1. In warp 3, whose slice begins at element 96,
// the lane multiplies elements 96 + 2 * 8 + 4 = 116 to 119 of h for chunk 2.
template <int KIND, int FROM, int INPUT, int HIDDEN, int UNITS, int ROWS, int SPLIT, int R_REGISTERS, int R_SHARED, int W_SHARED,
          int ALL_ROWS, int BATCH, int ALONE, int PLAIN, int WEIGHTS>
struct GangShape {
  static constexpr GangSizes kOf{.kind = KIND,
                                 .from = FROM,
                                 .input = INPUT,
                                 .hidden = HIDDEN,
                                 .units = UNITS,
                                 .lane_rows = ROWS,
                                 .split = SPLIT,
                                 .r_registers = R_REGISTERS,
                                 .r_shared = R_SHARED,
                                 .w_shared = W_SHARED,
                                 .all_rows = ALL_ROWS,
                                 .batch = BATCH,
                                 .alone = ALONE != 0,
                                 .plain = PLAIN != 0,
                                 .weights = WEIGHTS};
  static constexpr int kKind = KIND, kFrom = FROM, kInput = INPUT, kHidden = HIDDEN, kUnits = UNITS;
  static constexpr int kLaneRows = ROWS, kSplit = SPLIT, kBatch = BATCH, kAllRows = ALL_ROWS;
  static constexpr int kGroups = static_cast<int>(kOf.groups());
  static constexpr bool kAlone = kOf.alone;  // the cell has one share: h stays in shared memory
  static constexpr bool kPlain = kOf.plain;  // usual functions, no clip, no peepholes, no lengths

  static constexpr int kGates = static_cast<int>(kOf.gates());
  static constexpr int kRowLanes = static_cast<int>(kOf.row_lanes());
  static constexpr int kRows = static_cast<int>(kOf.rows());
  static_assert(UNITS * kGates <= kRows, "all rows of the units have a lane");

  static constexpr int kChunk = static_cast<int>(kOf.chunk());
  static constexpr int kSliceX = static_cast<int>(kOf.slice_x()), kSliceH = static_cast<int>(kOf.slice_h());
  static constexpr int kChunksX = static_cast<int>(kOf.chunks_x()), kChunksH = static_cast<int>(kOf.chunks_h());
  // Chunks of R, from the first: in registers, in shared memory, and the rest read again in each step. The same for W.
  static constexpr int kRegisters = R_REGISTERS, kSharedH = R_SHARED, kSharedX = W_SHARED;
  static constexpr int kStreamH = static_cast<int>(kOf.stream_h()), kStreamX = static_cast<int>(kOf.stream_x());
  static_assert(kStreamH >= 0 && kStreamX >= 0, "not more chunks than there are");
  static constexpr int kWeights = WEIGHTS;  // GangWeights
  static constexpr int kLaneWords = static_cast<int>(kOf.lane_words());
  static constexpr int kChunkFloats = static_cast<int>(kOf.chunk_floats());

  static constexpr int kItemLanes = static_cast<int>(kOf.item_lanes());
  static constexpr int kItems = UNITS * BATCH;
  static constexpr int kItemsAtOnce = kGangThreads / kItemLanes;
  static constexpr int kRounds = (kItems + kItemsAtOnce - 1) / kItemsAtOnce;
  static constexpr bool kInHand = kRounds == 1 && kGroups == 1;  // a lane has one item, whose state stays in registers
  static constexpr int kWordRow = static_cast<int>(gang_word_row(HIDDEN)), kWordStep = ALL_ROWS * kWordRow;
  static constexpr int kInputWordRow = static_cast<int>(gang_word_row(INPUT));

  static constexpr int kSlotsOfWarp = SPLIT > 1 ? 2 : 1, kSlots = static_cast<int>(kOf.slots());
  static constexpr int kSlotStride = static_cast<int>(kOf.slot_stride());
  static constexpr int kPartial = static_cast<int>(kOf.partial_floats());

  // Shared memory, in floats.
  static constexpr int kSharedWAt = kGangWarps * R_SHARED * kChunkFloats;
  static constexpr int kBiasAt = static_cast<int>(kOf.resident_floats());
  static constexpr int kPeepholesAt = kBiasAt + static_cast<int>(kOf.gate_bias_floats());
  static constexpr int kPartialAt = kBiasAt + static_cast<int>(kOf.bias_floats());
  static constexpr int kSides = static_cast<int>(kOf.sides());
  static constexpr int kStageXAt = kPartialAt + kSides * kPartial;
  static constexpr int kStageX = static_cast<int>(kOf.stage_x_floats());
  static constexpr int kStageHAt = kStageXAt + kStageX;
  static constexpr int kStageH = static_cast<int>(kOf.stage_h_floats());  // of one group
  static constexpr int kStatesAt = kStageHAt + static_cast<int>(kOf.stages_h_floats());
  static constexpr int kStates = static_cast<int>(kOf.state_floats());
  static constexpr bool kHolds = kOf.holds();
  static constexpr int kHeldAt = kStatesAt + (kHolds ? kStates : 0);
  static constexpr int kLengthsAt = kHeldAt + kStates;  // not plain: [batch] i32
  static_assert(kLengthsAt + (kPlain ? 0 : ALL_ROWS) == kOf.work_floats());

  // The image of one share, in floats.
  static constexpr int kImageShared = kGangWarps * R_REGISTERS * kChunkFloats;
  static constexpr int kImageStream = kImageShared + kBiasAt;
  static constexpr int kImageStreamW = kImageStream + kGangWarps * kStreamH * kChunkFloats;
  static constexpr int kImageBias = kImageStreamW + kGangWarps * kStreamX * kChunkFloats;
  static_assert(kImageBias == kOf.image_weights());
};

}  // namespace rk
