#pragma once

#include "compiler/ir/estimator.h"
#include "compiler/ir/graph.h"

namespace tamp::passes {

// y = Recurrent(x, w, r) {cell=[LSTM x=0 w=1 r=2 y=0]}         z = Recurrent(x, w, r, w2, r2)
// z = Recurrent(y, w2, r2) {cell=[LSTM x=0 w=1 r=2 y=0]}  =>       {cell=[LSTM x=0 w=1 r=2], cell=[LSTM x_cell=0 w=3 r=4 y=0]}
//
// Joins recurrent rOperators that can run as one gang where that is estimated to be faster: layers (each step of the upper one as soon as
// the lower one has it), a decoder behind its encoder's final state, directions and independent networks side by side. A Slice of y's last
// step is replaced by y_h. Then, per cell whose input is known as a whole, computes W x + Wb ahead as a MatMul where that is faster.
// Without an estimator nothing is done.
Graph stack_recurrences(Graph graph, const Estimator& estimator);

}  // namespace tamp::passes
