// MomentMatMul: a MatMul whose operand's rows are normalised by given moments, and which gives moments of its result's rows.
#include <algorithm>
#include <cmath>
#include <optional>

#include "compiler/ops/moments.h"
#include "compiler/ops/operator.h"
#include "compiler/support/error.h"
#include "compiler/support/text.h"

namespace tamp::ops {
namespace {

// The bias is C of the MatMul.
MatMul plain_product(const MomentMatMul& op) { return {false, op.trans_b, op.alpha, 1}; }

// The operand's rows, normalised by the moments.
Value normalised(const MomentMatMul& op, const Call& call) {
  const Value& a = call.input(0);
  const Numbers<double> x(a), moments(call.input(kMomentMoments));
  const int64_t columns = a.shape.back(), parts = columns / kMomentColumns;
  std::vector<double> y(static_cast<size_t>(element_count(a.shape)));
  for (int64_t row = 0; row < rows_of(a.shape); ++row) {
    double mean = 0, squares = 0;
    for (int64_t part = 0; part < parts; ++part) mean += moments[(row * parts + part) * 2] / static_cast<double>(parts);
    if (!op.centered) mean = 0;
    for (int64_t part = 0; part < parts; ++part) {
      const double apart = moments[(row * parts + part) * 2] - mean;
      squares += moments[(row * parts + part) * 2 + 1] + kMomentColumns * apart * apart;
    }
    const double factor = 1 / std::sqrt(squares / static_cast<double>(columns) + op.epsilon);
    for (int64_t i = row * columns; i < (row + 1) * columns; ++i) y[static_cast<size_t>(i)] = (x[i] - mean) * factor;
  }
  return value_from(a.dtype, a.shape, y);
}

}  // namespace

TensorTypes infer(const MomentMatMul& op, const Given& given) {
  given.expect(2, kMomentRounded + 1);
  if (given.rank(1) != 2) throw bad_input("B has shape " + shape_text(given.shape(1)) + ", expected one matrix");
  OperandList product = given.all();
  product.resize(2);
  const TensorType sum = infer(plain_product(op), Given(product))[0];
  if (given.has(kMomentBias) && given.shape(kMomentBias) != Shape{sum.shape.back()})
    throw bad_input("bias has shape " + shape_text(given.shape(kMomentBias)) + ", expected " + shape_text({sum.shape.back()}));
  if (given.has(kMomentResidual) && given.shape(kMomentResidual) != sum.shape)
    throw bad_input("R has shape " + shape_text(given.shape(kMomentResidual)) + ", expected " + shape_text(sum.shape));
  if (given.has(kMomentMoments) != op.normalize) throw bad_input("moments and attribute 'normalize' belong together");
  if (op.normalize) {
    check_columns("A", given.shape(0));
    if (given.shape(kMomentMoments) != moments_of(given.shape(0)))
      throw bad_input("moments have shape " + shape_text(given.shape(kMomentMoments)) + ", expected " +
                      shape_text(moments_of(given.shape(0))));
  }
  given.expect_shape(kMomentRounded, "rounded", given.shape(0));
  if (op.keeps_rounded && !op.keeps_moments) throw bad_input("attribute 'keeps_rounded' wants 'keeps_moments'");
  if (!op.keeps_moments) return {sum};
  check_columns("the result", sum.shape);
  TensorTypes results = {sum, {sum.dtype, moments_of(sum.shape)}};
  if (op.keeps_rounded) results.push_back(sum);
  return results;
}

std::vector<Value> evaluate(const MomentMatMul& op, const Call& call) {
  ROperator plain = call.rop;
  plain.inputs.resize(std::min<size_t>(plain.inputs.size(), kMomentBias + 1));
  std::optional<Value> rows;
  if (op.normalize) rows = normalised(op, call);
  TAMP_CHECK(!rows || plain.inputs[0] != plain.inputs[1], "A and B of '" + call.rop.name + "' are the same tensor");
  const ValueOf value_of = [&](TensorId id) -> const Value& { return rows && id == plain.inputs[0] ? *rows : call.value_of(id); };
  const Value sum = std::move(evaluate(plain_product(op), Call{call.graph, plain, value_of})[0]);
  const Numbers<double> product(sum);
  std::vector<double> y(product.data(), product.data() + element_count(sum.shape));
  if (call.has_input(kMomentResidual)) {
    const Numbers<double> residual(call.input(kMomentResidual));
    for (size_t i = 0; i < y.size(); ++i) y[i] += residual[static_cast<int64_t>(i)];
  }
  for (double& value : y) value = activate(op.activation, value);
  std::vector<Value> results = {output_from(call, y)};
  if (op.keeps_moments) {
    const Tensor& moments = call.graph.tensor(call.rop.outputs[kKeptMoments]);
    results.push_back(value_from(moments.dtype, moments.shape, moments_of_rows(y)));
  }
  if (op.keeps_rounded) {
    const Tensor& rounded = call.graph.tensor(call.rop.outputs[kKeptRounded]);
    results.push_back(value_from(rounded.dtype, rounded.shape, y));
  }
  return results;
}

Layout layout_of(const MomentMatMul&) { return Layout::row_major; }
bool is_identity(const MomentMatMul&, const Shape&) { return false; }
bool is_f32_only(const MomentMatMul&, DType) { return true; }
int64_t own_work(const MomentMatMul& op, const Given& given, const TensorTypes& results) {
  return saturating_sum(own_work(plain_product(op), given, results),
                        2 * kWorkOfRead * saturating_sum(element_count(results[0].shape), element_count(given.shape(0))));
}

}  // namespace tamp::ops
