// The taps of ONNX's Resize, one axis at a time: for each element of the resized axis, the elements of the original axis that it is made
// of, and their weights. Example: linear, half_pixel, in 2, out 4: element 1 lies at (1 + 0.5) / 2 - 0.5 = 0.25, so it is 0.75 x[0] + 0.25
// x[1].
#pragma once

#include <cstdint>
#include <vector>

namespace tamp::frontend {

enum class ResizeMode { nearest, linear, cubic };
enum class ResizePlace {  // coordinate_transformation_mode
  half_pixel,
  half_pixel_symmetric,
  pytorch_half_pixel,
  align_corners,
  asymmetric,
  tf_half_pixel_for_nn,
  tf_crop_and_resize
};
enum class ResizeNearest { round_prefer_floor, round_prefer_ceil, floor, ceil };

struct ResizeRule {
  ResizeMode mode = ResizeMode::nearest;
  ResizePlace place = ResizePlace::half_pixel;
  ResizeNearest nearest = ResizeNearest::round_prefer_floor;
  bool antialias = false, exclude_outside = false;
  double cubic_coeff_a = -0.75;
};

struct ResizeAxis {
  int64_t in = 0, out = 0;
  double scale = 1;                   // as the model says it: not always out / in
  double roi_begin = 0, roi_end = 1;  // tf_crop_and_resize
};

// `out` rows of `taps` entries. An index of -1 (tf_crop_and_resize only): the element lies outside of the input.
struct TapTable {
  int64_t taps = 0;
  std::vector<int64_t> indices;
  std::vector<float> weights;

  bool has_outside() const;
  bool is_identity(int64_t in) const;  // every element is itself
};

int64_t taps_of(const ResizeRule& rule, double scale);  // of a row
TapTable tap_table(const ResizeRule& rule, const ResizeAxis& axis);

}  // namespace tamp::frontend
