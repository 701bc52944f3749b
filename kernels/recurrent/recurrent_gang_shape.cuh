// What a share of a recurrent gang is made of (recurrent_gang.cuh): its arguments, and its sizes, all known when it is compiled.
#pragma once

#include "kernels/recurrent/cell_functions.cuh"
#include "kernels/recurrent/numbers.cuh"

namespace rk {

// Strides in elements; a null place is not there. Word of a hidden state: (step * batch + row) * gang_word_row + unit.
struct GangArgs {
  TensorRef image;   // packed, share_floats for each share
  TensorRef x;       // tensor or words
  TensorRef own;     // words of the hidden states that the shares of this cell publish
  TensorRef last_c;  // words [batch][row] of the last cell states that they publish, or null
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
  int32_t reverse;  // for the lengths only: x and y are told by strides
  // Read where the shape is not plain.
  int32_t has_peepholes, input_forget;
  float clip;
  CellFunction functions[3];
};
static_assert(sizeof(GangArgs) <= 768, "an argument slot has 768 bytes");

// Words of one batch row: pairs of them are aligned.
__device__ constexpr int gang_word_row(int size) { return (size + 1) / 2 * 2; }

constexpr int kGangWarps = kComputeWarps;
constexpr int kGangThreads = kGangWarps * kWarp;

// The batch, ALL_ROWS, goes in groups of BATCH rows. A share has UNITS hidden units with all their gates; row = unit * gates + gate.
// Warp w takes slice w of the input and of the hidden state for all rows, so it waits for its own slice only, and the eight
// partial sums of a row meet at the end. Within a
// warp, lane = split * (32 / SPLIT) + r has the rows r + j * (32 / SPLIT), j < ROWS, and from every SPLIT * 4 elements of the
// slice (a chunk) the four of its split.
template <int KIND, int FROM, int INPUT, int HIDDEN, int UNITS, int ROWS, int SPLIT, int R_REGISTERS, int R_SHARED, int W_SHARED,
          int ALL_ROWS, int BATCH, int ALONE, int PLAIN, int WEIGHTS>
struct GangShape {
  static constexpr int kKind = KIND, kFrom = FROM, kInput = INPUT, kHidden = HIDDEN, kUnits = UNITS;
  static constexpr int kLaneRows = ROWS, kSplit = SPLIT, kBatch = BATCH, kAllRows = ALL_ROWS;
  static constexpr int kGroups = (ALL_ROWS + BATCH - 1) / BATCH;
  static constexpr bool kAlone = ALONE != 0;  // the cell has one share: h stays in shared memory
  static constexpr bool kPlain = PLAIN != 0;  // usual functions, no clip, no peepholes, no lengths

  static constexpr int kGates = KIND == kLstm ? 4 : KIND == kGru ? 3 : 1;
  static constexpr int kRowLanes = kWarp / SPLIT;
  static constexpr int kRows = ROWS * kRowLanes;
  static_assert(UNITS * kGates <= kRows, "all rows of the units have a lane");

  static constexpr int kChunk = 4 * SPLIT;
  static constexpr int slice_of(int size) { return (size + kGangWarps * kChunk - 1) / (kGangWarps * kChunk) * kChunk; }
  static constexpr int kSliceX = FROM == kFromGates ? 0 : slice_of(INPUT), kSliceH = slice_of(HIDDEN);
  static constexpr int kChunksX = kSliceX / kChunk, kChunksH = kSliceH / kChunk;
  // Chunks of R, from the first: in registers, in shared memory, and the rest read again in each step. The same for W.
  static constexpr int kRegisters = R_REGISTERS, kSharedH = R_SHARED, kSharedX = W_SHARED;
  static constexpr int kStreamH = kChunksH - R_REGISTERS - R_SHARED, kStreamX = kChunksX - W_SHARED;
  static_assert(kStreamH >= 0 && kStreamX >= 0, "not more chunks than there are");
  static constexpr int kWeights = WEIGHTS;                        // GangWeights
  static constexpr int kLaneWords = WEIGHTS == kFloats ? 4 : 2;   // of 4 bytes: a lane's four weights of a row
  static constexpr int kChunkFloats = ROWS * kWarp * kLaneWords;  // words of 4 bytes, of one warp

  // Lanes that finish one unit of one batch row: lstm i, o, f, c; gru z, r, R h of the candidate, W x of the candidate.
  static constexpr int kItemLanes = KIND == kRnn ? 1 : 4;
  static constexpr int kItems = UNITS * BATCH;
  static constexpr int kItemsAtOnce = kGangThreads / kItemLanes;
  static constexpr int kRounds = (kItems + kItemsAtOnce - 1) / kItemsAtOnce;
  static constexpr bool kInHand = kRounds == 1 && kGroups == 1;  // a lane has one item, whose state stays in registers
  static constexpr int kWordRow = gang_word_row(HIDDEN), kWordStep = ALL_ROWS * kWordRow;

  // Partial sums: slots of rows; a gru's candidate has its input's share in rows behind the others. Two slots a warp lie half a
  // line of banks apart.
  static constexpr int kSlotsOfWarp = SPLIT > 1 ? 2 : 1, kSlots = kGangWarps * kSlotsOfWarp;
  static constexpr int kSlotRows = kRows + (KIND == kGru ? UNITS : 0);
  static constexpr int kSlotStride = SPLIT > 1 ? (kSlotRows + 15) / 32 * 32 + 16 : kSlotRows;
  static constexpr int kPartial = (BATCH * kSlots * kSlotStride + 3) / 4 * 4;

  // Shared memory, in floats.
  static constexpr int kSharedWAt = kGangWarps * R_SHARED * kChunkFloats;
  static constexpr int kBiasAt = kSharedWAt + kGangWarps * W_SHARED * kChunkFloats;
  static constexpr int kPeepholesAt = kBiasAt + (UNITS * kItemLanes + 3) / 4 * 4;
  static constexpr int kSides = kAlone ? 1 : 2;  // nothing else keeps the partial sums of the next step waiting
  static constexpr int kPartialAt = kPeepholesAt + (PLAIN ? 0 : UNITS * 4);
  static constexpr int kStageXAt = kPartialAt + kSides * kPartial;
  static constexpr int kStageX = kGangWarps * BATCH * kSliceX;
  static constexpr int kStageHAt = kStageXAt + kStageX;
  static constexpr int kStageH = kGangWarps * BATCH * kSliceH;  // of one group
  static constexpr int kStatesAt = kStageHAt + (ALONE != 0 ? kGroups : 1) * kStageH;
  static constexpr int kStates = kGroups * kItems;             // c of an lstm, h of the others
  static constexpr bool kHolds = PLAIN == 0 && KIND == kLstm;  // then h of an lstm
  static constexpr int kHeldAt = kStatesAt + (kHolds ? kStates : 0);
  static constexpr int kLengthsAt = kHeldAt + kStates;  // not plain: [batch] i32

  // The image of one share, in floats.
  static constexpr int kImageShared = kGangWarps * R_REGISTERS * kChunkFloats;
  static constexpr int kImageStream = kImageShared + kBiasAt;
  static constexpr int kImageStreamW = kImageStream + kGangWarps * kStreamH * kChunkFloats;
  static constexpr int kImageBias = kImageStreamW + kGangWarps * kStreamX * kChunkFloats;
};

}  // namespace rk
