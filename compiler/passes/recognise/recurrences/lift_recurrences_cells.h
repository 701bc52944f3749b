// One step of a recurrent layer, recognised from its hidden state backwards. Internal to lift_recurrences.
#pragma once

#include <array>
#include <optional>
#include <vector>

#include "compiler/ir/recurrent.h"
#include "compiler/passes/recognise/recurrences/lift_recurrences_affine.h"

namespace tamp::passes::lift {

// An operand that gates multiply by constant blocks. `tensor` as in Term; the blocks are in the gate order of ONNX.
struct Part {
  Rows operand;
  TensorId tensor;
  std::array<std::optional<Block>, 4> blocks;
};

struct Cell {
  CellKind kind = CellKind::lstm;
  std::array<CellFunction, 3> functions = {};
  bool linear_before_reset = false;
  int64_t batch = 0, hidden = 0;
  std::vector<Part> parts;                  // the inputs, and the hidden state before (unless it was zero and has been folded away)
  std::array<std::vector<Vector>, 4> bias;  // per gate, Wb + Rb
  std::vector<Vector> inner_bias;           // gru with linear_before_reset: Rb of h, which the reset gate scales; not in `bias`
  TensorId h, c;                            // what the step makes; c only lstm
  TensorId h_before;                        // gru; none = zeros
  TensorId c_before;                        // lstm; none = zeros
  bool has_forget_gate = true;              // lstm; may be left out where c_before is zero
  std::vector<size_t> inner;                // rOperators of the step, the one that makes h included
};

// All cells of the graph, in its order. Only the cell itself reads the results of its rOperators, except h, c and results of rOperators
// that only move data. No rOperator that computes belongs to two cells. Anything of the form act(W x + b) counts as a plain cell; whether
// it is a step of a recurrent network is found when cells are linked to chains.
std::vector<Cell> find_cells(const Source& source);

// Whether an rOperator that is not marked reads a tensor, or a view or Concat of it.
bool is_read_outside(const Graph& graph, const Uses& uses, TensorId id, const std::vector<bool>& is_inside);

}  // namespace tamp::passes::lift
