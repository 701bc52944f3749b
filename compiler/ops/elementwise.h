// A run of elements on their way through a chain of elementwise steps; between elementwise.cpp (the chain) and
// elementwise_step.cpp (the functions). Internal to compiler/ops.
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

// One function on operands that are all floats, or all integers and bools; `out` is of the same kind; the results in it are not yet rounded
// or wrapped (a truth is 0 or 1). Error (unsupported), beginning with `where`: the function has no such form.
void run_function(const ElementwiseStep& step, const Operands& operands, const std::string& where, Strip& out);

}  // namespace tamp::ops
