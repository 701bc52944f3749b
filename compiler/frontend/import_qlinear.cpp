// Operators of ONNX Runtime's quantiser (com.microsoft) that take quantised tensors and give such: what they do to the numbers that these
// stand for, in f32, between a dequantisation and a quantisation. Products are of integers.
#include <algorithm>

#include "compiler/frontend/quantized.h"
#include "compiler/support/text.h"

namespace tamp::frontend {
namespace {

// A scale or zero point of a whole tensor.
TensorId single(NodeImport& n, size_t i, const char* what) {
  if (!n.has(i) && std::string_view(what) != "scale") return {};
  const Shape shape = n.shape(n.in(i));
  if (element_count(shape) != 1) throw n.bad("input {}, a {}, has shape {}, expected one element", i, what, shape_text(shape));
  return n.reshape(n.in(i), {});
}

// The numbers of operand i, whose scale and zero point are next to it.
TensorId real(NodeImport& n, size_t i) {
  expect_eight_bits(n, n.in(i));
  if (n.has(i + 2)) n.expect_same_dtype({n.in(i), n.in(i + 2)});
  return dequantized(n, n.in(i), n.cast(single(n, i + 1, "scale"), DType::f32), single(n, i + 2, "zero point"));
}

// y with the scale of operand i and the zero point next to it; without one, of the type of `like`.
TensorId requantized(NodeImport& n, TensorId y, size_t i, TensorId like) {
  const TensorId scale = n.cast(single(n, i, "scale"), DType::f32), zero_point = single(n, i + 1, "zero point");
  if (zero_point.valid()) expect_eight_bits(n, zero_point);
  return quantized(n, n.elementwise(ElementwiseOp::div, {y, scale}), zero_point, {n.dtype(zero_point.valid() ? zero_point : like)});
}

void import_function_of(NodeImport& n, ElementwiseOp op, float a) {
  n.result(0, requantized(n, n.elementwise(op, {real(n, 0)}, a), 3, n.in(0)));
}

TensorId turned(NodeImport& n, TensorId matrix, bool turn) { return turn ? n.add(Transpose{{1, 0}}, {matrix}) : matrix; }

TensorId plus_bias(NodeImport& n, TensorId y, size_t i) {
  if (!n.has(i)) return y;
  n.expect_float({y, n.in(i)});
  if (n.shape(n.in(i)) != Shape{n.shape(y).back()})
    throw n.bad("input bias has shape {}, expected [{}]", shape_text(n.shape(n.in(i))), n.shape(y).back());
  return n.elementwise(ElementwiseOp::add, {y, n.in(i)});
}

// [N,spatial..,C] as [N,C,spatial..], and back.
TensorId channels_first(NodeImport& n, TensorId x, bool wanted) {
  if (!wanted || n.rank(x) < 3) return x;
  Ints perm = range(0, n.rank(x));
  std::rotate(perm.begin() + 1, perm.end() - 1, perm.end());
  return n.add(Transpose{perm}, {x});
}
TensorId channels_last(NodeImport& n, TensorId x, bool wanted) {
  if (!wanted || n.rank(x) < 3) return x;
  Ints perm = range(0, n.rank(x));
  std::rotate(perm.begin() + 1, perm.begin() + 2, perm.end());
  return n.add(Transpose{perm}, {x});
}

}  // namespace

void import_ms_qlinear_binary(NodeImport& n, ElementwiseOp op) {
  n.expect_counts(2, 8);
  n.expect_same_dtype({n.in(0), n.in(3)});
  n.result(0, requantized(n, n.elementwise(op, {real(n, 0), real(n, 3)}), 6, n.in(0)));
}

void import_ms_qlinear_sigmoid(NodeImport& n) {
  n.expect_counts(2, 5);
  import_function_of(n, ElementwiseOp::sigmoid, 0);
}

void import_ms_qlinear_leaky_relu(NodeImport& n) {
  n.expect_counts(2, 5);
  import_function_of(n, ElementwiseOp::leaky_relu, n.attr_float("alpha", 0.01F));
}

// As of Softmax of the opset that an attribute names.
void import_ms_qlinear_softmax(NodeImport& n) {
  n.expect_counts(2, 5);
  const std::optional<int64_t> opset = n.find_int("opset");
  if (!opset) throw n.bad("attribute 'opset' is missing");
  const TensorId x = real(n, 0);
  const int64_t axis = n.axis(n.attr_int("axis", -1), n.rank(x), "attribute 'axis'");
  const TensorId y = n.add(Softmax{axis, *opset >= 13 ? axis : n.rank(x) - 1, /*log=*/false}, {x});
  n.result(0, requantized(n, y, 3, n.in(0)));
}

// The scale and zero point of the result come first, then three operands for each part.
void import_ms_qlinear_concat(NodeImport& n) {
  n.expect_outputs(1);
  const size_t count = n.input_count();
  if (count < 5 || count % 3 != 2) throw n.bad("has {} inputs, expected 2 and three for each part", count);
  std::vector<TensorId> parts;
  for (size_t i = 2; i < count; i += 3) parts.push_back(real(n, i));
  const std::optional<int64_t> axis = n.find_int("axis");
  if (!axis) throw n.bad("attribute 'axis' is missing");
  const TensorId y = parts.size() == 1 ? parts[0] : n.add(Concat{n.axis(*axis, n.rank(parts[0]), "attribute 'axis'")}, parts);
  n.result(0, requantized(n, y, 0, n.in(2)));
}

void import_ms_qlinear_where(NodeImport& n) {
  n.expect_counts(9, 9);
  const TensorId x = real(n, 1), y = real(n, 4);
  n.result(0, requantized(n, n.elementwise(ElementwiseOp::where, {n.cast(n.in(0), DType::boolean), x, y}), 7, n.in(1)));
}

void import_ms_qlinear_average_pool(NodeImport& n) {
  n.expect_counts(2, 5);
  const bool last = n.attr_flag("channels_last", false);
  const TensorId x = channels_first(n, real(n, 0), last);
  const TensorId y = average_pooled(n, x, {.dilated = false, .rounds_up = true, .counts_pads = true});
  n.result(0, requantized(n, channels_last(n, y, last), 3, n.in(0)));
}

void import_ms_qlinear_global_average_pool(NodeImport& n) {
  n.expect_counts(2, 5);
  const bool last = n.attr_flag("channels_last", false);
  const TensorId x = real(n, 0);
  const int64_t rank = n.rank(x);
  if (rank < 3) throw n.bad("input X has shape {}, expected three or more dimensions", shape_text(n.shape(x)));
  const Reduce mean{ReduceKind::mean, last ? range(1, rank - 1) : range(2, rank), /*keepdims=*/true};
  n.result(0, requantized(n, n.add(mean, {x}), 3, n.in(0)));
}

// alpha * A * B + C, whose C is of the product's scale. Without a scale of its own the result is of floats.
void import_ms_qgemm(NodeImport& n) {
  enum Input : size_t { kA, kAScale, kAZero, kB, kBScale, kBZero, kC, kYScale, kYZero };
  n.expect_counts(6, 9);
  for (const size_t i : {kA, kB}) {
    expect_eight_bits(n, n.in(i));
    if (n.rank(n.in(i)) != 2) throw n.bad("input {} has shape {}, expected a matrix", i == kA ? "A" : "B", shape_text(n.shape(n.in(i))));
  }
  const bool turn_a = n.attr_flag("transA", false), turn_b = n.attr_flag("transB", false);
  const TensorId a = shifted(n, turned(n, n.in(kA), turn_a), single(n, kAZero, "zero point"));
  const TensorId b = shifted(n, turned(n, n.in(kB), turn_b), of_columns(n, n.in(kBZero)));
  TensorId product = matrix_product(n, a, b);
  if (n.has(kC)) {
    if (n.dtype(n.in(kC)) != DType::i32) throw n.bad("input C is {}, expected i32", name_of(n.dtype(n.in(kC))));
    if (n.broadcast(n.shape(product), n.shape(n.in(kC))) != n.shape(product))
      throw n.bad("input C has shape {}, which does not broadcast to {}", shape_text(n.shape(n.in(kC))), shape_text(n.shape(product)));
    product = n.elementwise(ElementwiseOp::add, {product, n.in(kC)});
  }
  TensorId scale = n.elementwise(ElementwiseOp::mul, {single(n, kAScale, "scale"), of_columns(n, n.in(kBScale))});
  if (const float alpha = n.attr_float("alpha", 1); alpha != 1) scale = n.elementwise(ElementwiseOp::mul, {scale, n.constant_f32(alpha)});
  const TensorId whole = n.cast(product, DType::f32);
  if (n.has(kYScale) != n.has(kYZero)) throw n.bad("one of y_scale and y_zero_point is missing");
  if (!n.has(kYScale)) return n.result(0, n.elementwise(ElementwiseOp::mul, {whole, scale}));
  const TensorId zero_point = single(n, kYZero, "zero point");
  expect_eight_bits(n, zero_point);
  scale = n.elementwise(ElementwiseOp::div, {scale, single(n, kYScale, "scale")});
  n.result(0, quantized(n, n.elementwise(ElementwiseOp::mul, {whole, scale}), zero_point, {n.dtype(zero_point)}));
}

// A of floats is quantised by the range of its elements.
void import_ms_dynamic_quantize_matmul(NodeImport& n) {
  n.expect_counts(3, 5);
  const TensorId a = n.float_in(0), b = n.in(1);
  expect_eight_bits(n, b);
  const auto [q, a_scale, a_zero] = dynamically_quantized(n, a);
  const TensorId zero_point = n.has(3) ? of_columns(n, n.in(3)) : TensorId();
  const TensorId product = n.cast(matrix_product(n, shifted(n, q, a_zero), shifted(n, b, zero_point)), DType::f32);
  const TensorId scale = n.elementwise(ElementwiseOp::mul, {a_scale, of_columns(n, n.in(2))});
  n.result(0, plus_bias(n, n.elementwise(ElementwiseOp::mul, {product, scale}), 4));
}

void import_ms_matmul_integer_to_float(NodeImport& n) {
  enum Input : size_t { kA, kB, kAScale, kBScale, kAZero, kBZero, kBias };
  n.expect_counts(4, 7);
  for (const size_t i : {kA, kB}) expect_eight_bits(n, n.in(i));
  n.expect_float({n.in(kAScale), n.in(kBScale)});
  const TensorId a = shifted(n, n.in(kA), n.has(kAZero) ? of_rows(n, n.in(kAZero)) : TensorId());
  const TensorId b = shifted(n, n.in(kB), n.has(kBZero) ? of_columns(n, n.in(kBZero)) : TensorId());
  const TensorId product = n.cast(matrix_product(n, a, b), DType::f32);
  const auto wide = [&](TensorId scale) { return n.cast(scale, DType::f32); };
  const TensorId scale = n.elementwise(ElementwiseOp::mul, {wide(of_rows(n, n.in(kAScale))), wide(of_columns(n, n.in(kBScale)))});
  const TensorId y = n.cast(n.elementwise(ElementwiseOp::mul, {product, scale}), n.dtype(n.in(kAScale)));
  n.result(0, plus_bias(n, y, kBias));
}

}  // namespace tamp::frontend
