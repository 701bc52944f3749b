#pragma once

#include <functional>
#include <vector>

#include "compiler/ir/graph.h"

namespace tamp::passes {

// Microseconds of a Recurrent rOperator as one gang on the vDevice at hand, infinite if there is none that can run it.
// `input_sizes`: I of each cell. (kernels/recurrent/recurrent_gang.h; a function so that passes need no rKernels.)
using RecurrentCost = std::function<double(const Recurrent& recurrent, const std::vector<int64_t>& input_sizes)>;
// Microseconds of x[rows, k] times a constant [k, columns], anywhere on the vDevice.
using ProductCost = std::function<double(int64_t rows, int64_t columns, int64_t k)>;

// y = Recurrent(x, w, r) {cell=[LSTM x=0 w=1 r=2 y=0]}         z = Recurrent(x, w, r, w2, r2)
// z = Recurrent(y, w2, r2) {cell=[LSTM x=0 w=1 r=2 y=0]}  =>       {cell=[LSTM x=0 w=1 r=2], cell=[LSTM x_cell=0 w=3 r=4 y=0]}
//
// Joins recurrent rOperators that can run as one gang where that is estimated to be faster: layers (each step of the upper one
// as soon as the lower one has it), a decoder behind its encoder's final state, directions and independent networks side by
// side. What takes y's last step takes y_h instead. Then, per cell whose input is known as a whole, computes W x + Wb ahead as a MatMul
// where that is faster. Without `cost` nothing is done.
Graph stack_recurrences(Graph graph, const RecurrentCost& cost, const ProductCost& product);

}  // namespace tamp::passes
