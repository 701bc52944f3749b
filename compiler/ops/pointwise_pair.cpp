// PointwisePair: two pointwise Convs, the first with its bias, residual and activation.
#include <algorithm>

#include "compiler/ops/operator.h"
#include "compiler/support/text.h"

namespace tamp::ops {
namespace {

// The type of a pointwise Conv's result. `weights`: its place in the inputs.
TensorType convolved(const Given& given, const TensorType& x, size_t weights, const char* name) {
  const Shape& w = given.shape(weights);
  if (w.size() != 4 || w[1] != x.shape[1] || w[2] != 1 || w[3] != 1 || w[0] % 4 != 0) {
    throw bad_input(std::string(name) + " has shape " + shape_text(w) + ", expected [M," + std::to_string(x.shape[1]) +
                    ",1,1] with a multiple of 4 output channels");
  }
  return {x.dtype, {x.shape[0], w[0], x.shape[2], x.shape[3]}};
}

// act(conv(x, w) + b + r); `made` has the result's type and shape.
Value convolve(const Call& call, const Tensor& made, const Value& x, size_t weights, size_t bias, const Value* residual,
               const ActivationCall& activation) {
  const Numbers<double> in(x), w(call.input(weights));
  const int64_t images = made.shape[0], channels = made.shape[1], pixels = made.shape[2] * made.shape[3], inputs = x.shape[1];
  std::vector<double> y(static_cast<size_t>(element_count(made.shape)), 0.0);
  if (call.has_input(bias)) {
    const Numbers<double> b(call.input(bias));
    for (size_t i = 0; i < y.size(); ++i) y[i] = b[static_cast<int64_t>(i) / pixels % channels];
  }
  for (int64_t n = 0; n < images * channels; ++n) {
    for (int64_t c = 0; c < inputs; ++c) {
      const double factor = w[n % channels * inputs + c];
      const int64_t from = (n / channels * inputs + c) * pixels;
      for (int64_t p = 0; p < pixels; ++p) y[static_cast<size_t>(n * pixels + p)] += factor * in[from + p];
    }
  }
  if (residual) {
    const Numbers<double> r(*residual);
    for (size_t i = 0; i < y.size(); ++i) y[i] += r[static_cast<int64_t>(i)];
  }
  for (double& value : y) value = activate(activation, value);
  return value_from(made.dtype, made.shape, y);
}

}  // namespace

TensorTypes infer(const PointwisePair& op, const Given& given) {
  given.expect(3, kPairResidual + 1);
  if (given.rank(0) != 4) throw bad_input("input X has shape " + shape_text(given.shape(0)) + ", expected [N,C,H,W]");
  const TensorType x = {given.dtype(0), given.shape(0)}, y = convolved(given, x, kPairFirstWeights, "FW"),
                   z = convolved(given, y, kPairWeights, "W");
  given.expect_shape(kPairFirstBias, "FB", {y.shape[1]});
  given.expect_shape(kPairBias, "B", {z.shape[1]});
  given.expect_shape(kPairResidual, "R", y.shape);
  return op.keeps_first ? TensorTypes{z, y} : TensorTypes{z};
}

std::vector<Value> evaluate(const PointwisePair& op, const Call& call) {
  const Value& x = call.input(0);
  Tensor first = call.output();
  first.shape = {x.shape[0], call.input(kPairFirstWeights).shape[0], x.shape[2], x.shape[3]};
  const Value* const residual = call.has_input(kPairResidual) ? &call.input(kPairResidual) : nullptr;
  Value y = convolve(call, first, x, kPairFirstWeights, kPairFirstBias, residual, op.first);
  std::vector<Value> results = {convolve(call, call.output(), y, kPairWeights, kPairBias, nullptr, op.second)};
  if (op.keeps_first) results.push_back(std::move(y));
  return results;
}

Layout layout_of(const PointwisePair&) { return Layout::channels_last; }
bool is_identity(const PointwisePair&, const Shape&) { return false; }
bool is_f32_only(const PointwisePair&, DType) { return true; }
int64_t own_work(const PointwisePair&, const Given& given, const TensorTypes& results) {
  const int64_t pixels = element_count(results[0].shape) / std::max<int64_t>(1, results[0].shape[1]);
  return saturating_product({pixels, saturating_sum(given.elements(kPairFirstWeights), given.elements(kPairWeights))});
}

}  // namespace tamp::ops
