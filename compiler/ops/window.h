// The sliding window of Conv and Pool in two dimensions. With one spatial dimension the height is 1.
#pragma once

#include <cstdint>
#include <vector>

#include "compiler/ir/tensor.h"

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
  if (attrs.kernel.size() == 1) return Window{WindowAxis{}, window_axis(attrs, in, out, 0)};
  return Window{window_axis(attrs, in, out, 0), window_axis(attrs, in, out, 1)};
}

}  // namespace tamp::ops
