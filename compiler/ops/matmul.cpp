// MatMul: one matrix product per batch. Integers are multiplied as uint64_t, so that overflow wraps as in numpy.
#include "compiler/ops/gemm.h"
#include "compiler/ops/operator.h"
#include "compiler/support/text.h"

namespace tamp::ops {
namespace {

// Element offsets of every batch's matrix in an operand of shape `operand`.
std::vector<int64_t> batch_offsets(const Shape& operand, const Shape& batch) {
  const Shape leading(operand.begin(), operand.end() - 2);
  std::vector<int64_t> strides = broadcast_strides(leading, batch);
  const int64_t matrix = operand[operand.size() - 2] * operand[operand.size() - 1];
  for (int64_t& stride : strides) stride *= matrix;
  std::vector<int64_t> offsets;
  for_each_offset(batch, strides, 0, [&](int64_t offset) { offsets.push_back(offset); });
  return offsets;
}

template <class T>
std::vector<T> product_of(const Call& call, const MatMul& attrs) {
  const Value &a = call.input(0), &b = call.input(1);
  const Shape& y = call.output().shape;
  const Shape batch(y.begin(), y.end() - 2);
  const int64_t a_rows = a.shape[a.shape.size() - 2], a_cols = a.shape.back();
  const int64_t b_rows = b.shape[b.shape.size() - 2], b_cols = b.shape.back();
  const int64_t m = y[y.size() - 2], n = y.back();

  const Numbers<T> a_numbers(a), b_numbers(b);
  std::vector<T> result(static_cast<size_t>(element_count(y)));
  if (b.shape.size() == 2 && !attrs.trans_a) {  // one right-hand side for all batches: they are rows of one product
    const int64_t rows = m * element_count(batch);
    multiply(Matrix<const T>{a_numbers.data(), rows, a_cols, a_cols, false},
             Matrix<const T>{b_numbers.data(), b_rows, b_cols, b_cols, attrs.trans_b}, Matrix<T>{result.data(), rows, n, n});
    return result;
  }
  const std::vector<int64_t> a_offsets = batch_offsets(a.shape, batch), b_offsets = batch_offsets(b.shape, batch);
  for (size_t i = 0; i < a_offsets.size(); ++i) {
    const Matrix<const T> left{a_numbers.data() + a_offsets[i], a_rows, a_cols, a_cols, attrs.trans_a};
    const Matrix<const T> right{b_numbers.data() + b_offsets[i], b_rows, b_cols, b_cols, attrs.trans_b};
    multiply(left, right, Matrix<T>{result.data() + static_cast<int64_t>(i) * m * n, m, n, n});
  }
  return result;
}

// y = alpha * y + beta * C
template <class T>
Value finish(const Call& call, const MatMul& attrs, const std::vector<T>& products) {
  const bool has_c = call.has_input(2);
  if (!has_c && attrs.alpha == 1) return output_from(call, products);
  std::vector<double> y(products.begin(), products.end());
  for (double& element : y) element *= attrs.alpha;
  if (has_c) {
    const Numbers<double> c(call.input(2));
    size_t i = 0;
    const Shape& shape = call.output().shape;
    for_each_offset(shape, broadcast_strides(call.input(2).shape, shape), 0, [&](int64_t at) { y[i++] += attrs.beta * c[at]; });
  }
  return output_from(call, y);
}

}  // namespace

TensorTypes infer(const MatMul& op, const Given& given) {
  given.expect(2, 3);
  const Shape &a = given.shape(0), &b = given.shape(1);
  const std::string operands = "A has shape " + shape_text(a) + ", B has shape " + shape_text(b) + ": ";
  if (a.size() < 2 || b.size() < 2) throw bad_input("{}both must be matrices", operands);
  const auto extent = [](const Shape& shape, bool last) { return last ? shape.back() : shape[shape.size() - 2]; };
  const int64_t k_of_a = extent(a, !op.trans_a), k_of_b = extent(b, op.trans_b);
  if (k_of_a != k_of_b) throw bad_input("{}inner extents {} and {} differ", operands, k_of_a, k_of_b);
  Shape result = broadcast(Shape(a.begin(), a.end() - 2), Shape(b.begin(), b.end() - 2));
  result.push_back(extent(a, op.trans_a));
  result.push_back(extent(b, !op.trans_b));
  if (given.has(2) && !broadcasts_to(given.shape(2), result))
    throw bad_input("C has shape {}, which does not broadcast to {}", shape_text(given.shape(2)), shape_text(result));
  return {{given.dtype(0), result}};
}

std::vector<Value> evaluate(const MatMul& op, const Call& call) {
  const Shape& a = call.input(0).shape;
  const DType dtype = call.output().dtype;
  const int64_t k = op.trans_a ? a[a.size() - 2] : a.back();
  if (!is_float(dtype)) {
    const std::vector<uint64_t> wrapped = product_of<uint64_t>(call, op);
    return {finish(call, op, std::vector<int64_t>(wrapped.begin(), wrapped.end()))};
  }
  if (in_double(dtype, element_count(call.output().shape) * k)) return {finish(call, op, product_of<double>(call, op))};
  return {finish(call, op, product_of<float>(call, op))};
}

Traits traits_of(const MatMul&) { return {Layout::row_major, InF32::halves}; }  // plain products for the rest

int64_t own_work(const MatMul& op, const Given& given, const TensorTypes& results) {
  const Shape& a = given.shape(0);
  return saturating_product({element_count(results[0].shape), op.trans_a ? a[a.size() - 2] : a.back()});
}

}  // namespace tamp::ops
