// ChannelExcite: every channel of a map times a gate, which a product with hidden values makes.
#include <numeric>

#include "compiler/ops/operator.h"
#include "compiler/support/text.h"

namespace tamp::ops {
namespace {

// Zeros where there is none.
std::vector<double> bias_of(const Call& call, size_t input, int64_t count) {
  if (!call.has_input(input)) return std::vector<double>(static_cast<size_t>(count), 0.0);
  const Numbers<double> values(call.input(input));
  return {values.data(), values.data() + count};
}

// [hidden value][channel]; empty where S has parts of hidden values already.
std::vector<double> first_weights_of(const Call& call) {
  if (!call.has_input(kExciteFirstWeights)) return {};
  const Value& weights = call.input(kExciteFirstWeights);
  const Numbers<double> values(weights);
  return {values.data(), values.data() + element_count(weights.shape)};
}

}  // namespace

TensorTypes infer(const ChannelExcite&, const Given& given) {
  given.expect(3, kExciteFirstWeights + 1);
  const Shape &x = given.shape(0), &s = given.shape(1), &w = given.shape(2);
  if (x.size() != 4) throw bad_input("input X has shape {}, expected [N,C,H,W]", shape_text(x));
  if (w.size() != 4 || w[0] != x[1] || w[2] != 1 || w[3] != 1) throw bad_input("W has shape {}, expected [{},R,1,1]", shape_text(w), x[1]);
  const bool has_sums = given.has(kExciteFirstWeights);  // and not parts of hidden values
  if (has_sums && given.shape(kExciteFirstWeights) != Shape{w[1], x[1], 1, 1})
    throw bad_input("FW has shape {}, expected {}", shape_text(given.shape(kExciteFirstWeights)), shape_text(Shape{w[1], x[1], 1, 1}));
  const int64_t rows = has_sums ? x[1] : padded_hidden(w[1]);
  if (s.size() != 3 || s[0] != x[0] || s[1] != rows)
    throw bad_input("S has shape {}, expected {} and parts", shape_text(s), shape_text(Shape{x[0], rows}));
  if (given.has(3) && given.shape(3) != Shape{w[1]}) throw bad_input("the hidden bias has shape {}", shape_text(given.shape(3)));
  if (given.has(4) && given.shape(4) != Shape{x[1]}) throw bad_input("B has shape {}", shape_text(given.shape(4)));
  return {{given.dtype(0), x}};
}

std::vector<Value> evaluate(const ChannelExcite& op, const Call& call) {
  const Shape &shape = call.input(0).shape, &s_shape = call.input(1).shape;
  const int64_t channels = shape[1], hidden = call.input(2).shape[1], parts = s_shape[2], pixels = shape[2] * shape[3];
  const Numbers<double> x(call.input(0)), s(call.input(1)), w(call.input(2));
  const std::vector<double> hidden_bias = bias_of(call, 3, hidden), bias = bias_of(call, 4, channels);
  std::vector<double> y(x.data(), x.data() + element_count(shape)), values(static_cast<size_t>(hidden));
  const std::vector<double> first = first_weights_of(call);
  for (int64_t n = 0; n < shape[0]; ++n) {
    const auto whole = [&](int64_t row) {
      const double* const part = s.data() + (n * s_shape[1] + row) * parts;
      return std::accumulate(part, part + parts, 0.0);
    };
    std::vector<double> means;
    for (int64_t c = 0; c < channels && !first.empty(); ++c) means.push_back(whole(c) / static_cast<double>(pixels));
    for (int64_t r = 0; r < hidden; ++r) {
      const double product = first.empty() ? whole(r) : std::inner_product(means.begin(), means.end(), first.begin() + r * channels, 0.0);
      values[static_cast<size_t>(r)] = activate(op.hidden, hidden_bias[static_cast<size_t>(r)] + product);
    }
    for (int64_t c = 0; c < channels; ++c) {
      double sum = bias[static_cast<size_t>(c)];
      for (int64_t r = 0; r < hidden; ++r) sum += w[c * hidden + r] * values[static_cast<size_t>(r)];
      const double gate = activate(op.gate, sum);
      for (int64_t i = 0; i < pixels; ++i) y[static_cast<size_t>((n * channels + c) * pixels + i)] *= gate;
    }
  }
  return {output_from(call, y)};
}

Traits traits_of(const ChannelExcite&) { return {Layout::channels_last, InF32::all}; }
int64_t own_work(const ChannelExcite&, const Given& given, const TensorTypes&) {
  const int64_t weights = saturating_sum(given.elements(2), given.elements(kExciteFirstWeights));
  return saturating_sum(given.elements(1), saturating_product({given.shape(0)[0], weights}));
}

}  // namespace tamp::ops
