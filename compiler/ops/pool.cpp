// Max and average pooling. Computed in double, which holds the 8-bit integers that MaxPool also takes.
#include <algorithm>
#include <limits>

#include "compiler/ops/functions.h"
#include "compiler/ops/window.h"

namespace tamp::ops {
namespace {

// The taps [first, last) of a window that starts at `start` and lie inside [low, high).
struct Taps {
  int64_t first = 0, last = 0;
};

Taps taps_inside(const WindowAxis& axis, int64_t start, int64_t low, int64_t high) {
  const auto ceil_div = [](int64_t a, int64_t b) { return a <= 0 ? 0 : (a + b - 1) / b; };
  const int64_t first = std::min(axis.kernel, ceil_div(low - start, axis.dilation));
  const int64_t last = std::min(axis.kernel, ceil_div(high - start, axis.dilation));
  return Taps{first, std::max(first, last)};
}

Taps input_taps(const WindowAxis& axis, int64_t o) { return taps_inside(axis, axis.start(o), 0, axis.in); }
int64_t padded_taps(const WindowAxis& axis, int64_t o) {
  const Taps taps = taps_inside(axis, axis.start(o), -axis.pad_begin, axis.in + axis.pad_end);
  return taps.last - taps.first;
}

double pool_at(const Pool& attrs, const Window& w, const double* image, int64_t oy, int64_t ox) {
  const Taps ys = input_taps(w.y, oy), xs = input_taps(w.x, ox);
  double largest = -std::numeric_limits<double>::infinity();
  double sum = 0;
  for (int64_t ky = ys.first; ky < ys.last; ++ky) {
    const double* line = image + (w.y.start(oy) + ky * w.y.dilation) * w.x.in + w.x.start(ox);
    for (int64_t kx = xs.first; kx < xs.last; ++kx) {
      const double value = line[kx * w.x.dilation];
      largest = max_of(largest, value);
      sum += value;
    }
  }
  if (attrs.kind == PoolKind::max) return largest;
  const int64_t inside = (ys.last - ys.first) * (xs.last - xs.first);
  return sum / static_cast<double>(attrs.count_include_pad ? padded_taps(w.y, oy) * padded_taps(w.x, ox) : inside);
}

}  // namespace

TensorTypes infer(const Pool& op, const Given& given) {
  given.expect(1);
  expect_spatial(given, kMaxPooled, "pooling");
  return {{given.dtype(0), slid(op, given, given.shape(0)[1], op.ceil_mode)}};
}

std::vector<Value> evaluate(const Pool& op, const Call& call) {
  const Shape &x = call.input(0).shape, &y = call.output().shape;
  const Window w = window_of(op, x, y);
  const Numbers<double> input(call.input(0));
  std::vector<double> result;
  result.reserve(static_cast<size_t>(element_count(y)));
  for (int64_t image = 0; image < x[0] * x[1]; ++image) {
    const double* pixels = input.data() + image * w.y.in * w.x.in;
    for (int64_t oy = 0; oy < w.y.out; ++oy) {
      for (int64_t ox = 0; ox < w.x.out; ++ox) result.push_back(pool_at(op, w, pixels, oy, ox));
    }
  }
  return {output_from(call, result)};
}

Traits traits_of(const Pool&) { return {Layout::channels_last, InF32::all}; }

int64_t own_work(const Pool& op, const Given&, const TensorTypes& results) {
  return saturating_product({element_count(results[0].shape), kWorkOfRead, window_elements(op.kernel)});
}

}  // namespace tamp::ops
