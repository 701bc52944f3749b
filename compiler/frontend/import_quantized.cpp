// Quantised tensors: integers q that stand for (q - zero point) * scale. Everything becomes other operators: differences and products of
// i32, which are exact, and f32 arithmetic where ONNX has floats.
#include <algorithm>

#include "compiler/frontend/quantized.h"
#include "compiler/support/text.h"

namespace tamp::frontend {

bool is_small_integer(DType dtype) { return is_integer(dtype) && bytes_of(dtype) <= 2; }

namespace {

size_t axis_of(NodeImport& n, const Shape& x, const Grid& grid) {
  return static_cast<size_t>(n.axis(grid.axis, static_cast<int64_t>(x.size()), "attribute 'axis'"));
}

Shape blocks_of(const Shape& x, size_t axis, int64_t block) {
  Shape blocks = x;
  blocks[axis] = x[axis] / block + (x[axis] % block != 0 ? 1 : 0);
  return blocks;
}

// One number per block: each of them repeated for the block's elements.
TensorId over_blocks(NodeImport& n, TensorId parameter, const Shape& x, const Grid& grid) {
  const size_t axis = axis_of(n, x, grid);
  Shape wanted = blocks_of(x, axis, grid.block), apart = wanted;
  const int64_t blocks = wanted[axis];
  apart.insert(apart.begin() + static_cast<std::ptrdiff_t>(axis) + 1, 1);
  const TensorId column = n.reshape(parameter, apart);
  apart[axis + 1] = std::min(grid.block, x[axis]);
  wanted[axis] = blocks * apart[axis + 1];
  return n.slice_axis(n.reshape(n.expand(column, apart), wanted), static_cast<int64_t>(axis), 0, x[axis]);
}

Grid read_grid(NodeImport& n) {
  const int64_t block = n.version() >= 21 ? n.attr_int("block_size", 0) : 0;
  if (block < 0) throw n.bad("attribute 'block_size' is {}, expected 0 or more", block);
  return {n.version() >= 13 ? n.attr_int("axis", 1) : 0, block};
}

std::optional<QuantisedType> read_output_type(NodeImport& n, int since) {
  const int64_t type = n.version() >= since ? n.attr_int("output_dtype", 0) : 0;
  if (type == 0) return std::nullopt;
  const NarrowType narrow = narrow_of_onnx(static_cast<int>(type));
  if (narrow != NarrowType::none) return QuantisedType{held_as(narrow), narrow};
  const std::optional<DType> dtype = dtype_of_onnx(static_cast<int>(type));
  if (!dtype) throw n.refuse("attribute 'output_dtype' is {}, which is not supported", onnx_type_name(static_cast<int>(type)));
  return QuantisedType{*dtype, NarrowType::none};
}

std::string text_of(const QuantisedType& type) {
  return type.narrow == NarrowType::none ? name_of(type.dtype) : onnx_type_name(static_cast<int>(type.narrow));
}

float lowest_of(const QuantisedType& type) {
  if (type.narrow != NarrowType::none) return lowest_of(type.narrow);
  return type.dtype == DType::i8 ? -128.0F : type.dtype == DType::i16 ? -32768.0F : 0.0F;
}
float highest_of(const QuantisedType& type) {
  if (type.narrow != NarrowType::none) return highest_of(type.narrow);
  if (type.dtype == DType::i8) return 127.0F;
  if (type.dtype == DType::u8) return 255.0F;
  return type.dtype == DType::i16 ? 32767.0F : 65535.0F;
}

}  // namespace

void expect_grid(NodeImport& n, TensorId parameter, const Shape& x, const Grid& grid, const char* what) {
  const Shape shape = n.shape(parameter);
  if (grid.block == 0) {
    if (element_count(shape) == 1) return;
    const int64_t extent = x[axis_of(n, x, grid)];
    if (shape.size() == 1 && shape[0] == extent) return;
    throw n.bad("{} has {} elements in {} dimensions, expected one, or one for each of {}", what, element_count(shape), shape.size(),
                extent);
  }
  const size_t axis = axis_of(n, x, grid);
  const Shape wanted = blocks_of(x, axis, grid.block);
  if (shape == wanted) return;
  throw n.bad("{} has shape {}, expected {}: one for each {} elements (block_size) of dimension {} of {}", what, shape_text(shape),
              shape_text(wanted), grid.block, axis, shape_text(x));
}

TensorId along_grid(NodeImport& n, TensorId parameter, const Shape& x, const Grid& grid, const char* what) {
  expect_grid(n, parameter, x, grid, what);
  if (grid.block > 0) return over_blocks(n, parameter, x, grid);
  if (element_count(n.shape(parameter)) == 1) return n.reshape(parameter, {});
  const size_t axis = axis_of(n, x, grid);
  Shape column(x.size() - axis, 1);
  column[0] = x[axis];
  return n.reshape(parameter, column);
}

TensorId quantized(NodeImport& n, TensorId x, TensorId zero_point, QuantisedType to, bool saturate) {
  if (is_float(to.narrow)) {
    if (zero_point.valid()) x = n.elementwise(ElementwiseOp::add, {x, n.cast(zero_point, DType::f32)});
    return n.of_narrow(narrow_float(n, x, to.narrow, saturate), to.narrow);
  }
  TensorId whole = n.elementwise(ElementwiseOp::round, {x});
  if (zero_point.valid()) whole = n.elementwise(ElementwiseOp::add, {whole, n.cast(zero_point, DType::f32)});
  return n.of_narrow(n.cast(n.elementwise(ElementwiseOp::clip, {whole}, lowest_of(to), highest_of(to)), to.dtype), to.narrow);
}

TensorId shifted(NodeImport& n, TensorId q, TensorId zero_point) {
  if (const TensorId known = shifted_constant(n, q, zero_point); known.valid()) return known;
  const TensorId wide = n.cast(q, DType::i32);
  return zero_point.valid() ? n.elementwise(ElementwiseOp::sub, {wide, n.cast(zero_point, DType::i32)}) : wide;
}

TensorId dequantized(NodeImport& n, TensorId q, TensorId scale, TensorId zero_point) {
  const bool is_whole = is_integer(n.dtype(q));
  TensorId difference = q;
  if (zero_point.valid()) difference = is_whole ? shifted(n, q, zero_point) : n.elementwise(ElementwiseOp::sub, {q, zero_point});
  return n.elementwise(ElementwiseOp::mul, {n.cast(difference, DType::f32), scale});
}

void expect_eight_bits(NodeImport& n, TensorId q) {
  const DType dtype = n.dtype(q);
  if (dtype != DType::i8 && dtype != DType::u8) throw n.bad("an operand is {}, expected i8 or u8", name_of(dtype));
}

TensorId of_rows(NodeImport& n, TensorId parameter) {
  const Shape shape = n.shape(parameter);
  if (element_count(shape) == 1) return n.reshape(parameter, {});
  return shape.size() == 1 ? n.reshape(parameter, {shape[0], 1}) : parameter;
}
TensorId of_columns(NodeImport& n, TensorId parameter) {
  return element_count(n.shape(parameter)) == 1 ? n.reshape(parameter, {}) : parameter;
}

namespace {

// The zero point or scale of a convolution's weights: one number, or one per output channel, shaped as the first of `rank` dimensions.
TensorId of_channels(NodeImport& n, TensorId parameter, int64_t rank) {
  const Shape shape = n.shape(parameter);
  if (element_count(shape) == 1) return n.reshape(parameter, {});
  Shape column(static_cast<size_t>(rank), 1);
  column[0] = element_count(shape);
  return n.reshape(parameter, column);
}

}  // namespace

namespace {

void quantize_linear(NodeImport& n, const Grid& grid, const std::optional<QuantisedType>& given, bool saturate) {
  const TensorId x = n.in(0);
  const Shape shape = n.shape(x);
  const QuantisedType to = n.has(2) ? QuantisedType{n.dtype(n.in(2)), n.narrow(n.in(2))} : given.value_or(QuantisedType{});
  if (given && *given != to) throw n.bad("attribute 'output_dtype' is {}, the zero point is {}", text_of(*given), text_of(to));
  if (to.narrow == NarrowType::e8m0 || (to.narrow == NarrowType::none && !is_small_integer(to.dtype)))
    throw n.refuse("quantises to {}, supported: integers of 2 to 16 bits, floats of 4 and 8 bits", text_of(to));
  for (const size_t i : {size_t{0}, size_t{1}}) {
    if (n.narrow(n.in(i)) != NarrowType::none && n.narrow(n.in(i)) != NarrowType::e8m0)
      throw n.bad("input {} is {}, expected a float or i32", i, n.type_text(n.in(i)));
  }
  const TensorId scale = along_grid(n, n.cast(n.in(1), DType::f32), shape, grid, "y_scale");
  const TensorId zero_point = n.has(2) ? along_grid(n, n.in(2), shape, grid, "y_zero_point") : TensorId();
  n.result(0, quantized(n, n.elementwise(ElementwiseOp::div, {n.cast(x, DType::f32), scale}), zero_point, to, saturate));
}

void dequantize_linear(NodeImport& n, const Grid& grid, const std::optional<QuantisedType>& given) {
  const TensorId x = n.in(0);
  const Shape shape = n.shape(x);
  if (!given && n.narrow(n.in(1)) != NarrowType::none)
    throw n.bad("x_scale is {}, and there is no attribute 'output_dtype', expected one", n.type_text(n.in(1)));
  const QuantisedType to = given.value_or(QuantisedType{n.dtype(n.in(1)), NarrowType::none});
  if (to.narrow != NarrowType::none || !is_float(to.dtype)) throw n.bad("the result is {}, expected a float", text_of(to));
  if (n.narrow(x) == NarrowType::none && !is_small_integer(n.dtype(x)) && n.dtype(x) != DType::i32)
    throw n.refuse("x is {}, supported: integers of 2 to 16 bits, i32, floats of 4 and 8 bits", n.type_text(x));
  expect_grid(n, n.in(1), shape, grid, "x_scale");
  if (n.has(2)) {
    n.expect_same_dtype({x, n.in(2)});
    expect_grid(n, n.in(2), shape, grid, "x_zero_point");
  }
  const TensorId known = dequantized_constant(n, x, n.in(1), n.optional_in(2), grid, to.dtype);
  if (known.valid()) return n.result(0, known);
  const TensorId scale = along_grid(n, n.cast(n.in(1), DType::f32), shape, grid, "x_scale");
  const TensorId zero_point = n.has(2) ? along_grid(n, n.in(2), shape, grid, "x_zero_point") : TensorId();
  n.result(0, n.cast(dequantized(n, x, scale, zero_point), to.dtype));
}

}  // namespace

// y = round(x / scale) + zero point, saturated.
void import_quantize_linear(NodeImport& n) {
  n.expect_counts(2, 3);
  const Grid grid = read_grid(n);
  const bool saturate = n.version() < 19 || n.attr_flag("saturate", true);  // of the narrow floats only
  if (n.version() >= 23 && n.attr_int("precision", 0) > 1) throw n.refuse("attribute 'precision' is not FLOAT, which is what is supported");
  quantize_linear(n, grid, read_output_type(n, 21), saturate);
}

// y = (x - zero point) * scale, of the scale's type.
void import_dequantize_linear(NodeImport& n) {
  n.expect_counts(2, 3);
  dequantize_linear(n, read_grid(n), read_output_type(n, 23));
}

// The same of com.microsoft, which had narrow integers and 16 bits before ONNX.
void import_ms_quantize_linear(NodeImport& n) {
  n.expect_counts(2, 3);
  quantize_linear(n, {n.attr_int("axis", 1), n.attr_int("block_size", 0)}, std::nullopt, n.attr_flag("saturate", true));
}
void import_ms_dequantize_linear(NodeImport& n) {
  n.expect_counts(2, 3);
  dequantize_linear(n, {n.attr_int("axis", 1), n.attr_int("block_size", 0)}, std::nullopt);
}

// Scale and zero point follow from the range of x's elements, extended to contain 0.
DynamicallyQuantized dynamically_quantized(NodeImport& n, TensorId x) {
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
  const TensorId zero_point = quantized(n, below, TensorId(), {DType::u8});
  return {quantized(n, n.elementwise(ElementwiseOp::div, {x, scale}), zero_point, {DType::u8}), scale, zero_point};
}

void import_dynamic_quantize_linear(NodeImport& n) {
  n.expect_counts(1, 1, 3);
  const DynamicallyQuantized made = dynamically_quantized(n, n.float_in(0));
  n.result(0, made.q);
  n.result(1, made.scale);
  n.result(2, made.zero_point);
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
  n.result(0, quantized(n, n.elementwise(ElementwiseOp::mul, {product, scale}), zero_point, {n.dtype(zero_point)}));
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
  n.result(0, quantized(n, n.elementwise(ElementwiseOp::mul, {product, scale}), zero_point, {n.dtype(zero_point)}));
}

}  // namespace tamp::frontend
