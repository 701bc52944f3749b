// Numbers of streamed_conv that host and device code both know (kernels/vdevice/numbers.cuh).
#pragma once

#include "kernels/tile/numbers.cuh"

namespace rk {

inline constexpr int kStreamedStepBytes = 32;  // of a pixel: the k of one mma, 16 numbers of 16 bits or 32 bytes
inline constexpr int kStreamedRows = 16;       // pixels of one mma
inline constexpr int kStreamedMostSteps = 10;

// Whether a residual is added, and whether before the activation or behind it.
enum StreamedAdds : int { kStreamedNoResidual, kStreamedBefore, kStreamedAfter };  // in tables

// Bytes that a lane loads of a pixel are k that belong to two products. Word `word` (0 or 1) of the operand of step `step` in the lane
// that is number t of its four is this byte of the pixel: with WIDE, accesses have 16 bytes and bring two steps (but the last one, if it
// has no other), else 8. Example: WIDE, step 1, lane 2, word 0: the access of lane 2 is bytes 32 to 47, its third word begins at byte 40.
RK_NUMBER int streamed_byte(int steps, bool wide, int step, int t, int word) {
  if (wide && (step | 1) < steps) return step / 2 * 64 + t * 16 + step % 2 * 8 + word * 4;
  return step * kStreamedStepBytes + t * 8 + word * 4;
}
// Channels are dealt to the columns of the products so that a lane has the sums of 2 * tiles neighbours: the channel, among the 8 * tiles
// of a group, that is column `column` of tile `tile`.
RK_NUMBER int streamed_channel(int tiles, int tile, int column) { return column / 2 * 2 * tiles + tile * 2 + column % 2; }

// A chunk of the ring: weights, then scale, bias and row of each channel, then the table.
RK_NUMBER int streamed_weight_bytes(int steps, int channels) { return channels * steps * kStreamedStepBytes; }
RK_NUMBER int streamed_row_bytes(int channels) { return channels * 4; }
RK_NUMBER int streamed_chunk_bytes(int steps, int channels) {
  return streamed_weight_bytes(steps, channels) + 3 * streamed_row_bytes(channels) + kTableBytes;
}

}  // namespace rk
