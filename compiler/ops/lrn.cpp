// Local response normalisation, over channels (dimension 1).
#include <algorithm>
#include <cmath>

#include "compiler/ops/operator.h"
#include "compiler/support/text.h"

namespace tamp::ops {

TensorTypes infer(const Lrn& op, const Given& given) {
  given.expect(1);
  if (given.rank(0) < 2) throw bad_input("input X has shape {}, expected [N,C,...]", shape_text(given.shape(0)));
  if (op.size < 1) throw bad_input("attribute 'size' is {}, it must be at least 1", op.size);
  return {given.type(0)};
}

std::vector<Value> evaluate(const Lrn& op, const Call& call) {
  const Shape& shape = call.input(0).shape;
  const int64_t channels = shape[1];
  const int64_t run = product(shape, 2, static_cast<int64_t>(shape.size()));
  const Numbers<double> x(call.input(0));
  std::vector<double> y(static_cast<size_t>(element_count(shape)));
  for (int64_t row = 0; row < shape[0] * channels; ++row) {
    const int64_t c = row % channels;
    const int64_t first = std::max<int64_t>(0, c - (op.size - 1) / 2);
    const int64_t last = std::min(channels - 1, c + op.size / 2);  // size / 2 = ceil((size - 1) / 2)
    for (int64_t i = 0; i < run; ++i) {
      double squares = 0;
      for (int64_t neighbour = first; neighbour <= last; ++neighbour) {
        const double value = x[(row - c + neighbour) * run + i];
        squares += value * value;
      }
      const double at = x[row * run + i];
      const double base = op.bias + static_cast<double>(op.alpha) / static_cast<double>(op.size) * squares;
      y[static_cast<size_t>(row * run + i)] = at / std::pow(base, op.beta);
    }
  }
  return {output_from(call, y)};
}

Traits traits_of(const Lrn&) { return {Layout::like_largest, InF32::all}; }

int64_t own_work(const Lrn& op, const Given&, const TensorTypes& results) {
  return saturating_product({element_count(results[0].shape), kWorkOfRead, op.size});
}

}  // namespace tamp::ops
