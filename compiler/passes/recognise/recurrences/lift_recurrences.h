#pragma once

#include "compiler/ir/graph.h"

namespace tamp::passes {

// x0 = Reshape(Slice(x) {starts=[0,0,0]}) -> f32[1,8]           =>  y, h1, c1 = Recurrent(x, w, r, bias) {batch=1, cell=(lstm ...)}
// g0 = MatMul(x0, u, b) -> f32[1,16]
// i0 = sigmoid(Slice(g0) {starts=[0,0]}) -> f32[1,4]
// ...
// h1 = o1 * tanh(c1) -> f32[1,4]
//
// For recurrent networks that an exporter wrote out step by step: each layer of LSTM, GRU or plain cells becomes one rOperator. Hidden
// states that others read become slices of y, and a Concat of them y itself. Needs: constant weights and biases, equal in all steps; inputs
// that are slices of one tensor at even distances, or that do not depend on the recurrence; two steps or more; nobody else reads a value
// inside a cell (a recurrence is cut where somebody reads the cell state). All else stays as it is.
Graph lift_recurrences(Graph graph);

}  // namespace tamp::passes
