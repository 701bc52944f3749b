// Views as strides: where the result of a Transpose, Slice or Reshape lies if it is not to be copied, and the other way round.
// Works on Placements alone; extents of 1 have stride 0 (compiler/ir/tensor.h).
#pragma once

#include <optional>
#include <vector>

#include "compiler/ir/graph.h"

namespace tamp::passes {

bool is_view(const OpAttrs& attrs);  // Transpose, Slice, Reshape

// Row-major order of the dimensions order[0] (outermost), order[1], ...
std::vector<int64_t> dense_strides(const Shape& shape, const std::vector<size_t>& order);
// The order of the dimensions that strides say, outermost first. Dimensions of extent 1 come first.
std::vector<size_t> order_of(const Shape& shape, const std::vector<int64_t>& strides);

// Where the result of the view `rop` lies, given its operand's place. Nothing if a Reshape needs a copy.
std::optional<Placement> view_place(const Graph& graph, const ROperator& rop, const Placement& source);

// Where the operand must lie for the result to lie at `result`. Nothing for a Slice, which does not determine the place of the elements
// outside of it, and for a Reshape that no strides can undo.
std::optional<Placement> source_place(const Graph& graph, const ROperator& rop, const Placement& result);

// The part of `whole` that begins at `start` along `axis`.
Placement part_place(const Placement& whole, int64_t axis, int64_t start, const Shape& part);

bool same_place(const Placement& a, const Placement& b);

}  // namespace tamp::passes
