// What the passes that change rows and their products (defer_normalize, fuse_feed_forward, fuse_self_attention, order_rows) have in common.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "compiler/ir/graph.h"

namespace tamp::passes {

// A product of rows with constant weights.
bool is_row_product(const Graph& graph, const ROperator& rop);

// Who makes `rows`, apart from what keeps them; none where something else reads them, too.
ROperatorId only_maker_of(const Graph& graph, const Uses& uses, TensorId rows);

// The weights of a MatMul as [K, N], alpha times.
std::vector<float> weights_by_k(const Graph& graph, const ROperator& product);

// Moves a normalisation's scale and shift into weights [K, N], and into the bias behind them.
void take_scale_and_shift(const Graph& graph, TensorId scale, TensorId shift, std::vector<float>& weights, std::vector<float>& bias);

// The numbers of a constant table, if they are all numbers from 0 to count - 1, each once.
std::optional<std::vector<int64_t>> permutation_of(const Tensor& table, int64_t count);

// The tensor, or a view of it, in this shape; the view's Reshape is appended to `views`.
TensorId in_shape(Graph& graph, std::vector<ROperator>& views, TensorId id, const Shape& shape);

}  // namespace tamp::passes
