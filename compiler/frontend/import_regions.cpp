// Parts of images: RoiAlign, MaxRoiPool, CenterCropPad.
#include <algorithm>

#include "compiler/frontend/importers.h"
#include "compiler/frontend/spatial_window.h"
#include "compiler/support/text.h"

namespace tamp::frontend {
namespace {

int64_t bins(NodeImport& n, const char* name) {
  const int64_t count = n.attr_int(name, 1);
  if (count < 1 || count > kMaxAttribute) throw n.bad("attribute '{}' is {}, expected at least 1", name, count);
  return count;
}

}  // namespace

void import_roi_align(NodeImport& n) {
  n.expect_counts(3, 3);
  const TensorId x = n.in(0), rois = n.in(1), batch = n.in(2);
  n.expect_float({x, rois});
  n.expect_whole({batch});
  RoiAlign align{bins(n, "output_height"), bins(n, "output_width"), n.attr_int("sampling_ratio", 0), n.attr_float("spatial_scale", 1)};
  const std::string mode = n.attr_string("mode", "avg");
  if (mode != "avg" && mode != "max") throw n.bad("attribute 'mode' is '{}', expected avg or max", printable(mode));
  align.largest = mode == "max";
  align.half_pixel = n.version() >= 16;
  if (n.version() >= 16) {
    const std::string place = n.attr_string("coordinate_transformation_mode", "half_pixel");
    if (place != "half_pixel" && place != "output_half_pixel")
      throw n.bad("attribute 'coordinate_transformation_mode' is '{}', expected half_pixel or output_half_pixel", printable(place));
    align.half_pixel = place == "half_pixel";
  }
  n.result(0, n.add(align, {x, n.cast(rois, DType::f32), n.cast(batch, DType::f32)}));
}

void import_max_roi_pool(NodeImport& n) {
  n.expect_counts(2, 2);
  n.expect_float({n.in(0), n.in(1)});
  const std::optional<Ints> shape = n.find_ints("pooled_shape");
  if (!shape || shape->size() != 2 || std::any_of(shape->begin(), shape->end(), [](int64_t e) { return e < 1 || e > kMaxAttribute; }))
    throw n.bad("attribute 'pooled_shape' is {}, expected [height,width]", shape_text(shape.value_or(Ints{})));
  const MaxRoiPool pool{(*shape)[0], (*shape)[1], n.attr_float("spatial_scale", 1)};
  n.result(0, n.add(pool, {n.in(0), n.cast(n.in(1), DType::f32)}));
}

// Half of the excess, or of the missing elements, is cut or added in front, rounded down.
void import_center_crop_pad(NodeImport& n) {
  n.expect_counts(2, 2);
  TensorId x = n.in(0);
  const Shape shape = n.shape(x);
  const Ints wanted = n.ints(1, "shape");
  Ints dimensions = range(0, n.rank(x));
  if (const std::optional<Ints> axes = n.find_ints("axes")) {
    n.axes(*axes, n.rank(x));  // no dimension twice
    dimensions.clear();
    for (const int64_t axis : *axes) dimensions.push_back(n.axis(axis, n.rank(x), "axes"));
  }
  if (wanted.size() != dimensions.size()) throw n.bad("input shape is {}, expected {} values", shape_text(wanted), dimensions.size());
  Slice crop = whole_slice(shape);
  Pad pad{Ints(shape.size(), 0), Ints(shape.size(), 0)};
  for (size_t i = 0; i < wanted.size(); ++i) {
    const auto d = static_cast<size_t>(dimensions[i]);
    if (wanted[i] < 0 || wanted[i] > kMaxAttribute) throw n.bad("input shape is {}", shape_text(wanted));
    const int64_t less = std::max<int64_t>(0, shape[d] - wanted[i]), more = std::max<int64_t>(0, wanted[i] - shape[d]);
    crop.starts[d] = less / 2;
    crop.extents[d] = shape[d] - less;
    pad.before[d] = more / 2;
    pad.after[d] = more - more / 2;
  }
  const auto any = [](const Ints& values) { return std::any_of(values.begin(), values.end(), [](int64_t value) { return value != 0; }); };
  if (crop.extents != shape) x = n.add(crop, {x});
  if (any(pad.before) || any(pad.after)) x = n.add(pad, {x});
  n.result(0, x);
}

}  // namespace tamp::frontend
