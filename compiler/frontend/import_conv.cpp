// Conv. Three spatial dimensions become two: the taps along the first of them become channels, and a Conv over the other two dimensions
// sums them.
#include "compiler/frontend/importers.h"
#include "compiler/frontend/spatial_window.h"
#include "compiler/support/text.h"

namespace tamp::frontend {
namespace {

constexpr int64_t kMaxDepth = 1024;  // taps along the first of three dimensions: each is an operand of a Concat

Conv conv_of(const SpatialWindow& window, int64_t group) {
  return Conv{window.kernel, window.strides, window.dilations, window.pads_begin, window.pads_end, group};
}

// The window without its first dimension.
SpatialWindow without_first(SpatialWindow window) {
  for (Ints* list : {&window.kernel, &window.strides, &window.dilations, &window.pads_begin, &window.pads_end}) list->erase(list->begin());
  return window;
}

// X[N,C,D,H,W] -> [N * planes, taps * C, H, W]: what each of the output's planes sees, group by group.
TensorId planes_side_by_side(NodeImport& n, TensorId x, const SpatialWindow& window, int64_t planes, int64_t group) {
  Shape shape = n.shape(x);
  if (window.pads_begin[0] != 0 || window.pads_end[0] != 0) {
    x = n.add(Pad{{0, 0, window.pads_begin[0], 0, 0}, {0, 0, window.pads_end[0], 0, 0}}, {x});
    shape = n.shape(x);
  }
  const int64_t batch = shape[0], channels = shape[1], height = shape[3], width = shape[4], taps = window.kernel[0];
  std::vector<TensorId> seen;
  for (int64_t tap = 0; tap < taps; ++tap) {
    Slice slice = whole_slice(shape);
    slice.starts[2] = tap * window.dilations[0];
    slice.steps[2] = window.strides[0];
    slice.extents[2] = planes;
    const bool is_all = slice == whole_slice(shape);
    const TensorId plane = n.add(Transpose{{0, 2, 1, 3, 4}}, {is_all ? x : n.add(slice, {x})});
    seen.push_back(n.reshape(plane, {batch, planes, group, channels / group, height, width}));
  }
  const TensorId all = taps == 1 ? seen[0] : n.add(Concat{3}, seen);
  return n.reshape(all, {batch * planes, taps * channels, height, width});
}

TensorId volume_convolution(NodeImport& n, TensorId x, TensorId w, TensorId bias, const SpatialWindow& window, int64_t group) {
  const Shape result = n.infer(conv_of(window, group), {x, w, bias})[0].shape, ws = n.shape(w);
  if (window.kernel[0] > kMaxDepth)
    throw n.refuse("3-D convolution with a kernel of shape {}, supported: up to {} along the first dimension", shape_text(window.kernel),
                   kMaxDepth);
  const TensorId planes = planes_side_by_side(n, x, window, result[2], group);
  const TensorId taps = n.reshape(n.add(Transpose{{0, 2, 1, 3, 4}}, {w}), {ws[0], ws[1] * ws[2], ws[3], ws[4]});
  const TensorId y = n.add(conv_of(without_first(window), group), {planes, taps, bias});
  const TensorId apart = n.reshape(y, {result[0], result[2], result[1], result[3], result[4]});
  return n.add(Transpose{{0, 2, 1, 3, 4}}, {apart});
}

}  // namespace

void import_conv(NodeImport& n) {
  n.expect_counts(2, 3);
  const TensorId x = n.in(0), w = n.in(1), bias = n.optional_in(2);
  n.expect_float({x, w});
  if (bias.valid()) n.expect_float({x, bias});
  n.result(0, convolution(n, x, w, bias));
}

TensorId convolution(NodeImport& n, TensorId x, TensorId w, TensorId bias) {
  const Shape xs = n.shape(x), ws = n.shape(w);
  expect_spatial(n, xs, 3, "convolution");
  const Ints kernel = kernel_of_weights(n, xs, ws);
  const int64_t group = n.attr_int("group", 1);
  bool ceil_mode = false;
  return convolution_of(n, x, w, bias, read_window(n, xs, kernel, /*dilated=*/true, ceil_mode), group);
}

TensorId convolution_of(NodeImport& n, TensorId x, TensorId w, TensorId bias, const SpatialWindow& window, int64_t group) {
  if (window.kernel.size() == 3) return volume_convolution(n, x, w, bias, window, group);
  return n.add(conv_of(window, group), {x, w, bias});
}

}  // namespace tamp::frontend
