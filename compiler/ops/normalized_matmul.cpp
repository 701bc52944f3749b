// NormalizedMatMul: a MatMul with its bias and residual, and a walk over each row of the sum.
#include <cmath>

#include "compiler/ops/operator.h"
#include "compiler/support/text.h"

namespace tamp::ops {
namespace {

// The bias is C of the MatMul.
MatMul plain_product(const NormalizedMatMul& op) { return {false, op.trans_b, op.alpha, 1}; }

// Operand i of one value for each column; `absent` where there is none.
std::vector<double> of_columns(const Call& call, size_t i, int64_t columns, double absent) {
  if (!call.has_input(i)) return std::vector<double>(static_cast<size_t>(columns), absent);
  const Numbers<double> values(call.input(i));
  return {values.data(), values.data() + columns};
}

}  // namespace

TensorTypes infer(const NormalizedMatMul& op, const Given& given) {
  given.expect(2, kNormalizedShift + 1);
  if (given.rank(1) != 2) throw bad_input("B has shape " + shape_text(given.shape(1)) + ", expected one matrix");
  OperandList product = given.all();
  product.resize(2);
  const TensorType sum = infer(plain_product(op), Given(product))[0];
  const Shape columns = {sum.shape.back()};
  if (columns[0] % 4 != 0) throw bad_input("B has shape " + shape_text(given.shape(1)) + ", expected a multiple of 4 columns");
  for (const size_t i : {kNormalizedBias, kNormalizedScale, kNormalizedShift}) {
    if (given.has(i) && given.shape(i) != columns)
      throw bad_input("operand " + std::to_string(i) + " has shape " + shape_text(given.shape(i)) + ", expected " + shape_text(columns));
  }
  if (given.has(kNormalizedResidual) && given.shape(kNormalizedResidual) != sum.shape)
    throw bad_input("R has shape " + shape_text(given.shape(kNormalizedResidual)) + ", expected " + shape_text(sum.shape));
  return op.keeps_sum ? TensorTypes{sum, sum} : TensorTypes{sum};
}

std::vector<Value> evaluate(const NormalizedMatMul& op, const Call& call) {
  ROperator plain = call.rop;
  plain.inputs.resize(std::min<size_t>(plain.inputs.size(), kNormalizedBias + 1));
  Value sum = std::move(evaluate(plain_product(op), Call{call.graph, plain, call.value_of})[0]);
  const Numbers<double> product(sum);
  const int64_t columns = sum.shape.back(), count = element_count(sum.shape);
  std::vector<double> x(product.data(), product.data() + count), y(x.size());
  if (call.has_input(kNormalizedResidual)) {
    const Numbers<double> residual(call.input(kNormalizedResidual));
    for (int64_t i = 0; i < count; ++i) x[static_cast<size_t>(i)] += residual[i];
  }
  const std::vector<double> scale = of_columns(call, kNormalizedScale, columns, 1), shift = of_columns(call, kNormalizedShift, columns, 0);
  for (size_t row = 0; row < x.size(); row += scale.size()) {
    double mean = 0, squares = 0;
    for (size_t i = 0; i < scale.size(); ++i) mean += op.centered ? x[row + i] / static_cast<double>(columns) : 0;
    for (size_t i = 0; i < scale.size(); ++i) squares += (x[row + i] - mean) * (x[row + i] - mean);
    const double factor = 1 / std::sqrt(squares / static_cast<double>(columns) + op.epsilon);
    for (size_t i = 0; i < scale.size(); ++i) y[row + i] = (x[row + i] - mean) * factor * scale[i] + shift[i];
  }
  std::vector<Value> results = {output_from(call, y)};
  if (op.keeps_sum) results.push_back(output_from(call, x));
  return results;
}

Layout layout_of(const NormalizedMatMul&) { return Layout::row_major; }
bool is_identity(const NormalizedMatMul&, const Shape&) { return false; }
bool is_f32_only(const NormalizedMatMul&, DType) { return true; }
int64_t own_work(const NormalizedMatMul& op, const Given& given, const TensorTypes& results) {
  return saturating_sum(own_work(plain_product(op), given, results), 2 * kWorkOfRead * element_count(results[0].shape));
}

}  // namespace tamp::ops
