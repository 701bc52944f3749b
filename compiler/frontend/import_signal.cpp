// Fourier transforms as products with a constant matrix, and the windows that go with them.
#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>

#include "compiler/frontend/importers.h"
#include "compiler/frontend/initializers.h"
#include "compiler/support/text.h"

namespace tamp::frontend {
namespace {

// What one transform makes of `taken` samples (the others of its `length` are zeros), each real or (re, im): `made` pairs (re, im).
struct Transform {
  int64_t taken = 0, length = 1, made = 0;
  bool is_complex = false, inverse = false;
};

TensorId numbers(NodeImport& n, const std::vector<double>& values, const Shape& shape) {
  return n.constant(ops::raw_value(DType::f64, shape, values));
}

// The matrix [taken * parts, made * 2] by which a row of samples is multiplied. exp(-i * 2 * pi * k * t / length) is taken at k * t mod
// length, which keeps its digits.
TensorId matrix_of(NodeImport& n, const Transform& of) {
  const int64_t parts = of.is_complex ? 2 : 1, columns = of.made * 2;
  n.charge(of.taken * parts * columns * static_cast<int64_t>(sizeof(double)));
  std::vector<double> matrix(static_cast<size_t>(of.taken * parts * columns));
  const double sign = of.inverse ? 1 : -1, scale = of.inverse ? 1 / static_cast<double>(of.length) : 1;
  for (int64_t t = 0; t < of.taken; ++t) {
    for (int64_t k = 0; k < of.made; ++k) {
      const double angle = 2 * std::numbers::pi * static_cast<double>(k * t % of.length) / static_cast<double>(of.length);
      const double re = scale * std::cos(angle), im = scale * sign * std::sin(angle);
      double* const row = &matrix[static_cast<size_t>(t * parts * columns + k * 2)];
      row[0] = re;
      row[1] = im;
      if (!of.is_complex) continue;
      row[columns] = -im;
      row[columns + 1] = re;
    }
  }
  return numbers(n, matrix, {of.taken * parts, columns});
}

// Rows [.., taken * parts] to [.., made * 2], in f64 or f32.
TensorId transformed(NodeImport& n, TensorId rows, const Transform& of) {
  const DType dtype = n.dtype(rows), wide = dtype == DType::f64 ? DType::f64 : DType::f32;
  const TensorId matrix = n.cast(matrix_of(n, of), wide);
  return n.cast(n.add(MatMul{}, {n.cast(rows, wide), matrix, TensorId()}), dtype);
}

// A count that must be known: one whole number from 1 to what fits.
int64_t count_of(NodeImport& n, size_t i, std::string_view name) {
  n.expect_constant(i, name);
  const TensorId id = n.in(i);
  n.expect_whole({id});
  if (element_count(n.shape(id)) != 1) throw n.bad("input {} ({}) has shape {}, expected one element", i, name, shape_text(n.shape(id)));
  const int64_t count = n.flat_ints(n.cast(id, DType::i64))[0];
  if (count < 1 || count > kMaxElements) throw n.bad("input {} ({}) is {}, expected at least 1", i, name, count);
  return count;
}

bool is_complex(NodeImport& n, const Shape& shape) {
  if (shape.size() < 2 || (shape.back() != 1 && shape.back() != 2))
    throw n.bad("input 0 has shape {}, expected a last dimension of 1 (real) or 2 (complex) behind the samples", shape_text(shape));
  return shape.back() == 2;
}

// coefficients[0] - coefficients[1] * cos(x) + coefficients[2] * cos(2 * x), x from 0 to 2 * pi.
std::vector<double> window_of(int64_t size, bool periodic, const std::array<double, 3>& coefficients) {
  std::vector<double> window;
  const auto period = static_cast<double>(periodic ? size : std::max<int64_t>(size - 1, 1));
  for (int64_t i = 0; i < size; ++i) {
    const double x = 2 * std::numbers::pi * static_cast<double>(i) / period;
    window.push_back(coefficients[0] - coefficients[1] * std::cos(x) + coefficients[2] * std::cos(2 * x));
  }
  return window;
}

}  // namespace

// The axis is an attribute before version 20, then an operand.
void import_dft(NodeImport& n) {
  const bool as_input = n.version() >= 20;
  n.expect_counts(1, as_input ? 3 : 2);
  TensorId x = n.float_in(0);
  const int64_t rank = n.rank(x);
  Transform of;
  of.is_complex = is_complex(n, n.shape(x));
  of.inverse = n.attr_flag("inverse", false);
  const bool onesided = n.attr_flag("onesided", false);
  if (onesided && of.inverse) throw n.refuse("attributes 'inverse' and 'onesided' are both 1, supported: one of them");
  if (onesided && of.is_complex) throw n.bad("attribute 'onesided' is 1, and input 0 is complex, expected real samples");
  int64_t given = as_input ? -2 : n.attr_int("axis", 1);
  if (as_input && n.has(2)) {
    const Ints list = n.ints(2, "axis");
    if (list.size() != 1) throw n.bad("input 2 (axis) has {} values, expected one", list.size());
    given = list[0];
  }
  const int64_t axis = n.axis(given, rank, "axis");
  if (axis == rank - 1) throw n.bad("axis is the last one, which holds real and imaginary parts");
  const int64_t extent = n.shape(x)[static_cast<size_t>(axis)];
  of.length = n.has(1) ? count_of(n, 1, "dft_length") : extent;
  if (of.length < 1) throw n.bad("input 0 has no samples");
  of.taken = std::min(of.length, extent);
  of.made = onesided ? of.length / 2 + 1 : of.length;

  // The samples go behind all other dimensions, and what is made of them back to their place.
  Ints perm, back(static_cast<size_t>(rank));
  for (int64_t d = 0; d < rank; ++d) {
    if (d != axis && d != rank - 1) perm.push_back(d);
  }
  perm.push_back(axis);
  perm.push_back(rank - 1);
  for (size_t d = 0; d < perm.size(); ++d) back[static_cast<size_t>(perm[d])] = static_cast<int64_t>(d);
  const bool moves = axis != rank - 2;
  x = n.slice_axis(x, axis, 0, of.taken);
  if (moves) x = n.add(Transpose{perm}, {x});
  Shape outer = n.shape(x);
  outer.resize(outer.size() - 2);
  Shape made = outer;
  made.insert(made.end(), {of.made, 2});
  const TensorId rows = n.reshape(x, {element_count(outer), of.taken * (of.is_complex ? 2 : 1)});
  const TensorId y = n.reshape(transformed(n, rows, of), made);
  n.result(0, moves ? n.add(Transpose{back}, {y}) : y);
}

// Frames of the signal, each times the window and transformed.
void import_stft(NodeImport& n) {
  n.expect_counts(2, 4);
  const TensorId x = n.float_in(0);
  const Shape shape = n.shape(x);
  if (shape.size() != 3) throw n.bad("input 0 (signal) has shape {}, expected [batch,samples,1 or 2]", shape_text(shape));
  Transform of;
  of.is_complex = is_complex(n, shape);
  const int64_t step = count_of(n, 1, "frame_step"), parts = of.is_complex ? 2 : 1;
  if (!n.has(2) && !n.has(3)) throw n.bad("neither input 2 (window) nor input 3 (frame_length) is given");
  if (n.has(2)) n.expect_same_dtype({x, n.in(2)});
  of.length = n.has(3) ? count_of(n, 3, "frame_length") : n.shape(n.in(2)).at(0);
  of.taken = of.length;
  if (n.has(2) && n.shape(n.in(2)) != Shape{of.length})
    throw n.bad("input 2 (window) has shape {}, expected [{}]", shape_text(n.shape(n.in(2))), of.length);
  if (of.length < 1 || of.length > shape[1]) throw n.bad("a frame has {} samples, the signal {}", of.length, shape[1]);
  if (n.attr_flag("onesided", true) && of.is_complex)
    throw n.bad("attribute 'onesided' is 1, and the signal is complex, expected a real one");
  of.made = n.attr_flag("onesided", true) ? of.length / 2 + 1 : of.length;
  const int64_t frames = (shape[1] - of.length) / step + 1;
  n.charge(frames * of.length * static_cast<int64_t>(sizeof(int64_t)));
  Ints places;
  for (int64_t f = 0; f < frames; ++f) {
    for (int64_t t = 0; t < of.length; ++t) places.push_back(f * step + t);
  }
  TensorId framed = n.add(Gather{1}, {x, n.constant_i64(places, {frames, of.length})});
  if (n.has(2)) framed = n.elementwise(ElementwiseOp::mul, {framed, n.reshape(n.in(2), {of.length, 1})});
  const TensorId rows = n.reshape(framed, {shape[0] * frames, of.length * parts});
  n.result(0, n.reshape(transformed(n, rows, of), {shape[0], frames, of.made, 2}));
}

void import_window(NodeImport& n, const std::array<double, 3>& coefficients) {
  n.expect_counts(1, 1);
  const int64_t size = count_of(n, 0, "size");
  const bool periodic = n.attr_flag("periodic", true);
  const std::optional<DType> dtype = dtype_of_onnx(static_cast<int>(std::clamp<int64_t>(n.attr_int("output_datatype", 1), 0, 999)));
  if (!dtype) throw n.refuse("attribute 'output_datatype' is {}, which is not supported", n.attr_int("output_datatype", 1));
  n.charge(size * static_cast<int64_t>(sizeof(double)));
  n.result(0, n.cast(numbers(n, window_of(size, periodic, coefficients), {size}), *dtype));
}

}  // namespace tamp::frontend
