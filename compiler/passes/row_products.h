// Tools of passes and patterns that change rows and their products.
#pragma once

#include <optional>
#include <vector>

#include "compiler/ir/graph.h"

namespace tamp::passes {

// A product of rows with constant weights.
bool is_row_product(const Graph& graph, const ROperator& rop);

// The only producer of `rows`, looking through Reshapes that keep rows; none if `rows` has several readers.
ROperatorId only_maker_of(const Graph& graph, const Uses& uses, TensorId rows);

// The weights of a MatMul as [K, N], alpha times, and its bias, or zeros; with the scale and shift of the Normalize in front, if given.
struct ProductValues {
  std::vector<float> weights, bias;
};
ProductValues values_of_product(const Graph& graph, const ROperator& product, const ROperator* normalize = nullptr);

// The numbers of a constant table, if they are all numbers from 0 to count - 1, each once.
std::optional<std::vector<int64_t>> permutation_of(const Tensor& table, int64_t count);

// The tensor, or a view of it, in this shape; the view's Reshape is appended to `views`.
TensorId in_shape(Graph& graph, std::vector<ROperator>& views, TensorId id, const Shape& shape);

}  // namespace tamp::passes
