// Conv: per batch and group, the input patches become the columns of a matrix ("im2col") that the weights multiply.
// The columns are made for a limited number of output pixels at a time; a 1x1 kernel needs none, the input is the matrix.
#include <algorithm>

#include "compiler/ops/call.h"
#include "compiler/ops/gemm.h"
#include "compiler/ops/window.h"

namespace tamp::ops {
namespace {

constexpr int64_t kColumnElements = int64_t{1} << 21;

bool is_pointwise(const Window& w) {
  const auto plain = [](const WindowAxis& axis) {
    return axis.kernel == 1 && axis.stride == 1 && axis.pad_begin == 0 && axis.pad_end == 0;
  };
  return plain(w.y) && plain(w.x);
}

// One row of the column matrix: what tap (ky, kx) of a channel sees at the output pixels [begin, end).
template <class T>
void fill_row(const Window& w, const T* channel, int64_t ky, int64_t kx, int64_t begin, int64_t end, T* row) {
  int64_t oy = begin / w.x.out, ox = begin % w.x.out;
  for (int64_t pixel = begin; pixel < end; ++oy, ox = 0) {
    const int64_t count = std::min(w.x.out - ox, end - pixel);
    const int64_t iy = w.y.start(oy) + ky * w.y.dilation;
    const int64_t ix = w.x.start(ox) + kx * w.x.dilation;
    const bool inside = iy >= 0 && iy < w.y.in;
    const T* line = inside ? channel + iy * w.x.in : nullptr;
    for (int64_t i = 0; i < count; ++i) {
      const int64_t x = ix + i * w.x.stride;
      *row++ = inside && x >= 0 && x < w.x.in ? line[x] : T(0);
    }
    pixel += count;
  }
}

template <class T>
void fill_columns(const Window& w, const T* input, int64_t channels, int64_t begin, int64_t end, std::vector<T>& columns) {
  T* row = columns.data();
  for (int64_t c = 0; c < channels; ++c, input += w.y.in * w.x.in) {
    for (int64_t ky = 0; ky < w.y.kernel; ++ky) {
      for (int64_t kx = 0; kx < w.x.kernel; ++kx, row += end - begin) fill_row(w, input, ky, kx, begin, end, row);
    }
  }
}

// y[m][pixels] = weights[m][channels * taps] * columns, for one group of one image.
template <class T>
void convolve_group(const Window& w, const T* input, int64_t channels, const T* weights, int64_t m, T* y) {
  const int64_t k = channels * w.y.kernel * w.x.kernel;
  const int64_t pixels = w.y.out * w.x.out;
  const Matrix<const T> left{weights, m, k, k, false};
  if (is_pointwise(w)) {
    multiply(left, Matrix<const T>{input, k, pixels, pixels, false}, Matrix<T>{y, m, pixels, pixels});
    return;
  }
  const int64_t step = std::max<int64_t>(1, kColumnElements / std::max<int64_t>(1, k));
  std::vector<T> columns(static_cast<size_t>(k * std::min(step, pixels)));
  for (int64_t begin = 0; begin < pixels; begin += step) {
    const int64_t end = std::min(begin + step, pixels);
    fill_columns(w, input, channels, begin, end, columns);
    multiply(left, Matrix<const T>{columns.data(), k, end - begin, end - begin, false}, Matrix<T>{y + begin, m, end - begin, pixels});
  }
}

template <class T>
Value convolve(const Call& call, const Conv& attrs) {
  const Shape &x = call.input(0).shape, &weights = call.input(1).shape, &y = call.output().shape;
  const Window w = window_of(attrs, x, y);
  const int64_t channels = weights[1], m = weights[0] / attrs.group;
  const int64_t pixels = w.y.out * w.x.out, in_pixels = w.y.in * w.x.in;
  const Numbers<T> input(call.input(0)), kernel(call.input(1));
  std::vector<T> result(static_cast<size_t>(element_count(y)));
  for (int64_t n = 0; n < x[0]; ++n) {
    for (int64_t g = 0; g < attrs.group; ++g) {
      const T* group_input = input.data() + (n * attrs.group + g) * channels * in_pixels;
      const T* group_kernel = kernel.data() + g * m * channels * w.y.kernel * w.x.kernel;
      convolve_group(w, group_input, channels, group_kernel, m, result.data() + (n * attrs.group + g) * m * pixels);
    }
  }
  if (call.has_input(2)) {
    const Numbers<T> bias(call.input(2));
    for (int64_t i = 0; i < x[0] * weights[0]; ++i) {
      for (int64_t p = 0; p < pixels; ++p) result[static_cast<size_t>(i * pixels + p)] += bias[i % weights[0]];
    }
  }
  return output_from(call, result);
}

}  // namespace

Value conv(const Call& call, const Conv& attrs) {
  const DType dtype = call.output().dtype;
  if (!is_float(dtype)) throw unsupported(where(call.rop) + ": element type " + name_of(dtype) + ", supported: floats");
  const Shape& weights = call.input(1).shape;
  const int64_t taps = product(weights, 1, static_cast<int64_t>(weights.size()));
  if (in_double(dtype, element_count(call.output().shape) * taps)) return convolve<double>(call, attrs);
  return convolve<float>(call, attrs);
}

}  // namespace tamp::ops
