// Whether fp16 keeps what tf32 keeps of a product's operands (docs/adr/0026), for bodies that find out about their weights themselves.
#pragma once

#include <cstdint>
#include <optional>

namespace tamp::kernels {

// Values that fp16 holds with all bits of tf32: up to half of its largest number, since sums are rounded, and what is small may lose bits
// only beside something so much larger.
inline constexpr double kLargestHeld = 32768, kSmallestHeld = 0x1p-10;

// The length (Euclidean) of a column of weights [rows, columns], from which Cauchy and Schwarz bound what a product makes. None where fp16
// does not hold the column's largest weight so, or where one is not finite.
std::optional<double> held_column_length(const float* weights, int64_t rows, int64_t columns, int64_t column);

}  // namespace tamp::kernels
