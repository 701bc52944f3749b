// The arithmetic of a rOperator, for people: what the network asks for, whatever a rKernel pads, repeats or is priced by.
#pragma once

#include "compiler/ir/graph.h"

namespace tamp {

// A multiply-add counts as two; every other addition, multiplication, comparison and division, and every function (exp, erf, a square
// root), as one. What moves, selects or sorts elements counts nothing, and of recurrent cells only the products count. Example: a Softmax
// takes five an element (largest, difference, exp, sum, quotient).
double flops_of(const Graph& graph, const ROperator& rop);

}  // namespace tamp
