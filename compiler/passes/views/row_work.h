#pragma once

#include <optional>
#include <vector>

#include "compiler/ir/graph.h"

namespace tamp::passes {

// An rOperator that works on each row (along the last dimension) alone. `mains` are the numbers of the operands whose rows these are; the
// other operands are the same for all rows.
struct RowWork {
  std::vector<size_t> mains;
};

// Normalisation along rows, products with constant weights, elementwise steps; nothing for all else.
std::optional<RowWork> row_work(const Graph& graph, const ROperator& rop);

}  // namespace tamp::passes
