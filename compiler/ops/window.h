// The sliding window of Conv and Pool: the shape of the result, and, for the reference, a window of two dimensions (with one spatial
// dimension the height is 1). The shape is also known for more spatial dimensions, for the frontend; such a Conv or Pool is never in a
// graph.
#pragma once

#include <cstdint>
#include <vector>

#include "compiler/ops/operator.h"
#include "compiler/support/error.h"

namespace tamp::ops {

// One dimension: output position o sees the input positions o * stride - pad_begin + k * dilation, k < kernel.
struct WindowAxis {
  int64_t in = 1, out = 1, kernel = 1, stride = 1, dilation = 1, pad_begin = 0, pad_end = 0;

  int64_t start(int64_t o) const { return o * stride - pad_begin; }
};

struct Window {
  WindowAxis y, x;
};

template <class ConvOrPool>
WindowAxis window_axis(const ConvOrPool& attrs, const Shape& in, const Shape& out, size_t d) {
  return WindowAxis{in[d + 2], out[d + 2], attrs.kernel[d], attrs.strides[d], attrs.dilations[d], attrs.pads_begin[d], attrs.pads_end[d]};
}

template <class ConvOrPool>
Window window_of(const ConvOrPool& attrs, const Shape& in, const Shape& out) {
  TAMP_CHECK(attrs.kernel.size() <= 2, "a window of more than two dimensions");
  if (attrs.kernel.size() == 1) return Window{WindowAxis{}, window_axis(attrs, in, out, 0)};
  return Window{window_axis(attrs, in, out, 0), window_axis(attrs, in, out, 1)};
}

constexpr size_t kMaxPooled = 6;  // spatial dimensions of a pool

// X has one spatial dimension to `most` of them; `what` is a word for what is done to it.
void expect_spatial(const Given& given, size_t most, const char* what);

// How many elements of a dimension one window spans.
template <class Windowed>
int64_t reach(const Windowed& op, size_t d) {
  return (op.kernel[d] - 1) * op.dilations[d] + 1;
}

// One dimension of the result. Error if the window does not fit in at all.
int64_t slid_extent(int64_t in, int64_t reach, int64_t stride, int64_t pad_begin, int64_t pad_end, bool ceil_mode, size_t dimension);

// The result's shape for windows over X, the first operand.
template <class Windowed>
Shape slid(const Windowed& op, const Given& given, int64_t channels, bool ceil_mode) {
  const Shape& x = given.shape(0);
  const size_t spatial = x.size() - 2;
  given.expect_entries(op.kernel, "kernel_shape", spatial);
  given.expect_entries(op.strides, "strides", spatial);
  given.expect_entries(op.dilations, "dilations", spatial);
  given.expect_entries(op.pads_begin, "pads", spatial);
  given.expect_entries(op.pads_end, "pads", spatial);
  Shape result{x[0], channels};
  for (size_t d = 0; d < spatial; ++d) {
    if (op.kernel[d] < 1 || op.strides[d] < 1 || op.dilations[d] < 1) throw bad_input("kernel, stride or dilation is not positive");
    result.push_back(slid_extent(x[d + 2], reach(op, d), op.strides[d], op.pads_begin[d], op.pads_end[d], ceil_mode, d + 2));
  }
  return result;
}

// The taps of a window. Saturates.
int64_t window_elements(const std::vector<int64_t>& kernel);

}  // namespace tamp::ops
