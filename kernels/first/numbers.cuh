// Numbers of convolutions of few input channels that host and device code both know (kernels/vdevice/numbers.cuh).
#pragma once

#include <stdint.h>

#include "kernels/vdevice/numbers.cuh"

namespace rk {

// --- patch_conv --------------------------------------------------------------------------------------------------------

inline constexpr int kPatchTableBytes = 32, kPatchTileBytes = 512;  // of a step: its table; weights of 16 channels

// --- patch_strip -------------------------------------------------------------------------------------------------------

inline constexpr int kStripPixels = 256;                             // of a tile
constexpr int strip_tiles(bool narrow) { return narrow ? 4 : 2; }    // of 8 channels, of a warp
enum StripEnd : int { kStripClamped, kStripSmooth, kStripRounded };  // none, relu or clip; gelu and its like; to whole numbers; in tables
constexpr int strip_granules(int rows, int columns) { return (rows * columns + 7) / 8; }  // of 8 k

}  // namespace rk
