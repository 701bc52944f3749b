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

}  // namespace rk
