#include "kernels/half_columns.h"

#include <algorithm>
#include <cmath>

#include "kernels/narrow.h"

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

bool hold_normalised_product(const float* weights, const float* bias, int64_t rows, int64_t columns) {
  double all = 0;
  for (int64_t c = 0; c < columns; ++c) {
    const std::optional<double> length = held_column_length(weights, rows, columns, c);
    const double shift = bias == nullptr ? 0 : std::abs(static_cast<double>(bias[c]));
    if (!length || !(*length * std::sqrt(static_cast<double>(rows)) + shift <= kLargestHeld)) return false;
    all += *length * *length;
  }
  return std::sqrt(all / static_cast<double>(columns)) >= kSmallestHeld;
}

std::optional<DType> operand_type(const ShapedVDevice& vdevice, Precision precision, DType x, DType z,
                                  const std::function<bool()>& halves_keep_all) {
  const bool is_tf32 = precision == Precision::tf32;
  if (is_tf32 ? !vdevice.fp16 : !has_narrow_activations(precision)) return std::nullopt;
  const DType type = precision == Precision::bf16 ? DType::bf16 : DType::f16;
  for (const DType own : {x, z}) {
    if (own != DType::f32 && (is_tf32 || own != type)) return std::nullopt;
  }
  return !is_tf32 || halves_keep_all() ? std::optional(type) : std::nullopt;
}

bool is_proven(const Graph& placed, TensorId id) {
  const BufferId buffer = placed.tensor(id).place.buffer;
  return buffer.valid() && placed.buffers[buffer.index()].largest > 0;
}

}  // namespace tamp::kernels
