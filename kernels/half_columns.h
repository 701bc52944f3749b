// Whether fp16 holds a product's operands as exactly as tf32 (docs/adr/0026), for bodies that look at their weights themselves.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "compiler/ir/graph.h"
#include "compiler/ir/shaped_vdevice.h"

namespace tamp::kernels {

// Values that fp16 holds with all bits of tf32: up to half of its largest number, since sums are rounded, and what is small may lose bits
// only beside something so much larger.
inline constexpr double kLargestHeld = 32768, kSmallestHeld = 0x1p-10;

// The length (Euclidean) of a column of weights [rows, columns], from which Cauchy and Schwarz bound what a product makes. None where fp16
// does not hold the column's largest weight so, or where one is not finite. `smallest`: of the largest weight of a column; 0 where what is
// lost of small weights does not matter.
std::optional<double> held_column_length(const float* weights, int64_t rows, int64_t columns, int64_t column,
                                         double smallest = kSmallestHeld);

// Whether it keeps all of the columns of weights [rows, columns], and of their products with normalised rows, which are at most sqrt(rows)
// long, plus `bias` (null: none): such a value is at most that times the length of its column. What is small beside the largest weight of
// its column may lose bits.
bool hold_normalised_product(const float* weights, const float* bias, int64_t rows, int64_t columns);

// The type of 16 bits in which a body multiplies what comes as x and makes z of it: in a program of tf32 fp16, if halves_keep_all says so.
// None where there is none, or where x or z has another type of 16 bits.
std::optional<DType> operand_type(const ShapedVDevice& vdevice, Precision precision, DType x, DType z,
                                  const std::function<bool()>& halves_keep_all);

// Whether the tensor is fp16 in a program of tf32, by a proof about its values. Then that proof also says that what fp16 loses of the
// weights of products that read it does not matter: else it would be fp32 (passes/value_bounds.h).
bool is_proven(const Graph& placed, TensorId id);

}  // namespace tamp::kernels
