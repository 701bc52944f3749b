// Normalisations over channels (dimension 1): batch normalisation at inference, and local response normalisation.
#include <algorithm>
#include <cmath>

#include "compiler/ops/call.h"

namespace tamp::ops {

Value batch_norm(const Call& call, const BatchNorm& attrs) {
  const Shape& shape = call.input(0).shape;
  const int64_t channels = shape[1];
  const int64_t run = product(shape, 2, static_cast<int64_t>(shape.size()));
  const Numbers<double> x(call.input(0)), scale(call.input(1)), bias(call.input(2)), mean(call.input(3)), variance(call.input(4));
  std::vector<double> y(static_cast<size_t>(element_count(shape)));
  for (int64_t row = 0; row < shape[0] * channels; ++row) {
    const int64_t c = row % channels;
    const double factor = scale[c] / std::sqrt(variance[c] + attrs.epsilon);
    for (int64_t i = row * run; i < (row + 1) * run; ++i) y[static_cast<size_t>(i)] = (x[i] - mean[c]) * factor + bias[c];
  }
  return output_from(call, y);
}

Value lrn(const Call& call, const Lrn& attrs) {
  const Shape& shape = call.input(0).shape;
  const int64_t channels = shape[1];
  const int64_t run = product(shape, 2, static_cast<int64_t>(shape.size()));
  const Numbers<double> x(call.input(0));
  std::vector<double> y(static_cast<size_t>(element_count(shape)));
  for (int64_t row = 0; row < shape[0] * channels; ++row) {
    const int64_t c = row % channels;
    const int64_t first = std::max<int64_t>(0, c - (attrs.size - 1) / 2);
    const int64_t last = std::min(channels - 1, c + attrs.size / 2);  // size / 2 = ceil((size - 1) / 2)
    for (int64_t i = 0; i < run; ++i) {
      double squares = 0;
      for (int64_t neighbour = first; neighbour <= last; ++neighbour) {
        const double value = x[(row - c + neighbour) * run + i];
        squares += value * value;
      }
      const double at = x[row * run + i];
      const double base = attrs.bias + static_cast<double>(attrs.alpha) / static_cast<double>(attrs.size) * squares;
      y[static_cast<size_t>(row * run + i)] = at / std::pow(base, attrs.beta);
    }
  }
  return output_from(call, y);
}

}  // namespace tamp::ops
