// Numbers of squeeze-and-excite that host and device code both know (kernels/vdevice/numbers.cuh).
#pragma once

#include "kernels/vdevice/numbers.cuh"

namespace rk {

inline constexpr int kExciteThreads = kComputeWarps * kWarp;  // of the vEUs that these bodies run on
inline constexpr int kExciteChannels = 32;                    // of a rTask
inline constexpr int kExciteAhead = 4;                        // loads of a thread that are under way at the same time, of a map
inline constexpr int kSqueezeLongAhead = 16;                  // the same where a thread adds up at least so many narrow pixels
inline constexpr int kExcitePartsAhead = 8;                   // and of parts of hidden values: mostly all that a thread has
inline constexpr int kExciteMostHidden = 4 * kExciteThreads;  // a thread reads four hidden values of a part
inline constexpr int kSqueezeLanes = 4;                       // threads that share a hidden value's product with 32 means
inline constexpr int kSqueezeTurnRows = kExciteThreads / kSqueezeLanes;
inline constexpr int kExciteLanes = kExciteThreads / kExciteChannels;  // threads that share the product of a gate

// A chunk of weights of the squeeze bodies: `first` bytes for the depthwise convolution, products[rows][32], scales[rows].
constexpr int squeeze_chunk_bytes(int first, int rows, int weight_bytes) { return first + rows * (kExciteChannels * weight_bytes + 4); }
// Filters[taps][32], bias[32], in fp32.
constexpr int squeeze_filter_bytes(int taps) { return (taps + 1) * kExciteChannels * 4; }
// The channel sums of each warp, then those of all warps.
inline constexpr int kSqueezeWorkBytes = (kComputeWarps + 1) * kExciteChannels * 4;

// A chunk of weights of excite: products[32][chunk_k], ExciteColumn[32], hidden biases[chunk_k].
constexpr int excite_chunk_bytes(int chunk_k, int weight_bytes) {
  return chunk_k * (kExciteChannels * weight_bytes + 4) + kExciteChannels * 8;
}
// The hidden values that each warp has summed, the hidden values of all warps, the gates.
constexpr int excite_work_bytes(int padded_hidden, int padded_k) {
  return (kComputeWarps * padded_hidden + padded_k + kExciteChannels) * 4;
}

// With the product of the first half in the same body: a chunk of its weights is cells[cells][padded_hidden] of 8 channels in fp16, then
// scales[padded_hidden].
inline constexpr int kExciteCell = 8;
inline constexpr int kExciteMostFirst = kExciteThreads;  // hidden values: a thread has one
constexpr int excite_first_bytes(int cells, int padded_hidden) { return padded_hidden * (cells * kExciteCell * 2 + 4); }
// Behind excite_work_bytes: the sums of channels of each warp (or of several warps), and the sums of all.
constexpr int excite_sums_bytes(int padded_channels) {
  const int turns = (padded_channels + kExciteMostHidden - 1) / kExciteMostHidden;
  return (turns * kExciteMostHidden + padded_channels) * 4;
}

// In quantised networks: what a rounded sum may be, hence the numbers of a table.
inline constexpr int kExciteTable = kExciteThreads;

}  // namespace rk
