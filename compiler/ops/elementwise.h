// A run of elements on their way through a chain of elementwise steps; between elementwise.cpp (the chain), and
// elementwise_real.cpp and elementwise_whole.cpp (the functions). Internal to compiler/ops.
#pragma once

#include <string>
#include <vector>

#include "compiler/ir/ops.h"

namespace tamp::ops {

// `real` holds the elements if dtype is a float type, else `whole` (u64: the bit pattern, bool: 0 or 1).
struct Strip {
  DType dtype = DType::f32;
  std::vector<double> real;
  std::vector<int64_t> whole;
};

using Operands = std::vector<const Strip*>;

// Functions whose result is a float: all operands are floats. Results are not rounded yet.
void real_step(const ElementwiseStep& step, const Operands& operands, Strip& out);

// Functions on integers and bool. bad_input, beginning with `where`, for a division by zero and the like; unsupported for
// functions that have no integer form. Results are not wrapped yet.
void whole_step(const ElementwiseStep& step, const Operands& operands, const std::string& where, Strip& out);

bool is_comparison(ElementwiseOp op);
// Comparisons; both operands are of the same kind. out is bool.
void compare_step(const ElementwiseStep& step, const Operands& operands, Strip& out);

}  // namespace tamp::ops
