// DeformConv: each tap of a convolution is sampled at a place of its own, then all of them are multiplied by the weights. So it becomes a
// GridSample whose places are pixels, a product with the mask, and a Conv of one tap whose input channels are the sampled taps.
#include "compiler/frontend/importers.h"
#include "compiler/frontend/spatial_window.h"
#include "compiler/support/text.h"

namespace tamp::frontend {
namespace {

struct Deformed {
  SpatialWindow window;
  int64_t rows = 0, columns = 0;  // of the result
  int64_t group = 1, offset_group = 1;

  int64_t taps() const { return window.kernel[0] * window.kernel[1]; }
};

// [1, 1, taps, 2, rows, columns]: (y, x) of each tap with offsets of zero.
TensorId plain_places(NodeImport& n, const Deformed& op) {
  const SpatialWindow& w = op.window;
  n.charge(op.taps() * 2 * op.rows * op.columns * static_cast<int64_t>(sizeof(float)));
  std::vector<float> places;
  for (int64_t tap = 0; tap < op.taps(); ++tap) {
    for (size_t d = 0; d < 2; ++d) {
      const int64_t of_tap = (d == 0 ? tap / w.kernel[1] : tap % w.kernel[1]) * w.dilations[d] - w.pads_begin[d];
      for (int64_t y = 0; y < op.rows; ++y) {
        for (int64_t x = 0; x < op.columns; ++x) places.push_back(static_cast<float>(of_tap + (d == 0 ? y : x) * w.strides[d]));
      }
    }
  }
  return n.constant(ops::raw_value(DType::f32, {1, 1, op.taps(), 2, op.rows, op.columns}, places));
}

void expect_shape(NodeImport& n, TensorId id, const char* name, const Shape& expected) {
  if (n.shape(id) != expected) throw n.bad("input {} has shape {}, expected {}", name, shape_text(n.shape(id)), shape_text(expected));
}

Deformed read_attributes(NodeImport& n, const Shape& x, const Shape& w) {
  Deformed op;
  op.window = read_strides(n, kernel_of_weights(n, x, w), /*dilated=*/true);
  read_pads(n, op.window);
  op.group = n.attr_int("group", 1);
  op.offset_group = n.attr_int("offset_group", 1);
  if (op.group < 1 || x[1] % op.group != 0 || w[0] % op.group != 0 || w[1] * op.group != x[1])
    throw n.bad("X has shape {} and W has shape {} with group {}", shape_text(x), shape_text(w), op.group);
  if (op.offset_group < 1 || x[1] % op.offset_group != 0)
    throw n.bad("attribute 'offset_group' is {}, it must divide the {} channels of X", op.offset_group, x[1]);
  Ints extents;
  for (size_t d = 0; d < 2; ++d) {
    const int64_t room = x[d + 2] + op.window.pads_begin[d] + op.window.pads_end[d] - op.window.reach(d);
    if (room < 0 || x[d + 2] < 1) throw n.bad("a window does not fit into X of shape {}", shape_text(x));
    extents.push_back(room / op.window.strides[d] + 1);
  }
  op.rows = extents[0];
  op.columns = extents[1];
  return op;
}

}  // namespace

void import_deform_conv(NodeImport& n) {
  n.expect_counts(3, 5);
  const TensorId x = n.in(0), w = n.in(1), offset = n.in(2), bias = n.optional_in(3), mask = n.optional_in(4);
  n.expect_float({x, w});
  n.expect_float({x, offset});
  if (bias.valid()) n.expect_float({x, bias});
  if (mask.valid()) n.expect_float({x, mask});
  const Shape xs = n.shape(x), ws = n.shape(w);
  if (xs.size() != 4) throw n.refuse("X has shape {}, supported: [N,C,H,W]", shape_text(xs));
  const Deformed op = read_attributes(n, xs, ws);
  const int64_t batch = xs[0], groups = op.offset_group, taps = op.taps(), rows = op.rows, columns = op.columns;
  expect_shape(n, offset, "offset", {batch, groups * taps * 2, rows, columns});
  if (mask.valid()) expect_shape(n, mask, "mask", {batch, groups * taps, rows, columns});
  if (bias.valid()) expect_shape(n, bias, "B", {ws[0]});

  const TensorId moved = n.reshape(n.cast(offset, DType::f32), {batch, groups, taps, 2, rows, columns});
  TensorId places = n.elementwise(ElementwiseOp::add, {moved, plain_places(n, op)});
  Slice x_first = whole_slice(n.shape(places));
  x_first.starts[3] = 1;
  x_first.steps[3] = -1;
  places = n.add(Transpose{{0, 1, 2, 4, 5, 3}}, {n.add(x_first, {places})});
  places = n.reshape(places, {batch * groups, taps * rows, columns, 2});

  GridSample sample;
  sample.in_pixels = true;
  TensorId seen = n.add(sample, {n.reshape(x, {batch * groups, xs[1] / groups, xs[2], xs[3]}), places});
  if (mask.valid()) {
    seen = n.reshape(seen, {batch, groups, xs[1] / groups, taps, rows, columns});
    seen = n.elementwise(ElementwiseOp::mul, {seen, n.reshape(mask, {batch, groups, 1, taps, rows, columns})});
  }
  seen = n.reshape(seen, {batch, xs[1] * taps, rows, columns});
  const SpatialWindow one{{1, 1}, {1, 1}, {1, 1}, {0, 0}, {0, 0}};
  n.result(0, convolution_of(n, seen, n.reshape(w, {ws[0], ws[1] * taps, 1, 1}), bias, one, op.group));
}

}  // namespace tamp::frontend
