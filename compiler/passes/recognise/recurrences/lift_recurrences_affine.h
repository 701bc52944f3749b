// The normal form of a gate before its activation: matrix products of operands with constants, plus constant vectors, however the
// exporter ordered, joined and sliced them. Internal to lift_recurrences.
#pragma once

#include <optional>
#include <unordered_map>
#include <vector>

#include "compiler/passes/recognise/recurrences/lift_recurrences_rows.h"

namespace tamp::passes::lift {

// scale * op(constant)[row .. row + rows, col .. col + cols), op = transposition or nothing; the constant is a matrix.
struct Block {
  TensorId constant;
  bool transposed = false;
  int64_t row = 0, rows = 0, col = 0, cols = 0;
  float scale = 1;
};

// scale * constant[col .. col + cols), or one value for all columns.
struct Vector {
  TensorId constant;
  int64_t col = 0, cols = 0;
  float scale = 1;
};

struct Term {
  Rows operand;
  TensorId tensor;  // whose value the operand is; none where it is only a part of one
  Block block;
};

// scale * a * b, element by element: the reset gate of a GRU. Whole tensors.
struct Product {
  TensorId a, b;
  float scale = 1;
};

struct Affine {
  std::vector<Term> terms;
  std::vector<Vector> vectors;
  std::vector<Product> products;
};

// Comparisons of the constants of cells. Constants with equal bytes are equal, whatever their names.
class Constants {
 public:
  explicit Constants(const Graph& graph) : graph_(graph) {}

  bool same(TensorId a, TensorId b) const;
  bool same(const Block& a, const Block& b) const;
  bool same(const std::vector<Vector>& a, const std::vector<Vector>& b) const;  // the sums, up to the rounding of one

  bool is_zero(TensorId id) const;
  bool is_one(TensorId id) const;
  // The constant broadcasts to [.., cols] and all its rows are equal.
  bool is_vector(TensorId id, int64_t cols) const;

  std::vector<double> sum(const std::vector<Vector>& vectors, int64_t cols) const;
  float value(const Block& block, int64_t row, int64_t col) const;

 private:
  bool is_filled(TensorId id, float value) const;

  const Graph& graph_;
  mutable std::unordered_map<size_t, TensorId> equal_;  // to an earlier one
  mutable std::unordered_map<size_t, bool> zero_, vector_;
};

// What the stages read; the base of their classes.
struct Source {
  const Graph& graph_;
  const Uses& uses_;
  const Views& views_;
  const Constants& constants_;
};

// Finds the affine form of a gate. The rOperators on the way that belong to this gate alone are added to `inner`.
class Collector : Source {
 public:
  explicit Collector(const Source& source) : Source(source) {}

  // The values of `rows` as an affine form; nothing if they have none, or if the sum has too many terms.
  std::optional<Affine> affine_of(const Rows& rows, std::vector<size_t>& inner) const;

 private:
  struct State {
    Affine affine;
    std::vector<size_t>* inner = nullptr;
    int visited = 0;
  };
  bool add(State& state, const Rows& rows, float scale) const;
  bool add_operand(State& state, const RowRange& range, TensorId operand, TensorId result, float scale) const;
  bool add_constant(State& state, TensorId constant, const RowRange& range, float scale) const;
  bool add_product(State& state, const ROperator& rop, const RowRange& range, float scale) const;
  bool add_terms(State& state, const Rows& operand, TensorId tensor, const Block& block) const;
};

}  // namespace tamp::passes::lift
