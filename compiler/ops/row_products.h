// Steps of the references of rOperators that are products of rows with more around them (SelfAttention).
#pragma once

#include <vector>

#include "compiler/ops/call.h"

namespace tamp::ops {

// rows * weights + bias, row by row, for `count` rows of `k` values. weights, bias: places in the call's operands; the bias may be none.
std::vector<double> product_of_rows(const Call& call, const Numbers<double>& rows, int64_t count, int64_t k, size_t weights, size_t bias);

// (x - mean) / sqrt(variance + epsilon) of each row; without `centered` the mean counts as 0.
Value normalised_rows(const Value& x, bool centered, double epsilon);

}  // namespace tamp::ops
