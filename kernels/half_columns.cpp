#include "kernels/half_columns.h"

#include <algorithm>
#include <cmath>

namespace tamp::kernels {

std::optional<double> held_column_length(const float* weights, int64_t rows, int64_t columns, int64_t column, double smallest) {
  double largest = 0, squares = 0;
  for (int64_t row = 0; row < rows; ++row) {
    const double weight = std::abs(static_cast<double>(weights[row * columns + column]));
    if (!std::isfinite(weight)) return std::nullopt;
    largest = std::max(largest, weight);
    squares += weight * weight;
  }
  if (largest != 0 && (largest < smallest || largest > kLargestHeld)) return std::nullopt;
  return std::sqrt(squares);
}

bool is_proven(const Graph& placed, TensorId id) {
  const BufferId buffer = placed.tensor(id).place.buffer;
  return buffer.valid() && placed.buffers[buffer.index()].largest > 0;
}

}  // namespace tamp::kernels
