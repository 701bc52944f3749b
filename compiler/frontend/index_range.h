// Which values an integer tensor can have, as far as that follows from the rOperators that make it: places in a sorted row, sums and
// products of such, what is cut off at both ends. For numbers of elements that must not leave their row.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "compiler/ir/graph.h"

namespace tamp::frontend {

struct NumberRange {
  int64_t least = 0, most = 0;
};

using Makers = std::map<TensorId, size_t>;  // the rOperator in Graph::rops that makes a tensor

// None if it is not known, or the tensor is not of i32 or i64.
std::optional<NumberRange> range_of(const Graph& graph, const Makers& makers, TensorId id);

// The values of a constant of i32 or i64.
std::vector<int64_t> whole_numbers(const Tensor& tensor);

}  // namespace tamp::frontend
