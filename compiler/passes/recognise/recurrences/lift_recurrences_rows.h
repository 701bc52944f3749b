// Matrices inside tensors: where the operand of a cell comes from, seen through all views. Internal to lift_recurrences.
#pragma once

#include <optional>
#include <unordered_map>
#include <vector>

#include "compiler/ir/graph.h"

namespace tamp::passes::lift {

// A matrix [rows, cols]; element (i, j) is number offset + i * row_stride + j * col_stride of the tensor `root` in row-major order. Strides
// of extent 1 are 0, so equal matrices compare equal. Example: columns 4 to 7 of a root [3,8] have offset 4, rows 3, cols 4, row_stride 8,
// col_stride 1; element (2, 1) is number 4 + 2 * 8 + 1 = 21.
struct Rows {
  TensorId root;
  int64_t offset = 0, rows = 0, cols = 0, row_stride = 0, col_stride = 0;
  bool operator==(const Rows&) const = default;
};

int64_t count_of(const Graph& graph, TensorId id);

// All of a tensor; cols is its last extent.
Rows all_rows(const Graph& graph, TensorId id);
bool is_all(const Graph& graph, const Rows& rows);

// Rows row, row + step, ... and columns [col, col + cols) of a matrix.
struct RowRange {
  int64_t row = 0, step = 1, rows = 0, col = 0, cols = 0;
};
Rows part_of(const Rows& whole, const RowRange& range);

// The matrix as rows of its root [.., N]; nothing if it is a part that crosses them.
std::optional<RowRange> range_of(const Graph& graph, const Rows& rows);

// Sees through Reshape, Transpose and Slice, and through a Concat into the operand that the view picks.
class Views {
 public:
  Views(const Graph& graph, const Uses& uses) : graph_(graph), uses_(uses) {}

  // A tensor as a matrix whose columns are its last dimension; `id` itself is the root where strides cannot say more.
  Rows rows_of(TensorId id) const;
  // The tensor that `id` is another shape of, or `id` itself.
  TensorId whole_of(TensorId id) const;

 private:
  std::optional<Rows> through_views(TensorId id) const;
  TensorId part_of_concat(const Rows& rows) const;

  const Graph& graph_;
  const Uses& uses_;
  mutable std::unordered_map<size_t, std::vector<int64_t>> starts_;  // of a Concat's operands, per rOperator
};

}  // namespace tamp::passes::lift
