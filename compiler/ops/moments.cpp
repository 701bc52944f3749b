#include "compiler/ops/moments.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "compiler/support/error.h"
#include "compiler/support/text.h"

namespace tamp::ops {

std::vector<double> moments_of_rows(const std::vector<double>& y) {
  std::vector<double> moments;
  for (size_t part = 0; part < y.size(); part += kMomentColumns)
    append_moments([&](int64_t i) { return y[part + static_cast<size_t>(i)]; }, moments);
  return moments;
}

int64_t rows_of(const Shape& shape) { return element_count(shape) / std::max<int64_t>(1, shape.back()); }
Shape moments_of(const Shape& shape) { return {rows_of(shape), shape.back() / kMomentColumns, 2}; }

void check_columns(const char* operand, const Shape& shape) {
  if (shape.back() % kMomentColumns != 0 || shape.back() == 0)
    throw bad_input(std::string(operand) + " has shape " + shape_text(shape) + ", expected rows of a multiple of " +
                    std::to_string(kMomentColumns));
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
