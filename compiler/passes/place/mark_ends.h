#pragma once

#include "compiler/ir/graph.h"

namespace tamp::passes {

// Sets Tensor::ends: dimensions of a tensor of which nothing behind a length of run time is needed, so that rTasks that would make only
// that have nothing to do. Where no rule follows a length through an rOperator, all of its operands and results is needed. Example: of y =
// MatMul(x, w) with x[512,768] that ends at L of 512 rows, rows behind L of x and y are needed by nobody; of s = ReduceSum(y) {axes=[0]}
// they would be.
// Keeps: everything else. Needs: graph.lengths; without, it does nothing.
Graph mark_ends(Graph graph);

}  // namespace tamp::passes
