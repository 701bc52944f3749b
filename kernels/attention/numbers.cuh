// Numbers of attention that host and device code both know (kernels/vdevice/numbers.cuh).
#pragma once

#include "kernels/vdevice/numbers.cuh"

namespace rk {

inline constexpr int kAttentionBatchRank = 4;
inline constexpr int kAttentionRows = 16;     // queries of a group
inline constexpr int kAttentionWarpKeys = 8;  // keys of a warp at a time
inline constexpr int kAttentionWarps = 8;     // of a rTask, however many groups it has
inline constexpr int kAttentionLargestSize = 128;

// attention_columns: columns of the results that all warps put into shared memory at a time, to be added. attention_pitch: words from one
// row of them to the next.
constexpr int attention_columns(int size) { return size < 64 ? size : 64; }
constexpr int attention_pitch(int size) { return attention_columns(size) + 4; }
constexpr int attention_work_bytes(int size) { return kAttentionWarps * kAttentionRows * (2 + attention_pitch(size)) * 4; }

// attention_rows. A row of K or V is cells of 16 bytes; a stage is so many keys' rows of both.
inline constexpr int kAttentionStages = 4;
constexpr int attention_cells(int size, int value_bytes) { return size * value_bytes / 16; }
constexpr int attention_stage_keys(int size, int value_bytes) { return size * value_bytes <= 128 ? 32 : 16; }
constexpr int attention_stage_bytes(int size, int value_bytes) {
  return 2 * attention_stage_keys(size, value_bytes) * attention_cells(size, value_bytes) * 16;
}
constexpr int attention_rows_work_bytes(int size, int value_bytes) {
  return kAttentionStages * attention_stage_bytes(size, value_bytes) + 32;  // and AttentionPlaces
}
// Tiles of 16 queries that a warp has registers for without spilling; 0: none. A bias takes registers, too: it is loaded ahead.
constexpr int attention_most_tiles(int size, int value_bytes, bool biased) {
  if (size * value_bytes > 256) return 0;
  return size * value_bytes <= 128 && (size <= 32 || !biased) ? 2 : 1;
}

}  // namespace rk
