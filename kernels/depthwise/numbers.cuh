// Numbers of depthwise convolutions that host and device code both know (kernels/vdevice/numbers.cuh).
#pragma once

#include <stdint.h>

#include "kernels/vdevice/numbers.cuh"

namespace rk {

// --- separable_conv ----------------------------------------------------------------------------------------------------

inline constexpr int kSeparableTileW = 8;  // pixels

// --- separable_conv with inputs of 16 bits -----------------------------------------------------------------------------

// A column of the filter is cut into words of two taps. Returns how many rows apart the two taps of a word are.
constexpr int separable_tap_distance(int stride, int rows) { return stride == 1 && rows == 2 ? 2 : 1; }
constexpr int separable_words(int taps) { return (taps + 1) / 2; }
// The tap in the lower (upper) half of a word; a number of `taps` or more means none. With 7 taps that are 2 rows apart the words hold
// taps {0, 2}, {1, 3}, {4, 6} and {5, none}; with taps 1 row apart {0, 1}, {2, 3}, {4, 5} and {6, none}.
constexpr int separable_tap(int distance, int word, bool upper) {
  if (distance == 1) return 2 * word + (upper ? 1 : 0);
  return word / 2 * 4 + word % 2 + (upper ? 2 : 0);
}
constexpr int separable_word_bytes(int taps) { return taps > 1 ? 64 * taps * separable_words(taps) : 0; }  // of 16 channels
constexpr int separable_filter_bytes(int taps) { return taps > 1 ? separable_word_bytes(taps) + 128 : 0; }

// --- depthwise_boxes ---------------------------------------------------------------------------------------------------

inline constexpr int kDepthwiseColumns = 16;  // pixels of a row of the box: a multiple of eight
// The sums of all threads, two channels each.
constexpr int depthwise_work_bytes(int pixels) { return kComputeWarps * kWarp * 8 * pixels; }

}  // namespace rk
