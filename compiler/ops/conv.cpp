// Conv: per batch and group, the input patches become the columns of a matrix ("im2col") that the weights multiply.
// The columns are made for a limited number of output pixels at a time; a 1x1 kernel needs none, the input is the matrix.
// A prologue is computed first, for the whole input.
#include <algorithm>

#include "compiler/ops/gemm.h"
#include "compiler/ops/operator.h"
#include "compiler/ops/window.h"
#include "compiler/support/text.h"

namespace tamp::ops {
namespace {

constexpr int64_t kColumnElements = int64_t{1} << 21;

bool needs_no_columns(const Window& w) {
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
  if (needs_no_columns(w)) {
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

// A convolution without its bias. weights[M][C / group][taps].
template <class T>
std::vector<T> convolve(const Window& w, int64_t batch, int64_t group, const T* input, int64_t in_channels, const T* weights,
                        int64_t out_channels) {
  const int64_t channels = in_channels / group, m = out_channels / group;
  const int64_t pixels = w.y.out * w.x.out, in_pixels = w.y.in * w.x.in, taps = w.y.kernel * w.x.kernel;
  std::vector<T> y(static_cast<size_t>(batch * out_channels * pixels));
  for (int64_t n = 0; n < batch; ++n) {
    for (int64_t g = 0; g < group; ++g) {
      const T* group_input = input + (n * group + g) * channels * in_pixels;
      convolve_group(w, group_input, channels, weights + g * m * channels * taps, m, y.data() + (n * group + g) * m * pixels);
    }
  }
  return y;
}

template <class T>
void add_bias(const Call& call, size_t input, int64_t channels, std::vector<T>& y) {
  if (!call.has_input(input) || y.empty()) return;
  const Numbers<T> bias(call.input(input));
  const int64_t planes = call.output().shape[0] * channels;
  T* element = y.data();
  for (int64_t plane = 0; plane < planes; ++plane) {
    for (T* const end = element + static_cast<int64_t>(y.size()) / planes; element != end; ++element) *element += bias[plane % channels];
  }
}

template <class T>
void activate_all(const ActivationCall& activation, std::vector<T>& x) {
  if (activation.kind == Activation::none) return;
  for (T& element : x) element = static_cast<T>(activate(activation, static_cast<double>(element)));
}

// The Conv's input after its prologue (activation, depthwise convolution), if it has one.
template <class T>
std::vector<T> after_prologue(const Call& call, const Conv& attrs, const T* input) {
  const Shape& x = call.input(0).shape;
  std::vector<T> values(input, input + element_count(x));
  activate_all(attrs.input_activation, values);
  if (!attrs.depthwise) return values;
  const Numbers<T> weights(call.input(kDepthwiseWeights));
  const Window w = window_of(*attrs.depthwise, x, call.output().shape);  // the pointwise product leaves the extents alone
  values = convolve(w, x[0], x[1], values.data(), x[1], weights.data(), x[1]);
  add_bias(call, kDepthwiseBias, x[1], values);
  activate_all(attrs.depthwise->activation, values);
  return values;
}

template <class T>
Value conv_as(const Call& call, const Conv& attrs) {
  const Shape &weights = call.input(1).shape, &y = call.output().shape;
  Shape x = call.input(0).shape;
  const Numbers<T> input(call.input(0)), kernel(call.input(1));
  const T* multiplied = input.data();
  std::vector<T> prepared;
  if (has_prologue(attrs)) {
    prepared = after_prologue(call, attrs, input.data());
    multiplied = prepared.data();
  }
  if (attrs.depthwise) std::copy(y.begin() + 2, y.end(), x.begin() + 2);
  std::vector<T> result = convolve(window_of(attrs, x, y), x[0], attrs.group, multiplied, x[1], kernel.data(), weights[0]);
  add_bias(call, 2, weights[0], result);
  return output_from(call, result);
}

// The shape that the Conv's own product multiplies: X's, or that of the depthwise convolution of X.
Shape multiplied_shape(const Conv& op, const Given& given) {
  const Shape& x = given.shape(0);
  if (op.depthwise.has_value() != given.has(kDepthwiseWeights))
    throw bad_input("depthwise weights without a depthwise prologue, or none with one");
  if (!op.depthwise) {
    if (given.has(kDepthwiseBias)) throw bad_input("a depthwise bias without a depthwise prologue");
    return x;
  }
  if (!is_pointwise(op)) throw bad_input("a depthwise prologue of a Conv that is not pointwise");
  const Shape result = slid(*op.depthwise, given, x[1], /*ceil_mode=*/false);
  Shape weights{x[1], 1};
  weights.insert(weights.end(), op.depthwise->kernel.begin(), op.depthwise->kernel.end());
  if (given.shape(kDepthwiseWeights) != weights)
    throw bad_input("depthwise weights are {}, expected {}", shape_text(given.shape(kDepthwiseWeights)), shape_text(weights));
  if (given.has(kDepthwiseBias) && given.shape(kDepthwiseBias) != Shape{x[1]})
    throw bad_input("depthwise bias is {}", shape_text(given.shape(kDepthwiseBias)));
  return result;
}

}  // namespace

TensorTypes infer(const Conv& op, const Given& given) {
  given.expect(2, kDepthwiseBias + 1);
  expect_spatial(given, 3, "convolution");
  const Shape &x = given.shape(0), &w = given.shape(1);
  if (w.size() != x.size()) throw bad_input("W has shape {}, X has shape {}: ranks differ", shape_text(w), shape_text(x));
  if (!std::equal(op.kernel.begin(), op.kernel.end(), w.begin() + 2, w.end()))
    throw bad_input("attribute 'kernel_shape' is {}, W has shape {}", shape_text(op.kernel), shape_text(w));
  if (op.group < 1 || x[1] % op.group != 0 || w[0] % op.group != 0)
    throw bad_input("attribute 'group' is {}, it must divide the {} channels of X and the {} of W", op.group, x[1], w[0]);
  if (w[1] != x[1] / op.group) {
    throw bad_input("X has {} channels in {} groups, W has shape {}: expected {} channels per group", x[1], op.group, shape_text(w),
                    x[1] / op.group);
  }
  if (given.has(2) && given.shape(2) != Shape{w[0]}) throw bad_input("B has shape {}, expected [{}]", shape_text(given.shape(2)), w[0]);
  Shape result = multiplied_shape(op, given);  // a pointwise product leaves the extents alone
  if (!op.depthwise) result = slid(op, given, w[0], /*ceil_mode=*/false);
  result[1] = w[0];
  return {{given.dtype(0), result}};
}

std::vector<Value> evaluate(const Conv& op, const Call& call) {
  const DType dtype = call.output().dtype;
  if (!is_float(dtype)) return {conv_as<uint64_t>(call, op)};  // so that overflow wraps as in numpy
  const Shape& weights = call.input(1).shape;
  const int64_t taps = product(weights, 1, static_cast<int64_t>(weights.size()));
  if (in_double(dtype, element_count(call.output().shape) * taps)) return {conv_as<double>(call, op)};
  return {conv_as<float>(call, op)};
}

Traits traits_of(const Conv&) { return {Layout::channels_last, InF32::halves}; }  // plain products for the rest

int64_t own_work(const Conv& op, const Given& given, const TensorTypes& results) {
  return saturating_product({element_count(results[0].shape), window_elements(op.kernel), given.shape(1)[1]});
}

}  // namespace tamp::ops
