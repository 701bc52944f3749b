// Softmax and LogSoftmax over the joint extent of neighbouring dimensions, with the largest element subtracted.
#include <cmath>
#include <limits>

#include "compiler/ops/call.h"
#include "compiler/ops/functions.h"

namespace tamp::ops {
namespace {

// `count` elements, `stride` apart.
void softmax_row(double* row, int64_t count, int64_t stride, bool log) {
  double largest = -std::numeric_limits<double>::infinity();
  for (int64_t i = 0; i < count; ++i) largest = max_of(largest, row[i * stride]);
  double sum = 0;
  for (int64_t i = 0; i < count; ++i) sum += std::exp(row[i * stride] - largest);
  for (int64_t i = 0; i < count; ++i) {
    double& x = row[i * stride];
    x = log ? x - largest - std::log(sum) : std::exp(x - largest) / sum;
  }
}

}  // namespace

Value softmax(const Call& call, const Softmax& attrs) {
  const Shape& shape = call.input(0).shape;
  const int64_t outer = product(shape, 0, attrs.first_axis);
  const int64_t count = product(shape, attrs.first_axis, attrs.last_axis + 1);
  const int64_t inner = product(shape, attrs.last_axis + 1, static_cast<int64_t>(shape.size()));
  const Numbers<double> x(call.input(0));
  std::vector<double> y(x.data(), x.data() + element_count(shape));
  for (int64_t o = 0; o < outer; ++o) {
    for (int64_t i = 0; i < inner; ++i) softmax_row(y.data() + o * count * inner + i, count, inner, attrs.log);
  }
  return output_from(call, y);
}

}  // namespace tamp::ops
