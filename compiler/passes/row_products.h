// What the passes that change products of rows (defer_normalize, fuse_feed_forward) have in common.
#pragma once

#include <string>
#include <vector>

#include "compiler/ir/graph.h"

namespace tamp::passes {

inline TensorId input_or_none(const ROperator& rop, size_t i) { return i < rop.inputs.size() ? rop.inputs[i] : TensorId(); }

// A product of rows with constant weights.
bool is_row_product(const Graph& graph, const ROperator& rop);

// The tensor, or a view of it, in this shape; the view's Reshape is appended to `views`.
TensorId in_shape(Graph& graph, std::vector<ROperator>& views, TensorId id, const Shape& shape);

}  // namespace tamp::passes
