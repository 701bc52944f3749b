// Which rOperators a rOperator waits for. Views (concat slices, transposed or reshaped tensors) share buffers, so elements are compared,
// not tensor names: the writer of an element is the first rOperator in order that has the element in an output; behind a loop it is the one
// that ends an iteration (ROperator::ends_iteration).
#pragma once

#include <cstdint>
#include <vector>

#include "compiler/ir/graph.h"

namespace tamp::schedule {

struct Dependencies {
  std::vector<std::vector<ROperatorId>> producers;  // per rOperator: those that write elements it reads; ascending
  std::vector<bool> is_view;  // per rOperator: writes nothing, since its elements are written by others or there are none
};

Dependencies find_dependencies(const Graph& graph);

// The length of the longest chain of rOperators in which each needs the one before; views are not counted.
int64_t depth_of(const Dependencies& dependencies);

}  // namespace tamp::schedule
