#include "compiler/ops/row_products.h"

#include <cmath>
#include <optional>

#include "compiler/ops/moments.h"

namespace tamp::ops {

std::vector<double> product_of_rows(const Call& call, const Numbers<double>& rows, int64_t count, int64_t k, size_t weights, size_t bias) {
  const Numbers<double> w(call.input(weights));
  const int64_t columns = call.input(weights).shape[1];
  std::optional<Numbers<double>> b;
  if (call.has_input(bias)) b.emplace(call.input(bias));
  std::vector<double> y(static_cast<size_t>(count * columns));
  for (int64_t row = 0; row < count; ++row) {
    double* const to = y.data() + row * columns;
    for (int64_t n = 0; n < columns; ++n) to[n] = b ? (*b)[n] : 0;
    for (int64_t i = 0; i < k; ++i) {
      const double value = rows[row * k + i];
      for (int64_t n = 0; n < columns; ++n) to[n] += value * w[i * columns + n];
    }
  }
  return y;
}

Value normalised_rows(const Value& x, bool centered, double epsilon) {
  const Numbers<double> values(x);
  const int64_t columns = x.shape.back();
  std::vector<double> y(static_cast<size_t>(element_count(x.shape)));
  for (int64_t row = 0; row < rows_of(x.shape); ++row) {
    const int64_t begin = row * columns, end = begin + columns;
    double mean = 0, squares = 0;
    if (centered) {
      for (int64_t i = begin; i < end; ++i) mean += values[i] / static_cast<double>(columns);
    }
    for (int64_t i = begin; i < end; ++i) squares += (values[i] - mean) * (values[i] - mean);
    const double factor = 1 / std::sqrt(squares / static_cast<double>(columns) + epsilon);
    for (int64_t i = begin; i < end; ++i) y[static_cast<size_t>(i)] = (values[i] - mean) * factor;
  }
  return value_from(x.dtype, x.shape, y);
}

}  // namespace tamp::ops
