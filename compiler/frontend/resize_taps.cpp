#include "compiler/frontend/resize_taps.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace tamp::frontend {
namespace {

// The position of element o of the resized axis on the original axis. ONNX divides by the length in * scale, which need not be whole.
double place_of(const ResizeRule& rule, const ResizeAxis& axis, int64_t o) {
  const auto x = static_cast<double>(o), in = static_cast<double>(axis.in);
  const double length = in * axis.scale;
  const double half_pixel = (x + 0.5) / axis.scale - 0.5;
  switch (rule.place) {
    case ResizePlace::half_pixel: return half_pixel;
    case ResizePlace::half_pixel_symmetric: return half_pixel + in / 2 * (1 - static_cast<double>(axis.out) / length);
    case ResizePlace::pytorch_half_pixel: return axis.out == 1 ? 0 : half_pixel;
    case ResizePlace::align_corners: return length == 1 ? 0 : x * (in - 1) / (length - 1);
    case ResizePlace::asymmetric: return x / axis.scale;
    case ResizePlace::tf_half_pixel_for_nn: return (x + 0.5) / axis.scale;
    case ResizePlace::tf_crop_and_resize: {
      if (axis.out == 1) return 0.5 * (axis.roi_begin + axis.roi_end) * (in - 1);
      return axis.roi_begin * (in - 1) + x * (axis.roi_end - axis.roi_begin) * (in - 1) / static_cast<double>(axis.out - 1);
    }
  }
  return half_pixel;
}

// Scales are floats, so a place that should be 3 may come out as 2.9999998. Places that a float cannot tell from a whole or a half number
// are set to that number.
double settled(double x) {
  constexpr double kFloats = 3e-7;
  const double halves = std::nearbyint(2 * x) / 2;
  return std::abs(x - halves) <= kFloats * std::max(1.0, std::abs(x)) ? halves : x;
}

// The weight of a neighbour at `distance`; antialiasing makes the curve wider, by the scale.
double linear_curve(double distance) { return std::max(0.0, 1 - std::abs(distance)); }
double cubic_curve(double distance, double a) {
  const double x = std::abs(distance);
  if (x <= 1) return ((a + 2) * x - (a + 3)) * x * x + 1;
  return x < 2 ? ((a * x - 5 * a) * x + 8 * a) * x - 4 * a : 0;
}

double narrowing(const ResizeRule& rule, double scale) { return rule.antialias ? std::min(scale, 1.0) : 1.0; }

// How many elements the leftmost one with a weight is away from the element left of a place.
int64_t left_of(const ResizeRule& rule, double scale) {
  if (rule.mode == ResizeMode::nearest) return 0;
  const double reach = (rule.mode == ResizeMode::linear ? 1 : 2) / narrowing(rule, scale);
  return -static_cast<int64_t>(std::floor(-reach)) - 1;
}

int64_t nearest_of(ResizeNearest rule, double x) {
  const double low = std::floor(x);
  if (x == low) return static_cast<int64_t>(low);
  const double rest = x - low;
  const bool up = rule == ResizeNearest::ceil || (rule == ResizeNearest::round_prefer_floor && rest > 0.5) ||
                  (rule == ResizeNearest::round_prefer_ceil && rest >= 0.5);
  return static_cast<int64_t>(low) + (up ? 1 : 0);
}

// One row of linear or cubic: the weights of elements first, first + 1, ...
std::vector<double> curve_weights(const ResizeRule& rule, const ResizeAxis& axis, double x, int64_t first, int64_t taps) {
  const double narrow = narrowing(rule, axis.scale);
  std::vector<double> weights;
  for (int64_t t = 0; t < taps; ++t) {
    const double distance = (static_cast<double>(first + t) - x) * narrow;
    weights.push_back(rule.mode == ResizeMode::linear ? linear_curve(distance) : cubic_curve(distance, rule.cubic_coeff_a));
  }
  double sum = rule.antialias ? std::accumulate(weights.begin(), weights.end(), 0.0) : 1;
  if (rule.exclude_outside) {
    std::vector<double> inside = weights;
    for (int64_t t = 0; t < taps; ++t) {
      if (first + t < 0 || first + t >= axis.in) inside[static_cast<size_t>(t)] = 0;
    }
    const double left = std::accumulate(inside.begin(), inside.end(), 0.0);
    if (left != 0) {  // else all taps are outside, and their weights stay as they are
      sum = left;
      weights = inside;
    }
  }
  for (double& weight : weights) weight /= sum;
  return weights;
}

}  // namespace

bool TapTable::has_outside() const { return std::find(indices.begin(), indices.end(), -1) != indices.end(); }

bool TapTable::is_identity(int64_t in) const {
  if (static_cast<int64_t>(indices.size()) != in * taps) return false;
  for (size_t i = 0; i < indices.size(); ++i) {
    const bool itself = indices[i] == static_cast<int64_t>(i) / taps;
    if (!itself && weights[i] != 0) return false;
  }
  for (int64_t o = 0; o < in; ++o) {
    double sum = 0;
    for (int64_t t = 0; t < taps; ++t) sum += static_cast<double>(weights[static_cast<size_t>(o * taps + t)]);
    if (sum != 1) return false;
  }
  return true;
}

int64_t taps_of(const ResizeRule& rule, double scale) { return rule.mode == ResizeMode::nearest ? 1 : 2 * left_of(rule, scale) + 2; }

TapTable tap_table(const ResizeRule& rule, const ResizeAxis& axis) {
  TapTable table;
  table.taps = taps_of(rule, axis.scale);
  for (int64_t o = 0; o < axis.out; ++o) {
    // A place far outside takes the border's elements; it is moved near the border so that it fits an integer.
    const double last = static_cast<double>(axis.in - 1), place = place_of(rule, axis, o);
    const double far = static_cast<double>(axis.in + table.taps);
    const double x = std::clamp(std::isnan(place) ? 0 : place, -far, last + far);
    const bool outside = rule.place == ResizePlace::tf_crop_and_resize && (x < 0 || x > last);
    if (rule.mode == ResizeMode::nearest) {
      const int64_t index = std::clamp<int64_t>(nearest_of(rule.nearest, settled(x)), 0, axis.in - 1);
      table.indices.push_back(outside ? -1 : index);
      table.weights.push_back(1);
      continue;
    }
    const int64_t first = static_cast<int64_t>(std::ceil(x)) - 1 - left_of(rule, axis.scale);
    const std::vector<double> weights = curve_weights(rule, axis, x, first, table.taps);
    for (int64_t t = 0; t < table.taps; ++t) {
      table.indices.push_back(outside ? -1 : std::clamp<int64_t>(first + t, 0, axis.in - 1));
      table.weights.push_back(static_cast<float>(weights[static_cast<size_t>(t)]));
    }
  }
  return table;
}

}  // namespace tamp::frontend
