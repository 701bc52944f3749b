// Recurrent networks as rOperators. One `Recurrent` is a set of cells that run through their sequences together: a single
// LSTM, both directions of one, a stack of layers, or an encoder and its decoder. The frontend and passes/lift_recurrences make
// one cell a direction; passes/stack_recurrences joins what can run as one wave.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "compiler/ir/length.h"

namespace tamp {

enum class CellKind : uint8_t { lstm, gru, rnn };
std::span<const char* const> names_of(CellKind);
// Rows of W and R in the order of ONNX: lstm i,o,f,c; gru z,r,h; rnn one.
constexpr int64_t gates_of(CellKind kind) { return kind == CellKind::lstm ? 4 : kind == CellKind::gru ? 3 : 1; }

// The activations of ONNX's recurrent operators, by their definitions there.
enum class CellFunctionKind : uint8_t {
  sigmoid,
  tanh,
  relu,
  affine /*a x + b*/,
  leaky_relu /*a*/,
  thresholded_relu /*x > a ? x : 0*/,
  scaled_tanh /*a tanh(b x)*/,
  hard_sigmoid /*clip(a x + b, 0, 1)*/,
  elu /*a*/,
  softsign,
  softplus,
};
std::span<const char* const> names_of(CellFunctionKind);
struct CellFunction {
  CellFunctionKind kind = CellFunctionKind::sigmoid;
  float a = 0, b = 0;
  bool operator==(const CellFunction&) const = default;
};

// The functions f, g, h of a model that names none. lstm: sigmoid, tanh, tanh; gru: sigmoid, tanh; rnn: tanh. Functions that the kind does
// not use are sigmoid.
constexpr std::array<CellFunction, 3> default_functions(CellKind kind) {
  constexpr CellFunction s{CellFunctionKind::sigmoid, 0, 0}, t{CellFunctionKind::tanh, 0, 0};
  if (kind == CellKind::lstm) return {s, t, t};
  if (kind == CellKind::gru) return {s, t, s};
  return {t, s, s};
}

// One cell: one layer in one direction, over `steps` steps. T = steps, B = Recurrent::batch, I = its input's size, H = hidden,
// G = gates_of(kind). Operands are positions in ROperator::inputs, results positions in ROperator::outputs, cells positions in
// Recurrent::cells (always smaller than the cell's own); -1 = none.
struct RecurrentCell {
  CellKind kind = CellKind::lstm;
  int64_t steps = 0, hidden = 0;
  bool reverse = false;              // step s reads x[T-1-s] and writes y[T-1-s]
  bool linear_before_reset = false;  // gru
  bool input_forget = false;         // lstm: f = 1 - i (ONNX input_forget)
  float clip = 0;                    // arguments of the gates' activations (f, g; never lstm's h) are clipped to [-clip, clip]; 0 = not
  std::array<CellFunction, 3> functions;  // f, g, h of ONNX; gru uses two, rnn one

  // The input sequence: an operand, or the hidden states of another cell of this rOperator (same steps, same direction).
  int32_t x = -1;  // [T,B,I]; with x_is_gates [T,B,G*H]: W x + Wb (not Rb) has been computed ahead, `w` is -1
  int32_t x_cell = -1;
  bool x_is_gates = false;
  int32_t w = -1;          // [G*H, I]
  int32_t r = -1;          // [G*H, H]
  int32_t bias = -1;       // [2*G*H]: Wb then Rb; with x_is_gates Wb is zero. -1 = zeros
  int32_t peepholes = -1;  // lstm [3*H]: i, o, f
  // [B] i32: steps of each sequence. At a time t >= its length y is zero and the state stays as it is, in either direction, so
  // that `reverse` begins at the end of each sequence. A sequence of no steps (length 0 or less) has states of zero from the start.
  int32_t lengths = -1;
  // The cell makes only so many steps: a length of run time (docs/adr/0049). Not of a cell that is `reverse`, whose first step is the last.
  std::optional<Extent> end{};
  // Initial state: operands [B,H], or the final state of another cell. None = zeros.
  int32_t h0 = -1, c0 = -1;
  int32_t h0_cell = -1, c0_cell = -1;

  int32_t y = -1;              // [T,B,H]
  int32_t y_h = -1, y_c = -1;  // [B,H]
  bool operator==(const RecurrentCell&) const = default;

  static void fields(auto& cell, auto&& f) {
    f("kind", cell.kind);
    f("steps", cell.steps);
    f("hidden", cell.hidden);
    f("reverse", cell.reverse, false);
    f("linear_before_reset", cell.linear_before_reset, false);
    f("input_forget", cell.input_forget, false);
    f("clip", cell.clip, 0.0F);
    f("functions", cell.functions, default_functions(cell.kind));
    f("x", cell.x, kNone);
    f("x_cell", cell.x_cell, kNone);
    f("x_is_gates", cell.x_is_gates, false);
    f("w", cell.w, kNone);
    f("r", cell.r, kNone);
    f("bias", cell.bias, kNone);
    f("peepholes", cell.peepholes, kNone);
    f("lengths", cell.lengths, kNone);
    f("end_", cell.end);
    f("h0", cell.h0, kNone);
    f("c0", cell.c0, kNone);
    f("h0_cell", cell.h0_cell, kNone);
    f("c0_cell", cell.c0_cell, kNone);
    f("y", cell.y, kNone);
    f("y_h", cell.y_h, kNone);
    f("y_c", cell.y_c, kNone);
  }

 private:
  static constexpr int32_t kNone = -1;
};

struct Recurrent {
  int64_t batch = 1;
  std::vector<RecurrentCell> cells;
  bool operator==(const Recurrent&) const = default;

  static constexpr const char* kName = "Recurrent";
  static void fields(auto& op, auto&& f) {
    f("batch", op.batch);
    f("cell", op.cells);
  }
};

}  // namespace tamp
