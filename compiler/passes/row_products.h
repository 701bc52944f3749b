// What the passes that change products of rows (defer_normalize, fuse_feed_forward) have in common.
#pragma once

#include <string>
#include <vector>

#include "compiler/ir/graph.h"

namespace tamp::passes {

// Whether the result has its operand's elements in their order: a Reshape, or a Transpose that moves dimensions of one element alone.
// Example: attention as PyTorch exports it for batch 1 turns [1,197,768] into [197,1,768].
bool keeps_order(const Graph& graph, const ROperator& rop);

// A product of rows with constant weights.
bool is_row_product(const Graph& graph, const ROperator& rop);

// The tensor, or a view of it, in this shape; the view's Reshape is appended to `views`.
TensorId in_shape(Graph& graph, std::vector<ROperator>& views, TensorId id, const Shape& shape);

}  // namespace tamp::passes
