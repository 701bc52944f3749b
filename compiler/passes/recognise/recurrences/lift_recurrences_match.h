// The patterns of one LSTM, GRU and plain cell. Internal to lift_recurrences.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "compiler/passes/recognise/recurrences/lift_recurrences_cells.h"

namespace tamp::passes::lift {

// act(affine)
struct Gate {
  CellFunction function;
  Affine affine;
  std::vector<size_t> inner;
};

// (1 - z) * kept + z * other
struct Blend {
  TensorId z, kept, other;
  std::vector<size_t> inner;
};

// Matches the cell whose hidden state is made by rOperator number `rop`; nothing if it is no such cell. Whether others read values inside
// the cell is not checked here.
class Matcher : Source {
 public:
  explicit Matcher(const Source& source) : Source(source), collector_(source) {}

  std::optional<Cell> lstm_of(size_t rop) const;
  std::optional<Cell> gru_of(size_t rop) const;
  std::optional<Cell> rnn_of(size_t rop) const;

 private:
  using Pair = std::pair<TensorId, TensorId>;

  std::optional<Cell> begin(size_t rop, CellKind kind) const;
  // The Elementwise of one step `op` with two operands that makes a tensor (or what it is a shape of).
  const ROperator* maker(TensorId id, ElementwiseOp op) const;
  size_t index_of(const ROperator& rop) const { return static_cast<size_t>(&rop - graph_.rops.data()); }
  bool fills(const Cell& cell, TensorId id) const;  // [batch, hidden] in any shape
  bool same(TensorId a, TensorId b) const;
  std::optional<Gate> gate(const Cell& cell, TensorId id) const;
  std::optional<Gate> plain_gate(const Cell& cell, TensorId id) const;  // without products

  std::optional<Cell> lstm_with(Cell cell, TensorId output_gate, TensorId state) const;
  std::optional<Cell> lstm_with(Cell cell, const Gate& o, Pair forgotten, Pair added, bool gate_as_state) const;
  std::optional<Cell> lstm_with(Cell cell, const Gate& o, const Gate* f, Pair added) const;

  std::vector<Blend> blends_of(const ROperator& rop) const;
  void add_products_blends(const ROperator& left, const ROperator& right, std::vector<Blend>& blends) const;
  void add_difference_blends(TensorId kept, const ROperator& product, bool is_sum, std::vector<Blend>& blends) const;
  TensorId complement_of(TensorId id) const;  // z of 1 - z
  std::optional<Cell> gru_with(const Cell& begun, const Blend& blend, bool is_negated) const;
  bool is_before(const Cell& cell, TensorId id) const;
  bool add_reset(Cell& cell, Gate& n) const;
  bool add_reset_behind(Cell& cell, Gate& n) const;
  bool add_reset_ahead(Cell& cell, Gate& n) const;

  bool add_gate(Cell& cell, size_t number, const Gate& gate) const;
  bool add_terms(Cell& cell, size_t number, const std::vector<Term>& terms) const;
  bool is_complete(const Cell& cell) const;

  const Collector collector_;
};

std::optional<CellFunction> cell_function_of(const ROperator& rop);  // of an Elementwise of one step
bool is_odd_around_half(const CellFunction& f);                      // 1 - f(x) = f(-x)

}  // namespace tamp::passes::lift
