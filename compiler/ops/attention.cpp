// Attention: for each query a softmax over all keys of its scores, or of those of its window, and the sum of the values with these weights.
// Scores are floats, before and after the bias is added, as they would be between rOperators of their own: scores vanish beside a mask as
// large as 1e30, so that a query whose keys are all masked by the same number weighs all of them alike. In a quantised network scores,
// weights and the result are rounded on the way.
#include <array>
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

constexpr std::array kNames = {"Q", "K", "V"};

void require_matrices(const Given& given) {
  for (size_t i = 0; i < kNames.size(); ++i) {
    if (given.rank(i) < 2) throw bad_input("input {} has shape {}, expected matrices", kNames[i], shape_text(given.shape(i)));
  }
}

// Error unless these are the numbers from 0 to count - 1 in some order.
void require_each_row_once(const int64_t* rows, int64_t count) {
  std::vector<bool> seen(static_cast<size_t>(count), false);
  for (int64_t i = 0; i < count; ++i) {
    const std::string row = "the rows of the windows have row " + std::to_string(rows[i]);
    if (rows[i] < 0 || rows[i] >= count) throw bad_input("{} of {}", row, count);
    if (seen[static_cast<size_t>(rows[i])]) throw bad_input(row + " twice");
    seen[static_cast<size_t>(rows[i])] = true;
  }
}

// Error unless the table of windows is one of all rows of Q, K and V.
void require_windows(const Given& given) {
  const TensorType& table = given.type(kAttentionRowTable);
  const std::string found = "the rows of the windows have shape " + shape_text(table.shape) + " of " + name_of(table.dtype) + ", ";
  if (table.dtype != DType::i64 || table.shape.size() != 2) throw bad_input(found + "expected [windows, rows of each] of i64");
  const int64_t count = element_count(table.shape);
  for (size_t i = 0; i < kNames.size(); ++i) {
    const Shape& shape = given.shape(i);
    if (shape[shape.size() - 2] != count) throw bad_input("{}but input {} has {} rows", found, kNames[i], shape[shape.size() - 2]);
  }
  const Bytes* const values = given.all()[kAttentionRowTable]->values;
  if (values) require_each_row_once(reinterpret_cast<const int64_t*>(values->data()), count);
}

}  // namespace

TensorTypes infer(const Attention&, const Given& given) {
  given.expect(3, kAttentionRowTable + 1);
  require_matrices(given);
  const Shape &q = given.shape(0), &k = given.shape(1), &v = given.shape(2);
  const std::string operands = "Q has shape " + shape_text(q) + ", K " + shape_text(k) + ", V " + shape_text(v) + ": ";
  if (q.back() != k.back()) throw bad_input(operands + "rows of Q and K are of different sizes");
  if (k[k.size() - 2] != v[v.size() - 2]) throw bad_input(operands + "K and V have different numbers of rows");
  const auto leading = [](const Shape& shape) { return Shape(shape.begin(), shape.end() - 2); };
  Shape result = broadcast(broadcast(leading(q), leading(k)), leading(v));
  Shape scores = result;
  if (given.has(kAttentionRowTable)) {
    require_windows(given);
    const Shape& table = given.shape(kAttentionRowTable);
    scores.insert(scores.begin(), table[0]);
    scores.insert(scores.end(), {table[1], table[1]});
  } else {
    scores.insert(scores.end(), {q[q.size() - 2], k[k.size() - 2]});
  }
  result.insert(result.end(), {q[q.size() - 2], v.back()});
  if (given.has(kAttentionBias) && !broadcasts_to(given.shape(kAttentionBias), scores))
    throw bad_input("the bias has shape {}, which does not broadcast to {}", shape_text(given.shape(kAttentionBias)), shape_text(scores));
  return {{given.dtype(0), result}};
}

namespace {

// Windows of rows that attend to each other; without a table one of all queries and keys, in their order.
struct Windows {
  int64_t count = 1, queries, keys;
  std::vector<int64_t> rows;  // [count][queries]

  int64_t row(int64_t window, int64_t i) const { return rows.empty() ? i : rows[static_cast<size_t>(window * queries + i)]; }
};
Windows windows_of(const Call& call) {
  const Shape &q = call.input(0).shape, &k = call.input(1).shape;
  if (!call.has_input(kAttentionRowTable)) return {1, q[q.size() - 2], k[k.size() - 2], {}};
  const Value& table = call.input(kAttentionRowTable);
  const int64_t count = element_count(table.shape);
  const Numbers<int64_t> rows(table);
  require_each_row_once(rows.data(), count);
  return {table.shape[0], table.shape[1], table.shape[1], std::vector<int64_t>(rows.data(), rows.data() + count)};
}

// What is added to each score, [windows][batches][queries][keys].
std::vector<double> bias_of(const Call& call, const Windows& windows, const Shape& batch) {
  Shape scores = {windows.count};
  scores.insert(scores.end(), batch.begin(), batch.end());
  scores.insert(scores.end(), {windows.queries, windows.keys});
  std::vector<double> bias(static_cast<size_t>(element_count(scores)), 0.0);
  if (!call.has_input(kAttentionBias)) return bias;
  const Numbers<double> given(call.input(kAttentionBias));
  size_t i = 0;
  for_each_offset(scores, broadcast_strides(call.input(kAttentionBias).shape, scores), 0, [&](int64_t at) { bias[i++] = given[at]; });
  return bias;
}

double to_whole(double x, const RoundedTo& to) { return to.rounds() ? rounded<double>(x, to.low, to.high) : x; }

// The score of a product of Q and K, a float.
double score_of(const Attention& op, double dot, double bias) {
  const double product = static_cast<float>(op.scale * dot);
  if (!op.rounding) return static_cast<float>(product + bias);
  const AttentionRounding& by = *op.rounding;
  const double sum = static_cast<float>(to_whole(product, by.products) * by.product_step + bias);
  return static_cast<float>(to_whole(sum, by.sums) * by.sum_step);
}

}  // namespace

std::vector<Value> evaluate(const Attention& op, const Call& call) {
  const Shape &q_shape = call.input(0).shape, &k_shape = call.input(1).shape, &v_shape = call.input(2).shape,
              &y_shape = call.output().shape;
  const Shape batch(y_shape.begin(), y_shape.end() - 2);
  const Windows windows = windows_of(call);
  const int64_t all_rows = q_shape[q_shape.size() - 2], queries = windows.queries, keys = windows.keys, size = q_shape.back(),
                columns = v_shape.back();
  const Numbers<double> q(call.input(0)), k(call.input(1)), v(call.input(2));
  const std::vector<int64_t> at_q = matrices_of(q_shape, batch), at_k = matrices_of(k_shape, batch), at_v = matrices_of(v_shape, batch);
  const auto batches = static_cast<int64_t>(at_q.size());
  const std::vector<double> bias = bias_of(call, windows, batch);
  std::vector<double> y(static_cast<size_t>(element_count(y_shape)), 0.0), weights(static_cast<size_t>(keys));
  for (int64_t i = 0; i < windows.count * batches * queries; ++i) {
    const int64_t window = i / queries / batches, b = i / queries % batches, m = windows.row(window, i % queries);
    const int64_t from_q = at_q[static_cast<size_t>(b)] + m * size, from_k = at_k[static_cast<size_t>(b)],
                  from_v = at_v[static_cast<size_t>(b)], to = (b * all_rows + m) * columns;
    double largest = -std::numeric_limits<double>::infinity(), sum = 0;
    for (int64_t n = 0; n < keys; ++n) {
      const int64_t key = from_k + windows.row(window, n) * size;
      double dot = 0;
      for (int64_t e = 0; e < size; ++e) dot += q[from_q + e] * k[key + e];
      weights[static_cast<size_t>(n)] = score_of(op, dot, bias[static_cast<size_t>(i * keys + n)]);
      largest = max_of(largest, weights[static_cast<size_t>(n)]);
    }
    if (op.weightless != Weightless::nan && largest == -std::numeric_limits<double>::infinity()) continue;
    for (double& weight : weights) sum += weight = std::exp(weight - largest);
    if (op.weightless == Weightless::zero && std::isnan(sum)) continue;
    for (int64_t n = 0; n < keys; ++n) {
      double weight = weights[static_cast<size_t>(n)] / sum;
      if (op.rounding) weight = to_whole(weight * op.rounding->weight_steps, op.rounding->weights);
      if (op.rounding && op.rounding->again.rounds()) weight = to_whole(weight * op.rounding->again_step, op.rounding->again);
      const int64_t value = from_v + windows.row(window, n) * columns;
      for (int64_t e = 0; e < columns; ++e) y[static_cast<size_t>(to + e)] += weight * v[value + e];
    }
  }
  if (op.rounding) {
    for (double& element : y) element = to_whole(element * op.rounding->result_steps, op.rounding->results);
  }
  return {output_from(call, y)};
}

Traits traits_of(const Attention&) { return {Layout::row_major, InF32::all}; }
int64_t own_work(const Attention&, const Given& given, const TensorTypes& results) {
  const Shape &q = given.shape(0), &k = given.shape(1), &y = results[0].shape;
  const int64_t rows = product(y, 0, static_cast<int64_t>(y.size()) - 1);
  const int64_t keys = given.has(kAttentionRowTable) ? given.shape(kAttentionRowTable)[1] : k[k.size() - 2];
  return saturating_product({rows, keys, saturating_sum(q.back(), y.back())});
}

}  // namespace tamp::ops
