// Batch normalisation at inference, over channels (dimension 1).
#include <array>
#include <cmath>

#include "compiler/ops/operator.h"
#include "compiler/support/text.h"

namespace tamp::ops {

TensorTypes infer(const BatchNorm&, const Given& given) {
  static constexpr std::array kNames = {"X", "scale", "B", "mean", "var"};
  given.expect(kNames.size());
  const Shape& x = given.shape(0);
  if (x.size() < 2) throw bad_input("input X has shape {}, expected [N,C,...]", shape_text(x));
  for (size_t i = 1; i < kNames.size(); ++i) {
    if (given.shape(i) == Shape{x[1]}) continue;
    throw bad_input("input {} has shape {}, expected [{}]", kNames[i], shape_text(given.shape(i)), x[1]);
  }
  return {given.type(0)};
}

std::vector<Value> evaluate(const BatchNorm& op, const Call& call) {
  const Shape& shape = call.input(0).shape;
  const int64_t channels = shape[1];
  const int64_t run = product(shape, 2, static_cast<int64_t>(shape.size()));
  const Numbers<double> x(call.input(0)), scale(call.input(1)), bias(call.input(2)), mean(call.input(3)), variance(call.input(4));
  std::vector<double> y(static_cast<size_t>(element_count(shape)));
  for (int64_t row = 0; row < shape[0] * channels; ++row) {
    const int64_t c = row % channels;
    const double factor = scale[c] / std::sqrt(variance[c] + op.epsilon);
    for (int64_t i = row * run; i < (row + 1) * run; ++i) y[static_cast<size_t>(i)] = (x[i] - mean[c]) * factor + bias[c];
  }
  return {output_from(call, y)};
}

Traits traits_of(const BatchNorm&) { return {Layout::row_major, InF32::all}; }
int64_t own_work(const BatchNorm&, const Given&, const TensorTypes&) { return 0; }

}  // namespace tamp::ops
