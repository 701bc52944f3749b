// Attention: for each query a softmax over all keys of its scores, and the sum of the values with these weights.
#include <cmath>
#include <limits>

#include "compiler/ops/functions.h"
#include "compiler/ops/operator.h"
#include "compiler/support/text.h"

namespace tamp::ops {
namespace {

// Element offsets of the matrices of an operand for every batch.
std::vector<int64_t> matrices_of(const Shape& operand, const Shape& batch) {
  const Shape leading(operand.begin(), operand.end() - 2);
  std::vector<int64_t> strides = broadcast_strides(leading, batch), offsets;
  for (int64_t& stride : strides) stride *= operand[operand.size() - 2] * operand.back();
  for_each_offset(batch, strides, 0, [&](int64_t offset) { offsets.push_back(offset); });
  return offsets;
}

void require_matrices(const Given& given) {
  static constexpr std::array kNames = {"Q", "K", "V"};
  for (size_t i = 0; i < kNames.size(); ++i) {
    if (given.rank(i) < 2)
      throw bad_input(std::string("input ") + kNames[i] + " has shape " + shape_text(given.shape(i)) + ", expected matrices");
  }
}

}  // namespace

TensorTypes infer(const Attention&, const Given& given) {
  given.expect(3, 4);
  require_matrices(given);
  const Shape &q = given.shape(0), &k = given.shape(1), &v = given.shape(2);
  const std::string operands = "Q has shape " + shape_text(q) + ", K " + shape_text(k) + ", V " + shape_text(v) + ": ";
  if (q.back() != k.back()) throw bad_input(operands + "rows of Q and K are of different sizes");
  if (k[k.size() - 2] != v[v.size() - 2]) throw bad_input(operands + "K and V have different numbers of rows");
  const auto leading = [](const Shape& shape) { return Shape(shape.begin(), shape.end() - 2); };
  Shape result = broadcast(broadcast(leading(q), leading(k)), leading(v));
  Shape scores = result;
  scores.insert(scores.end(), {q[q.size() - 2], k[k.size() - 2]});
  result.insert(result.end(), {q[q.size() - 2], v.back()});
  if (given.has(3) && !broadcasts_to(given.shape(3), scores))
    throw bad_input("the bias has shape " + shape_text(given.shape(3)) + ", which does not broadcast to " + shape_text(scores));
  return {{given.dtype(0), result}};
}

std::vector<Value> evaluate(const Attention& op, const Call& call) {
  const Shape &q_shape = call.input(0).shape, &k_shape = call.input(1).shape, &v_shape = call.input(2).shape,
              &y_shape = call.output().shape;
  const Shape batch(y_shape.begin(), y_shape.end() - 2);
  const int64_t queries = q_shape[q_shape.size() - 2], keys = k_shape[k_shape.size() - 2], size = q_shape.back(), columns = v_shape.back();
  const Numbers<double> q(call.input(0)), k(call.input(1)), v(call.input(2));
  const std::vector<int64_t> at_q = matrices_of(q_shape, batch), at_k = matrices_of(k_shape, batch), at_v = matrices_of(v_shape, batch);
  std::vector<double> bias(at_q.size() * static_cast<size_t>(queries * keys), 0.0);
  if (call.has_input(3)) {
    Shape scores = batch;
    scores.insert(scores.end(), {queries, keys});
    const Numbers<double> given(call.input(3));
    size_t i = 0;
    for_each_offset(scores, broadcast_strides(call.input(3).shape, scores), 0, [&](int64_t at) { bias[i++] = given[at]; });
  }
  std::vector<double> y(static_cast<size_t>(element_count(y_shape)), 0.0), weights(static_cast<size_t>(keys));
  for (size_t b = 0; b < at_q.size(); ++b) {
    for (int64_t m = 0; m < queries; ++m) {
      const int64_t row = static_cast<int64_t>(b) * queries + m;
      double largest = -std::numeric_limits<double>::infinity(), sum = 0;
      for (int64_t n = 0; n < keys; ++n) {
        double dot = 0;
        for (int64_t i = 0; i < size; ++i) dot += q[at_q[b] + m * size + i] * k[at_k[b] + n * size + i];
        weights[static_cast<size_t>(n)] = op.scale * dot + bias[static_cast<size_t>(row * keys + n)];
        largest = max_of(largest, weights[static_cast<size_t>(n)]);
      }
      if (op.weightless != Weightless::nan && largest == -std::numeric_limits<double>::infinity()) continue;
      for (double& weight : weights) sum += weight = std::exp(weight - largest);
      if (op.weightless == Weightless::zero && std::isnan(sum)) continue;
      for (int64_t n = 0; n < keys; ++n) {
        const double weight = weights[static_cast<size_t>(n)] / sum;
        for (int64_t i = 0; i < columns; ++i) y[static_cast<size_t>(row * columns + i)] += weight * v[at_v[b] + n * columns + i];
      }
    }
  }
  return {output_from(call, y)};
}

Layout layout_of(const Attention&) { return Layout::row_major; }
bool is_identity(const Attention&, const Shape&) { return false; }
bool is_f32_only(const Attention&, DType) { return true; }
int64_t own_work(const Attention&, const Given& given, const TensorTypes& results) {
  const Shape &q = given.shape(0), &k = given.shape(1), &y = results[0].shape;
  const int64_t rows = product(y, 0, static_cast<int64_t>(y.size()) - 1);
  return saturating_product({rows, k[k.size() - 2], saturating_sum(q.back(), y.back())});
}

}  // namespace tamp::ops
