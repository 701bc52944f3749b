// Rectangles of images, for RoiAlign and MaxRoiPool: where their bins lie along one dimension. The reference and the device find them by
// the same float arithmetic, since a tiny difference could change a count or an end by a whole pixel. Rectangles are known at run time
// only, so any float must be handled: NaN, infinities, and places far outside of the image.
#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/shared/functions.h"

namespace rk {

constexpr int32_t kRegionSamples = 256;  // the most places of a bin along a dimension

// Rounds towards zero and clamps to +-16777216; NaN is 0.
RK_FUNCTION int32_t region_whole(float x) {
  constexpr float kFar = 16777216.0f;
  return x >= kFar ? 16777216 : x <= -kFar ? -16777216 : x == x ? static_cast<int32_t>(x) : 0;
}

// The image that a rectangle belongs to; a number outside of the range becomes the nearest image.
RK_FUNCTION int32_t region_image(float batch, int32_t images) {
  const int32_t image = region_whole(batch);
  return image < 0 ? 0 : image < images ? image : images - 1;
}

// RoiAlign: one dimension of a rectangle.
struct RegionSide {
  float start, bin;
  int32_t samples;  // places of a bin
};

RK_FUNCTION RegionSide region_side(float low, float high, float scale, bool half_pixel, int32_t bins, int32_t sampling_ratio) {
  const float offset = half_pixel ? 0.5f : 0.0f;
  RegionSide side;
  side.start = low * scale - offset;
  float extent = high * scale - offset - side.start;
  if (!half_pixel && !(extent >= 1.0f)) extent = 1.0f;
  side.bin = extent / static_cast<float>(bins);
  side.samples = sampling_ratio > 0 ? sampling_ratio : region_whole(functions::ceil(side.bin));
  side.samples = side.samples < 0 ? 0 : side.samples < kRegionSamples ? side.samples : kRegionSamples;
  return side;
}

RK_FUNCTION float region_place(const RegionSide& side, int32_t bin, int32_t sample) {
  return side.start + static_cast<float>(bin) * side.bin +
         (static_cast<float>(sample) + 0.5f) * side.bin / static_cast<float>(side.samples);
}

// The two pixels around a place. A place more than one pixel outside of the image has none; one nearer than that takes the border pixel.
struct RegionPixels {
  int32_t low, high;  // -1: nothing
  float weight;       // of high
};

RK_FUNCTION RegionPixels region_pixels(float x, int32_t extent) {
  if (!(x >= -1.0f && x <= static_cast<float>(extent))) return {-1, -1, 0.0f};
  if (x < 0.0f) x = 0.0f;
  const int32_t low = static_cast<int32_t>(x);
  if (low >= extent - 1) return {extent - 1, extent - 1, 0.0f};
  return {low, low + 1, x - static_cast<float>(low)};
}

// MaxRoiPool: the pixels of a bin.
struct RegionBin {
  int32_t begin, end;
};

RK_FUNCTION float region_rounded(float x) { return x < 0.0f ? -functions::floor(0.5f - x) : functions::floor(x + 0.5f); }

RK_FUNCTION RegionBin region_bin(float low, float high, float scale, int32_t bin, int32_t bins, int32_t extent) {
  const int32_t start = region_whole(region_rounded(low * scale));
  const int32_t count = region_whole(region_rounded(high * scale)) - start + 1;
  const float width = static_cast<float>(count < 1 ? 1 : count) / static_cast<float>(bins);
  const int32_t begin = start + region_whole(functions::floor(static_cast<float>(bin) * width));
  const int32_t end = start + region_whole(functions::ceil(static_cast<float>(bin + 1) * width));
  const auto inside = [extent](int32_t at) { return at < 0 ? 0 : at < extent ? at : extent; };
  return {inside(begin), inside(end)};
}

}  // namespace rk
