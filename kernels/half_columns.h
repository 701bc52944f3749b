// Whether fp16 holds a product's operands as exactly as tf32 (docs/adr/0026), for bodies that look at their weights themselves.
#pragma once

#include <cstdint>
#include <optional>

#include "compiler/ir/graph.h"

namespace tamp::kernels {

// Values that fp16 holds with all bits of tf32: up to half of its largest number, since sums are rounded, and what is small may lose bits
// only beside something so much larger.
inline constexpr double kLargestHeld = 32768, kSmallestHeld = 0x1p-10;

// The length (Euclidean) of a column of weights [rows, columns], from which Cauchy and Schwarz bound what a product makes. None where fp16
// does not hold the column's largest weight so, or where one is not finite. `smallest`: of the largest weight of a column; 0 where what is
// lost of small weights does not matter.
std::optional<double> held_column_length(const float* weights, int64_t rows, int64_t columns, int64_t column,
                                         double smallest = kSmallestHeld);

// Whether the tensor is fp16 in a program of tf32, by a proof about its values. Then that proof also says that what fp16 loses of the
// weights of products that read it does not matter: else it would be fp32 (passes/value_bounds.h).
bool is_proven(const Graph& placed, TensorId id);

}  // namespace tamp::kernels
