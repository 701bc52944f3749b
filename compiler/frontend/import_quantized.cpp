// Quantised tensors: integers q that stand for (q - zero point) * scale. Everything becomes other operators: differences and products of
// i32, which are exact, and f32 arithmetic where ONNX has floats.
#include "compiler/frontend/importers.h"
#include "compiler/frontend/initializers.h"

namespace tamp::frontend {
namespace {

bool is_small_integer(DType dtype) { return is_integer(dtype) && bytes_of(dtype) <= 2; }

// A scale or zero point for x: one element, or one per element of `axis`.
TensorId along_axis(NodeImport& n, TensorId parameter, const Shape& x, int64_t axis, const char* what) {
  const Shape shape = n.shape(parameter);
  if (element_count(shape) == 1) return n.reshape(parameter, {});
  const int64_t at = n.axis(axis, static_cast<int64_t>(x.size()), "attribute 'axis'");
  const int64_t extent = x[static_cast<size_t>(at)];
  if (shape.size() != 1 || shape[0] != extent)
    throw n.bad("{} has {} elements in {} dimensions, expected one, or one for each of {}", what, element_count(shape), shape.size(),
                extent);
  Shape column(x.size() - static_cast<size_t>(at), 1);
  column[0] = extent;
  return n.reshape(parameter, column);
}

int64_t read_axis(NodeImport& n) {
  if (n.version() >= 21) {
    const int64_t block = n.attr_int("block_size", 0);
    if (block != 0) throw n.refuse("attribute 'block_size' is {}, supported: 0, a scale for a tensor or an axis", block);
  }
  return n.version() >= 13 ? n.attr_int("axis", 1) : 0;
}

std::optional<DType> read_output_type(NodeImport& n, int since) {
  const int64_t type = n.version() >= since ? n.attr_int("output_dtype", 0) : 0;
  if (type == 0) return std::nullopt;
  const std::optional<DType> dtype = dtype_of_onnx(static_cast<int>(type));
  if (!dtype) throw n.refuse("attribute 'output_dtype' is {}, which is not supported", onnx_type_name(static_cast<int>(type)));
  return dtype;
}

float lowest_of(DType dtype) { return dtype == DType::i8 ? -128.0F : dtype == DType::i16 ? -32768.0F : 0.0F; }
float highest_of(DType dtype) {
  if (dtype == DType::i8) return 127.0F;
  if (dtype == DType::u8) return 255.0F;
  return dtype == DType::i16 ? 32767.0F : 65535.0F;
}

// The f32 number x as an integer of a small type: to the nearest, ties to even, plus the zero point, at most what the type holds.
TensorId quantized(NodeImport& n, TensorId x, TensorId zero_point, DType to) {
  TensorId whole = n.elementwise(ElementwiseOp::round, {x});
  if (zero_point.valid()) whole = n.elementwise(ElementwiseOp::add, {whole, n.cast(zero_point, DType::f32)});
  return n.cast(n.elementwise(ElementwiseOp::clip, {whole}, lowest_of(to), highest_of(to)), to);
}

// q - zero point as i32.
TensorId shifted(NodeImport& n, TensorId q, TensorId zero_point) {
  const TensorId wide = n.cast(q, DType::i32);
  return zero_point.valid() ? n.elementwise(ElementwiseOp::sub, {wide, n.cast(zero_point, DType::i32)}) : wide;
}

void expect_eight_bits(NodeImport& n, TensorId q) {
  const DType dtype = n.dtype(q);
  if (dtype != DType::i8 && dtype != DType::u8) throw n.bad("an operand is {}, expected i8 or u8", name_of(dtype));
}

// The zero point of a left operand is one number or one per row, of a right one one number or one per column.
TensorId of_rows(NodeImport& n, TensorId parameter) {
  const Shape shape = n.shape(parameter);
  if (element_count(shape) == 1) return n.reshape(parameter, {});
  return shape.size() == 1 ? n.reshape(parameter, {shape[0], 1}) : parameter;
}
TensorId of_columns(NodeImport& n, TensorId parameter) {
  return element_count(n.shape(parameter)) == 1 ? n.reshape(parameter, {}) : parameter;
}

// The zero point or scale of a convolution's weights: one number, or one per output channel, shaped as the first of `rank` dimensions.
TensorId of_channels(NodeImport& n, TensorId parameter, int64_t rank) {
  const Shape shape = n.shape(parameter);
  if (element_count(shape) == 1) return n.reshape(parameter, {});
  Shape column(static_cast<size_t>(rank), 1);
  column[0] = element_count(shape);
  return n.reshape(parameter, column);
}

}  // namespace

// y = round(x / scale) + zero point, saturated.
void import_quantize_linear(NodeImport& n) {
  n.expect_counts(2, 3);
  const TensorId x = n.in(0);
  const Shape shape = n.shape(x);
  const int64_t axis = read_axis(n);
  if (n.version() >= 19) n.attr_flag("saturate", true);  // of the 8-bit floats only
  if (n.version() >= 23 && n.attr_int("precision", 0) > 1) throw n.refuse("attribute 'precision' is not FLOAT, which is what is supported");
  const std::optional<DType> given = read_output_type(n, 21);
  const DType to = n.has(2) ? n.dtype(n.in(2)) : given.value_or(DType::u8);
  if (given && *given != to) throw n.bad("attribute 'output_dtype' is not the type of the zero point");
  if (!is_small_integer(to)) throw n.refuse("quantises to {}, supported: integers of 8 and 16 bits", name_of(to));
  const TensorId scale = along_axis(n, n.cast(n.in(1), DType::f32), shape, axis, "y_scale");
  const TensorId zero_point = n.has(2) ? along_axis(n, n.in(2), shape, axis, "y_zero_point") : TensorId();
  n.result(0, quantized(n, n.elementwise(ElementwiseOp::div, {n.cast(x, DType::f32), scale}), zero_point, to));
}

// y = (x - zero point) * scale, of the scale's type.
void import_dequantize_linear(NodeImport& n) {
  n.expect_counts(2, 3);
  const TensorId x = n.in(0);
  const Shape shape = n.shape(x);
  const int64_t axis = read_axis(n);
  const DType to = read_output_type(n, 23).value_or(n.dtype(n.in(1)));
  if (!is_small_integer(n.dtype(x)) && n.dtype(x) != DType::i32)
    throw n.refuse("x is {}, supported: integers of 8 and 16 bits, i32", name_of(n.dtype(x)));
  const TensorId scale = along_axis(n, n.cast(n.in(1), DType::f32), shape, axis, "x_scale");
  TensorId whole = x;
  if (n.has(2)) {
    n.expect_same_dtype({x, n.in(2)});
    whole = shifted(n, x, along_axis(n, n.in(2), shape, axis, "x_zero_point"));
  }
  n.result(0, n.cast(n.elementwise(ElementwiseOp::mul, {n.cast(whole, DType::f32), scale}), to));
}

// Quantises x to u8. Scale and zero point follow from the range of x's elements, extended to contain 0.
void import_dynamic_quantize_linear(NodeImport& n) {
  n.expect_counts(1, 1, 3);
  const TensorId x = n.float_in(0);
  Reduce all{ReduceKind::max, range(0, n.rank(x)), /*keepdims=*/false};
  const TensorId zero = n.constant_f32(0);
  const TensorId most = n.elementwise(ElementwiseOp::max, {n.add(all, {x}), zero});
  all.kind = ReduceKind::min;
  const TensorId least = n.elementwise(ElementwiseOp::min, {n.add(all, {x}), zero});
  const TensorId range = n.elementwise(ElementwiseOp::sub, {most, least});
  const TensorId step = n.elementwise(ElementwiseOp::div, {range, n.constant_f32(255)});
  const TensorId is_flat = n.elementwise(ElementwiseOp::equal, {range, zero});
  const TensorId scale = n.elementwise(ElementwiseOp::where, {is_flat, n.constant_f32(1), step});
  const TensorId below = n.elementwise(ElementwiseOp::div, {n.elementwise(ElementwiseOp::neg, {least}), scale});
  const TensorId zero_point = quantized(n, below, TensorId(), DType::u8);
  n.result(0, quantized(n, n.elementwise(ElementwiseOp::div, {x, scale}), zero_point, DType::u8));
  n.result(1, scale);
  n.result(2, zero_point);
}

// i32 products of what 8-bit integers stand for, without scales.
void import_matmul_integer(NodeImport& n) {
  n.expect_counts(2, 4);
  expect_eight_bits(n, n.in(0));
  expect_eight_bits(n, n.in(1));
  const TensorId a = shifted(n, n.in(0), n.has(2) ? of_rows(n, n.in(2)) : TensorId());
  const TensorId b = shifted(n, n.in(1), n.has(3) ? of_columns(n, n.in(3)) : TensorId());
  n.result(0, matrix_product(n, a, b));
}

// Inputs a, its scale, its zero point, the same of b, and the scale and zero point of y.
void import_qlinear_matmul(NodeImport& n) {
  n.expect_counts(8, 8);
  expect_eight_bits(n, n.in(0));
  expect_eight_bits(n, n.in(3));
  const TensorId a = shifted(n, n.in(0), of_rows(n, n.in(2))), b = shifted(n, n.in(3), of_columns(n, n.in(5)));
  const TensorId product = n.cast(matrix_product(n, a, b), DType::f32);
  const auto scale_of = [&](TensorId parameter) { return n.cast(parameter, DType::f32); };
  const TensorId both = n.elementwise(ElementwiseOp::mul, {scale_of(of_rows(n, n.in(1))), scale_of(of_columns(n, n.in(4)))});
  for (const size_t i : {size_t{6}, size_t{7}}) {
    if (element_count(n.shape(n.in(i))) != 1) throw n.refuse("y has a scale or zero point per row, supported: one");
  }
  const TensorId scale = n.elementwise(ElementwiseOp::div, {both, scale_of(n.reshape(n.in(6), {}))});
  const TensorId zero_point = n.reshape(n.in(7), {});
  n.result(0, quantized(n, n.elementwise(ElementwiseOp::mul, {product, scale}), zero_point, n.dtype(zero_point)));
}

// Pads are zero points, which stand for 0.
void import_conv_integer(NodeImport& n) {
  n.expect_counts(2, 4);
  expect_eight_bits(n, n.in(0));
  expect_eight_bits(n, n.in(1));
  const TensorId x = shifted(n, n.in(0), n.has(2) ? n.reshape(n.in(2), {}) : TensorId());
  const TensorId w = shifted(n, n.in(1), n.has(3) ? of_channels(n, n.in(3), n.rank(n.in(1))) : TensorId());
  n.result(0, convolution(n, x, w, TensorId()));
}

// Inputs x, its scale, its zero point, the same of w, the scale and zero point of y, and an i32 bias.
void import_qlinear_conv(NodeImport& n) {
  n.expect_counts(8, 9);
  expect_eight_bits(n, n.in(0));
  expect_eight_bits(n, n.in(3));
  const int64_t rank = n.rank(n.in(3));
  const TensorId bias = n.optional_in(8);
  if (bias.valid() && n.dtype(bias) != DType::i32) throw n.bad("B is {}, expected i32", name_of(n.dtype(bias)));
  const TensorId x = shifted(n, n.in(0), n.reshape(n.in(2), {})), w = shifted(n, n.in(3), of_channels(n, n.in(5), rank));
  const TensorId product = n.cast(convolution(n, x, w, bias), DType::f32);
  const TensorId both = n.elementwise(ElementwiseOp::mul, {n.reshape(n.in(1), {}), of_channels(n, n.in(4), rank - 1)});
  const TensorId scale = n.elementwise(ElementwiseOp::div, {both, n.reshape(n.in(6), {})}), zero_point = n.reshape(n.in(7), {});
  n.result(0, quantized(n, n.elementwise(ElementwiseOp::mul, {product, scale}), zero_point, n.dtype(zero_point)));
}

}  // namespace tamp::frontend
