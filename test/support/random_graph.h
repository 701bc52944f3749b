// Small random graphs of every operator that passes look at: for "the answers stay" tests.
#pragma once

#include "compiler/ir/graph.h"

namespace tamp::test {

// Two inputs of rank 4, about `rops` rOperators (Conv, BatchNorm, Elementwise, Concat, Transpose, Slice, Reshape, MatMul), four
// outputs, which may be inputs or name one tensor twice. The same seed gives the same graph.
Graph random_graph(unsigned seed, int rops);

}  // namespace tamp::test
