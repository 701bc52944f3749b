// Which rOperators a rOperator waits for. Views (concat slices, transposed or reshaped tensors) share buffers, so this is
// a question about elements, not about tensor names: the writer of an element is the first rOperator in order that has it
// in an output.
#pragma once

#include <cstdint>
#include <vector>

#include "compiler/ir/graph.h"

namespace tamp::schedule {

struct Dependencies {
  std::vector<std::vector<ROperatorId>> producers;  // per rOperator: those that write elements it reads; ascending
  std::vector<bool> is_view;                        // per rOperator: writes nothing: its elements are others' already, or none
};

Dependencies find_dependencies(const Graph& graph);

// The most rOperators of which each needs the one before, views not counted.
int64_t depth_of(const Dependencies& dependencies);

}  // namespace tamp::schedule
