// Queries, keys and values of attention within windows, [..,rows,columns] with windows and then heads in front, as parts of the rows that
// they are views of: all of these rows, one window behind the other, with the heads' columns side by side.
// Example: 64 windows of 49 rows, rows of 288 elements, three heads of 32 columns. K[64,3,49,32] with the strides 49 * 288, 32, 288 and 1,
// from element 96 on, is columns 96 to 191 of 3136 rows.
#pragma once

#include <optional>

#include "compiler/ir/graph.h"

namespace tamp::passes {

struct WindowHeads {
  int64_t windows = 1, rows = 1;  // windows, and rows of each
  int64_t heads = 1, columns = 1;
  int64_t first = 0;             // column of the first head
  size_t window_dimensions = 0;  // so many of the leading dimensions are windows, the others heads

  bool same_parts(const WindowHeads& other) const {
    return windows == other.windows && rows == other.rows && heads == other.heads && window_dimensions == other.window_dimensions;
  }
};

// The windows and heads of a tensor of that shape and place, in memory whose rows have `row` elements; none if it has no such parts.
std::optional<WindowHeads> window_heads(const Shape& shape, const Placement& place, int64_t row);

// The tensor as heads of rows that it is a view of, which `maker` makes; none if it is no such view.
struct HeadsOfRows {
  ROperatorId maker;
  WindowHeads heads;
};
std::optional<HeadsOfRows> heads_of_rows(const Graph& graph, const Uses& uses, TensorId id);

// Where a tensor of that shape, with these dimensions of windows, lies in rows that have all heads' columns and nothing else.
Placement joined_place(const Shape& shape, size_t window_dimensions);

// A bias of the scores, which broadcasts to [..,rows,rows] with the leading dimensions `leading`, as [windows,heads,rows,rows],
// where each extent may be 1. Nothing if it is the same for some of several dimensions of windows, or of heads, but not for all.
std::optional<Shape> window_bias(const Shape& bias, const Shape& leading, size_t window_dimensions);

}  // namespace tamp::passes
