// FeedForward: two MatMuls with an activation between them, behind a normalisation of rows or none, and in front of one or none.
#include <vector>

#include "compiler/ops/moments.h"
#include "compiler/ops/operator.h"
#include "compiler/ops/row_products.h"
#include "compiler/support/text.h"

namespace tamp::ops {
namespace {

// Columns of the product of `k` columns with the weights at `place`.
int64_t columns_of(const Given& given, size_t place, const char* name, int64_t k) {
  const Shape& w = given.shape(place);
  if (w.size() != 2 || w[0] != k)
    throw bad_input(std::string(name) + " has shape " + shape_text(w) + ", expected [" + std::to_string(k) + ",columns]");
  return w[1];
}

// The rows of the result, normalised, scaled and shifted.
std::vector<double> normalised_result(const FeedForward& op, const Call& call, const std::vector<double>& z) {
  const Shape& shape = call.output().shape;
  const Value rows = normalised_rows(value_from(DType::f32, shape, z), op.result_centered, op.result_epsilon);
  const Numbers<double> normalised(rows);
  std::vector<double> y(normalised.data(), normalised.data() + element_count(shape));
  const auto for_columns = [&](size_t place, const auto& change) {
    if (!call.has_input(place)) return;
    const Numbers<double> numbers(call.input(place));
    for (size_t i = 0; i < y.size(); ++i) change(y[i], numbers[static_cast<int64_t>(i) % shape.back()]);
  };
  for_columns(kFeedScale, [](double& value, double scale) { value *= scale; });
  for_columns(kFeedShift, [](double& value, double shift) { value += shift; });
  return y;
}

}  // namespace

TensorTypes infer(const FeedForward& op, const Given& given) {
  given.expect(3, kFeedShift + 1);
  if (given.rank(0) < 1) throw bad_input("X has shape " + shape_text(given.shape(0)) + ", expected rows");
  const int64_t hidden = columns_of(given, kFeedFirstWeights, "W1", given.shape(0).back()),
                columns = columns_of(given, kFeedWeights, "W2", hidden);
  TensorType z = given.type(0);
  z.shape.back() = columns;
  given.expect_shape(kFeedFirstBias, "B1", {hidden});
  given.expect_shape(kFeedBias, "B2", {columns});
  given.expect_shape(kFeedResidual, "R", z.shape);
  given.expect_shape(kFeedScale, "scale", {columns});
  given.expect_shape(kFeedShift, "shift", {columns});
  if (!op.normalize_result && (given.has(kFeedScale) || given.has(kFeedShift)))
    throw bad_input("scale and shift want attribute 'normalize_result'");
  if (op.normalize_result && op.keeps_moments) throw bad_input("attributes 'normalize_result' and 'keeps_moments' exclude each other");
  if (!op.keeps_moments) return {z};
  check_columns("the result", z.shape);
  return {z, {z.dtype, moments_of(z.shape)}};
}

std::vector<Value> evaluate(const FeedForward& op, const Call& call) {
  const Value& x = call.input(0);
  const Value rows = op.normalize ? normalised_rows(x, op.centered, op.epsilon) : x;
  const int64_t count = rows_of(x.shape), k = x.shape.back(), hidden = call.input(kFeedFirstWeights).shape[1];
  std::vector<double> y = product_of_rows(call, Numbers<double>(rows), count, k, kFeedFirstWeights, kFeedFirstBias);
  for (double& value : y) value = activate(op.activation, value);
  Shape between = x.shape;
  between.back() = hidden;
  const Value inner = value_from(x.dtype, between, y);
  std::vector<double> z = product_of_rows(call, Numbers<double>(inner), count, hidden, kFeedWeights, kFeedBias);
  if (call.has_input(kFeedResidual)) {
    const Numbers<double> residual(call.input(kFeedResidual));
    for (size_t i = 0; i < z.size(); ++i) z[i] += residual[static_cast<int64_t>(i)];
  }
  if (op.normalize_result) z = normalised_result(op, call, z);
  std::vector<Value> results = {output_from(call, z)};
  if (op.keeps_moments) {
    const Tensor& moments = call.graph.tensor(call.rop.outputs[1]);
    results.push_back(value_from(moments.dtype, moments.shape, moments_of_rows(z)));
  }
  return results;
}

Layout layout_of(const FeedForward&) { return Layout::row_major; }
bool is_identity(const FeedForward&, const Shape&) { return false; }
bool is_f32_only(const FeedForward&, DType) { return true; }
int64_t own_work(const FeedForward& op, const Given& given, const TensorTypes& results) {
  const int64_t rows = rows_of(results[0].shape), read = op.normalize ? 2 : 0;
  return saturating_sum(saturating_product({rows, saturating_sum(given.elements(kFeedFirstWeights), given.elements(kFeedWeights))}),
                        saturating_product({read, kWorkOfRead, given.elements(0)}));
}

}  // namespace tamp::ops
