// MaxRoiPool: the largest pixel of each bin of rectangles whose corners are whole pixels.
#include <cmath>

#include "compiler/ops/functions.h"
#include "compiler/ops/operator.h"
#include "compiler/support/text.h"
#include "kernels/shared/regions.h"

namespace tamp::ops {

TensorTypes infer(const MaxRoiPool& op, const Given& given) {
  given.expect(2);
  const Shape &x = given.shape(0), &rois = given.shape(1);
  if (x.size() != 4) throw bad_input("input X has shape {}, expected [N,C,H,W]", shape_text(x));
  if (x[0] < 1 || x[2] < 1 || x[3] < 1) throw bad_input("input X has shape {}, which has no pixels", shape_text(x));
  if (rois.size() != 2 || rois[1] != 5) throw bad_input("input rois has shape {}, expected [regions,5]", shape_text(rois));
  if (op.height < 1 || op.width < 1)
    throw bad_input("attribute 'pooled_shape' is {}, each must be at least 1", shape_text({op.height, op.width}));
  return {{given.dtype(0), {rois[0], x[1], op.height, op.width}}};
}

std::vector<Value> evaluate(const MaxRoiPool& op, const Call& call) {
  const Shape &x = call.input(0).shape, &y = call.output().shape;
  const Numbers<double> images(call.input(0));
  const Numbers<float> rois(call.input(1));  // the bins are found in float as the device finds them: their ends jump
  const auto height = static_cast<int32_t>(op.height), width = static_cast<int32_t>(op.width);
  const auto in_height = static_cast<int32_t>(x[2]), in_width = static_cast<int32_t>(x[3]);
  std::vector<double> result;
  result.reserve(static_cast<size_t>(element_count(y)));
  for (int64_t r = 0; r < y[0]; ++r) {
    const int64_t image = rk::region_image(rois[5 * r], static_cast<int32_t>(x[0]));
    for (int64_t c = 0; c < y[1]; ++c) {
      const double* const pixels = images.data() + (image * x[1] + c) * x[2] * x[3];
      for (int64_t by = 0; by < op.height; ++by) {
        const auto rows = rk::region_bin(rois[5 * r + 2], rois[5 * r + 4], op.spatial_scale, static_cast<int32_t>(by), height, in_height);
        for (int64_t bx = 0; bx < op.width; ++bx) {
          const auto columns =
              rk::region_bin(rois[5 * r + 1], rois[5 * r + 3], op.spatial_scale, static_cast<int32_t>(bx), width, in_width);
          double largest = -INFINITY;
          for (int64_t i = rows.begin; i < rows.end; ++i) {
            for (int64_t j = columns.begin; j < columns.end; ++j) largest = max_of(largest, pixels[i * x[3] + j]);
          }
          result.push_back(rows.begin < rows.end && columns.begin < columns.end ? largest : 0);
        }
      }
    }
  }
  return {output_from(call, result)};
}

Traits traits_of(const MaxRoiPool&) { return {Layout::channels_last, InF32::all}; }

int64_t own_work(const MaxRoiPool&, const Given& given, const TensorTypes& results) {
  return saturating_product({element_count(results[0].shape), kWorkOfRead, given.shape(0)[2], given.shape(0)[3]});
}

}  // namespace tamp::ops
