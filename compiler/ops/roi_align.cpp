// RoiAlign: rectangles of images in a fixed number of bins, each from some places between pixels (kernels/shared/regions.h says where).
// With `largest` the result is the largest weighted pixel, not the largest interpolated place, as in ONNX's own test data.
#include <array>
#include <cmath>

#include "compiler/ops/functions.h"
#include "compiler/ops/operator.h"
#include "compiler/support/text.h"
#include "kernels/shared/regions.h"

namespace tamp::ops {
namespace {

double bin_value(const RoiAlign& op, const double* image, int64_t width, int64_t height, const rk::RegionSide& xs, const rk::RegionSide& ys,
                 int64_t bx, int64_t by) {
  double sum = 0, largest = -INFINITY;
  for (int32_t iy = 0; iy < ys.samples; ++iy) {
    const auto y = rk::region_pixels(rk::region_place(ys, static_cast<int32_t>(by), iy), static_cast<int32_t>(height));
    for (int32_t ix = 0; ix < xs.samples; ++ix) {
      const auto x = rk::region_pixels(rk::region_place(xs, static_cast<int32_t>(bx), ix), static_cast<int32_t>(width));
      std::array<double, 4> terms{};
      if (y.low >= 0 && x.low >= 0) {
        const double *const low = image + y.low * width, *const high = image + y.high * width;
        const double v = y.weight, u = x.weight;
        terms = {(1 - v) * (1 - u) * low[x.low], (1 - v) * u * low[x.high], v * (1 - u) * high[x.low], v * u * high[x.high]};
      }
      for (const double term : terms) {
        sum += term;
        largest = max_of(largest, term);
      }
    }
  }
  const int64_t count = int64_t{ys.samples} * xs.samples;
  if (count == 0) return 0;
  return op.largest ? largest : sum / static_cast<double>(count);
}

}  // namespace

TensorTypes infer(const RoiAlign& op, const Given& given) {
  given.expect(3);
  const Shape &x = given.shape(0), &rois = given.shape(1);
  if (x.size() != 4) throw bad_input("input X has shape {}, expected [N,C,H,W]", shape_text(x));
  if (x[0] < 1 || x[2] < 1 || x[3] < 1) throw bad_input("input X has shape {}, which has no pixels", shape_text(x));
  if (rois.size() != 2 || rois[1] != 4) throw bad_input("input rois has shape {}, expected [regions,4]", shape_text(rois));
  if (given.shape(2) != Shape{rois[0]})
    throw bad_input("input batch_indices has shape {}, expected {}", shape_text(given.shape(2)), shape_text({rois[0]}));
  if (op.height < 1 || op.width < 1 || op.sampling_ratio < 0 || op.sampling_ratio > rk::kRegionSamples) {
    throw bad_input("attributes output_height, output_width and sampling_ratio are {}, {} and {}, expected at least 1, 1, and 0 to {}",
                    op.height, op.width, op.sampling_ratio, rk::kRegionSamples);
  }
  return {{given.dtype(0), {rois[0], x[1], op.height, op.width}}};
}

std::vector<Value> evaluate(const RoiAlign& op, const Call& call) {
  const Shape &x = call.input(0).shape, &y = call.output().shape;
  const Numbers<double> images(call.input(0));
  const Numbers<float> rois(call.input(1)), batch(call.input(2));
  const auto ratio = static_cast<int32_t>(op.sampling_ratio), width = static_cast<int32_t>(op.width),
             height = static_cast<int32_t>(op.height);
  std::vector<double> result;
  result.reserve(static_cast<size_t>(element_count(y)));
  for (int64_t r = 0; r < y[0]; ++r) {
    const auto xs = rk::region_side(rois[4 * r], rois[4 * r + 2], op.spatial_scale, op.half_pixel, width, ratio);
    const auto ys = rk::region_side(rois[4 * r + 1], rois[4 * r + 3], op.spatial_scale, op.half_pixel, height, ratio);
    const int64_t image = rk::region_image(batch[r], static_cast<int32_t>(x[0]));
    for (int64_t c = 0; c < y[1]; ++c) {
      const double* const pixels = images.data() + (image * x[1] + c) * x[2] * x[3];
      for (int64_t by = 0; by < op.height; ++by) {
        for (int64_t bx = 0; bx < op.width; ++bx) result.push_back(bin_value(op, pixels, x[3], x[2], xs, ys, bx, by));
      }
    }
  }
  return {output_from(call, result)};
}

Traits traits_of(const RoiAlign&) { return {Layout::channels_last, InF32::all}; }

int64_t own_work(const RoiAlign& op, const Given& given, const TensorTypes& results) {
  const Shape& x = given.shape(0);  // an adaptive bin has about as many samples as pixels
  const int64_t samples = op.sampling_ratio > 0 ? saturating_product({op.sampling_ratio, op.sampling_ratio}) : x[2] * x[3];
  return saturating_product({element_count(results[0].shape), 4 * kWorkOfRead, samples});
}

}  // namespace tamp::ops
