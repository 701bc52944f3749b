// Numbers of attention that host and device code both know (kernels/vdevice/numbers.cuh).
#pragma once

#include "kernels/vdevice/numbers.cuh"

namespace rk {

inline constexpr int kAttentionBatchRank = 4;  // in tables
inline constexpr int kAttentionRows = 16;      // queries of a group
inline constexpr int kAttentionWarpKeys = 8;   // keys of a warp at a time
inline constexpr int kAttentionWarps = 8;      // of a rTask, however many groups it has
inline constexpr int kAttentionLargestSize = 128;

// attention_columns: columns of the results that all warps put into shared memory at a time, to be added. attention_pitch: words from one
// row of them to the next.
constexpr int attention_columns(int size) { return size < 64 ? size : 64; }
constexpr int attention_pitch(int size) { return attention_columns(size) + 4; }
constexpr int attention_work_bytes(int size) { return kAttentionWarps * kAttentionRows * (2 + attention_pitch(size)) * 4; }

// What attention_rows adds to the scores: nothing; one number for each key, the same for all queries of a rTask (a mask of keys), which
// lies in shared memory; or a number for each query and key.
enum AttentionBias { kNoBias = 0, kBiasOfKeys = 1, kBiasOfScores = 2 };  // in tables

// attention_rows. A row of K or V is cells of 16 bytes; a stage is so many keys' rows of both: 4 stages of 32 or 16 keys, or 2 of 64, which
// are multiplied at once where a warp has the registers for their scores.
inline constexpr int kAttentionMostHeads = 4;  // of a rTask
constexpr int attention_cells(int size, int value_bytes) { return size * value_bytes / 16; }
constexpr int attention_stage_keys(int size, int value_bytes, int tiles, AttentionBias bias) {
  if (size * value_bytes > 128) return 16;
  return tiles == 1 && value_bytes == 2 && bias != kBiasOfScores ? 64 : 32;
}
constexpr int attention_stages(int size, int value_bytes, int tiles, AttentionBias bias) {
  return attention_stage_keys(size, value_bytes, tiles, bias) == 64 ? 2 : 4;
}
constexpr int attention_stage_bytes(int size, int value_bytes, int tiles, AttentionBias bias) {
  return 2 * attention_stage_keys(size, value_bytes, tiles, bias) * attention_cells(size, value_bytes) * 16;
}
// The stages, at the next multiple of 1024 bytes; where a rTask's heads begin; and for two heads the numbers of their keys, up to a whole
// stage. `keys`: with kBiasOfKeys.
inline constexpr int kAttentionPlaceBytes = 40;
constexpr int attention_rows_work_bytes(int size, int value_bytes, int tiles, AttentionBias bias, int keys) {
  const int of_stage = attention_stage_keys(size, value_bytes, tiles, bias);
  return 1024 - 128 + attention_stages(size, value_bytes, tiles, bias) * attention_stage_bytes(size, value_bytes, tiles, bias) +
         kAttentionMostHeads * kAttentionPlaceBytes + (bias == kBiasOfKeys ? 2 * ((keys + of_stage - 1) / of_stage * of_stage) * 4 : 0);
}
// Tiles of 16 queries that a warp has registers for without spilling; 0: none. A bias of scores takes registers, too: it is loaded ahead.
constexpr int attention_most_tiles(int size, int value_bytes, AttentionBias bias) {
  if (size * value_bytes > 256) return 0;
  return size * value_bytes <= 128 && (size <= 32 || bias != kBiasOfScores) ? 2 : 1;
}

// attention_once: floats from one row of a warp's sums to the next, and the most keys and tiles of queries of a rTask: two groups of keys
// for each warp and two tiles take all 168 registers that a thread has.
inline constexpr int kAttentionOnceKeys = 256, kAttentionOnceTiles = 2;
constexpr int attention_once_pitch(int size) { return size + 4; }
constexpr int attention_once_work_bytes(int size) { return kAttentionWarps * kAttentionRows * (attention_once_pitch(size) * 4 + 8); }

// attention_rounded_once: the most keys, and of two tiles of queries. Bits of what is rounded besides the weights.
inline constexpr int kRoundedOnceKeys = 512, kRoundedTwoTilesKeys = 256;
enum AttentionRounds : int { kRoundsProducts = 1, kRoundsSums = 2, kRoundsResults = 4, kRoundsWeightsAgain = 8 };  // in tables

// attention_rounded_rows: the most keys, of which shared memory has room for K or V alone, and keys of a turn of its loops. Rows of both
// lie there at the same time if they are few. Few bytes do, with the scores of all queries behind them.
inline constexpr int kRoundedRowsKeys = 256, kRoundedChunk = 32;
constexpr bool rounded_rows_have_both(int size, int keys) { return 2 * keys * size * 2 <= 32768; }
RK_NUMBER bool rounded_rows_of_bytes(int size, int keys) { return keys * (2 * size + kAttentionWarps * kAttentionRows) <= 32768; }
constexpr int rounded_rows_work_bytes(int size, int keys, bool bytes) {
  if (bytes && rounded_rows_of_bytes(size, keys)) return keys * (2 * size + kAttentionWarps * kAttentionRows);
  return (rounded_rows_have_both(size, keys) ? 2 : 1) * keys * size * 2;
}

// attention_few: the most elements of a row, and the most keys.
inline constexpr int kAttentionFewSize = 32, kAttentionFewKeys = 64;

// attention_step: groups of eight threads, and words of a share (the weighted sum of values, the largest score, the sum of weights), up to
// 16 bytes.
inline constexpr int kStepGroups = 32;
enum StepBits : int { kStepQBit, kStepKBit, kStepVBit, kStepOutBit };  // of its WORDS; in tables
inline constexpr uint32_t kStepQWords = 1u << kStepQBit, kStepKWords = 1u << kStepKBit, kStepVWords = 1u << kStepVBit;  // in tables
inline constexpr uint32_t kStepInWords = kStepQWords | kStepKWords | kStepVWords, kStepOutWords = 1u << kStepOutBit;    // in tables
inline constexpr float kStepMasked =
    -1e38f;  // a key of such a bias has no weight beside one of more; masks are -inf or the least float. In tables
// How the rows of Q and of the own keys are made: divided by their root mean square, turned by factors of whole rows, or of half a row.
// Bits.
inline constexpr int kStepTurned = 1, kStepTurnedHalves = 2, kStepNormalised = 4;  // in tables
constexpr int attention_step_words(int size) { return size + 4; }
inline constexpr int kStepRowsInWords = 8;
// `rows`: that come as words.
// `staged`: keys of `bytes` an element in each of two stages.
constexpr int attention_step_work_bytes(int size, bool normalises, int rows, int staged, int bytes) {
  return (kComputeWarps * attention_step_words(size) + ((normalises ? 2 : 0) + rows) * size) * 4 + 4 * staged * size * bytes;
}

}  // namespace rk
