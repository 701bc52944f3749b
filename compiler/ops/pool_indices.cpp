// Which element of each window MaxPool takes.
#include <array>

#include "compiler/ops/operator.h"
#include "compiler/ops/window.h"

namespace tamp::ops {
namespace {

constexpr size_t kSpatial = 3;

// The window in three dimensions: dimensions that X lacks come first, with an extent of 1.
std::array<WindowAxis, kSpatial> axes_of(const PoolIndices& op, const Shape& x, const Shape& y) {
  std::array<WindowAxis, kSpatial> axes;
  const size_t missing = kSpatial - op.kernel.size();
  for (size_t d = 0; d < op.kernel.size(); ++d) axes[d + missing] = window_axis(op, x, y, d);
  return axes;
}

// The place of the largest element within an image of one channel; 0 where the window is all padding.
int64_t largest_at(const std::array<WindowAxis, kSpatial>& axes, const std::array<int64_t, kSpatial>& o, const double* image,
                   const std::array<int64_t, kSpatial>& counts) {
  int64_t at = 0;
  bool found = false;
  double best = 0;
  for (int64_t kz = 0; kz < axes[0].kernel; ++kz) {
    const int64_t z = axes[0].start(o[0]) + kz * axes[0].dilation;
    if (z < 0 || z >= axes[0].in) continue;
    for (int64_t ky = 0; ky < axes[1].kernel; ++ky) {
      const int64_t y = axes[1].start(o[1]) + ky * axes[1].dilation;
      if (y < 0 || y >= axes[1].in) continue;
      for (int64_t kx = 0; kx < axes[2].kernel; ++kx) {
        const int64_t x = axes[2].start(o[2]) + kx * axes[2].dilation;
        if (x < 0 || x >= axes[2].in) continue;
        const double value = image[(z * axes[1].in + y) * axes[2].in + x];
        if (found && !(value > best || (value != value && best == best))) continue;
        found = true;
        best = value;
        at = z * counts[0] + y * counts[1] + x * counts[2];
      }
    }
  }
  return at;
}

}  // namespace

TensorTypes infer(const PoolIndices& op, const Given& given) {
  given.expect(1);
  expect_spatial(given, kSpatial, "pooling with Indices");
  return {{DType::i64, slid(op, given, given.shape(0)[1], op.ceil_mode)}};
}

std::vector<Value> evaluate(const PoolIndices& op, const Call& call) {
  const Shape &x = call.input(0).shape, &y = call.output().shape;
  const auto axes = axes_of(op, x, y);
  const Numbers<double> input(call.input(0));
  const int64_t height = axes[1].in, width = axes[2].in, pixels = axes[0].in * height * width;
  const std::array<int64_t, kSpatial> counts = op.column_major ? std::array<int64_t, kSpatial>{1, axes[0].in, axes[0].in * height}
                                                               : std::array<int64_t, kSpatial>{height * width, width, 1};
  std::vector<int64_t> result;
  result.reserve(static_cast<size_t>(element_count(y)));
  for (int64_t image = 0; image < x[0] * x[1]; ++image) {
    for (int64_t oz = 0; oz < axes[0].out; ++oz) {
      for (int64_t oy = 0; oy < axes[1].out; ++oy) {
        for (int64_t ox = 0; ox < axes[2].out; ++ox)
          result.push_back(image * pixels + largest_at(axes, {oz, oy, ox}, input.data() + image * pixels, counts));
      }
    }
  }
  return {output_from(call, result)};
}

Traits traits_of(const PoolIndices&) {
  return {Layout::channels_last, InF32::none};
}  // its result is not of X's type: the frontend makes X f32

int64_t own_work(const PoolIndices& op, const Given&, const TensorTypes& results) {
  return saturating_product({element_count(results[0].shape), kWorkOfRead, window_elements(op.kernel)});
}

}  // namespace tamp::ops
