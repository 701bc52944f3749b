// GridSample: elements of an image at places that another tensor names, with interpolation between neighbours. All dimensions of the image
// are handled alike; comments below speak of one axis.
#include <algorithm>
#include <array>
#include <cmath>

#include "compiler/ops/operator.h"
#include "compiler/support/text.h"

namespace tamp::ops {
namespace {

// The coordinate in pixels of a place as the grid has it.
double pixel_of(double place, int64_t extent, const GridSample& op) {
  const auto n = static_cast<double>(extent);
  if (op.in_pixels) return place;
  return op.align_corners ? (place + 1) / 2 * (n - 1) : ((place + 1) * n - 1) / 2;
}

// x reflected at the borders `low` and `high` until it lies between them.
double reflected(double x, double low, double high) {
  if (high <= low || !std::isfinite(x)) return low;
  const double span = high - low, distance = std::fabs(x - low);
  const double rest = std::fmod(distance, 2 * span);
  return low + (rest <= span ? rest : 2 * span - rest);
}

// The coordinate after the padding mode: moved into the image, except with `zeros`, which leaves it outside.
double padded(double x, int64_t extent, const GridSample& op) {
  const auto n = static_cast<double>(extent);
  if (op.padding == Outside::reflection) x = op.align_corners ? reflected(x, 0, n - 1) : reflected(x, -0.5, n - 0.5);
  return op.padding == Outside::zeros ? x : std::isnan(x) ? 0 : std::clamp(x, 0.0, n - 1);
}

// The neighbours of a coordinate along one axis, and their weights; -1: outside.
struct Neighbours {
  std::array<int64_t, 4> at{-1, -1, -1, -1};
  std::array<double, 4> weight{};
};

// Keys' cubic convolution of the neighbours at -1, 0, 1, 2 from `t` in [0, 1).
std::array<double, 4> cubic_weights(double t) {
  constexpr double kA = -0.75;
  const auto near = [](double x) { return ((kA + 2) * x - (kA + 3)) * x * x + 1; };
  const auto far = [](double x) { return ((kA * x - 5 * kA) * x + 8 * kA) * x - 4 * kA; };
  return {far(t + 1), near(t), near(1 - t), far(2 - t)};
}

int64_t inside(double x, int64_t extent) { return x >= 0 && x <= static_cast<double>(extent - 1) ? static_cast<int64_t>(x) : -1; }

Neighbours neighbours_of(double place, int64_t extent, const GridSample& op) {
  Neighbours found;
  double x = pixel_of(place, extent, op);
  if (op.mode == Interpolation::cubic) {  // padding applies to each neighbour
    const double whole = std::floor(x);
    found.weight = cubic_weights(x - whole);
    for (size_t i = 0; i < 4; ++i) found.at[i] = inside(std::trunc(padded(whole - 1 + static_cast<double>(i), extent, op)), extent);
    return found;
  }
  if (op.mode == Interpolation::nearest) {
    found.at[0] = inside(padded(std::nearbyint(x), extent, op), extent);  // halves to even, then the padding
    found.weight[0] = 1;
    return found;
  }
  x = padded(x, extent, op);
  const double whole = std::floor(x);
  found.at[0] = inside(whole, extent);
  found.at[1] = inside(whole + 1, extent);
  found.weight[0] = whole + 1 - x;
  found.weight[1] = x - whole;
  return found;
}

// For an image of two dimensions.
double sample(const double* image, int64_t width, const Neighbours& ys, const Neighbours& xs) {
  double sum = 0;
  for (size_t i = 0; i < 4; ++i) {
    if (ys.at[i] < 0) continue;
    for (size_t j = 0; j < 4; ++j) {
      if (xs.at[j] >= 0) sum += ys.weight[i] * xs.weight[j] * image[ys.at[i] * width + xs.at[j]];
    }
  }
  return sum;
}

// For an image of three dimensions.
double sample(const double* image, int64_t height, int64_t width, const Neighbours& zs, const Neighbours& ys, const Neighbours& xs) {
  double sum = 0;
  for (size_t i = 0; i < 4; ++i) {
    if (zs.at[i] >= 0) sum += zs.weight[i] * sample(image + zs.at[i] * height * width, width, ys, xs);
  }
  return sum;
}

}  // namespace

TensorTypes infer(const GridSample& op, const Given& given) {
  given.expect(2);
  const Shape &x = given.shape(0), &grid = given.shape(1);
  if (x.size() != 4 && x.size() != 5) throw bad_input("input X has shape {}, expected [N,C,H,W] or [N,C,D,H,W]", shape_text(x));
  const bool is_volume = x.size() == 5;
  if (is_volume && op.mode == Interpolation::cubic)
    throw unsupported("mode cubic of an X of shape {}, supported in 3-D: linear, nearest", shape_text(x));
  if (*std::min_element(x.begin() + 2, x.end()) < 1) throw bad_input("input X has shape {}, which has no pixels", shape_text(x));
  if (grid.size() != x.size() || grid[0] != x[0] || grid.back() != static_cast<int64_t>(x.size()) - 2) {
    throw bad_input("input grid has shape {}, expected [{}{} for X of shape {}", shape_text(grid), x[0],
                    (is_volume ? ",D,H,W,3]" : ",H,W,2]"), shape_text(x));
  }
  Shape result = {x[0], x[1]};
  result.insert(result.end(), grid.begin() + 1, grid.end() - 1);
  return {{given.dtype(0), result}};
}

std::vector<Value> evaluate(const GridSample& op, const Call& call) {
  const Shape &x = call.input(0).shape, &y = call.output().shape;
  const Numbers<double> image(call.input(0)), grid(call.input(1));
  const auto spatial = static_cast<int64_t>(x.size()) - 2;
  const int64_t pixels = product(y, 2, spatial + 2), plane = product(x, 2, spatial + 2), width = x.back(), height = x[x.size() - 2];
  std::vector<double> result(static_cast<size_t>(element_count(y)));
  for (int64_t n = 0; n < y[0]; ++n) {
    for (int64_t p = 0; p < pixels; ++p) {
      const int64_t at = spatial * (n * pixels + p);
      const Neighbours xs = neighbours_of(grid[at], width, op), ys = neighbours_of(grid[at + 1], height, op);
      const Neighbours zs = spatial == 3 ? neighbours_of(grid[at + 2], x[2], op) : Neighbours();
      for (int64_t c = 0; c < y[1]; ++c) {
        const int64_t channel = n * y[1] + c;
        const double* const from = image.data() + channel * plane;
        result[static_cast<size_t>(channel * pixels + p)] =
            spatial == 3 ? sample(from, height, width, zs, ys, xs) : sample(from, width, ys, xs);
      }
    }
  }
  return {output_from(call, result)};
}

Traits traits_of(const GridSample&) { return {Layout::channels_last, InF32::all}; }

int64_t own_work(const GridSample&, const Given&, const TensorTypes& results) {
  return saturating_product({element_count(results[0].shape), 16 * kWorkOfRead});
}

}  // namespace tamp::ops
