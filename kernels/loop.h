// Iteration spaces of bodies that walk a tensor in memory order: a nest of dimensions, outermost first, with one stride per
// operand. Operand 0 is the one that is written. Dimensions that lie densely in each other for every operand become one.
// Example: extents 2, 3, 4 with strides 24, 4, 1 become 2, 12 with strides 24, 1.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "compiler/ir/graph.h"
#include "compiler/ir/rkernel.h"

namespace tamp::kernels {

struct LoopDim {
  int64_t extent = 1;
  std::vector<int64_t> strides;  // elements, one per operand; 0 where the operand is broadcast
};
using Loop = std::vector<LoopDim>;

int64_t loop_elements(const Loop& loop);
std::vector<int64_t> extents(const Loop& loop);
std::vector<int64_t> strides(const Loop& loop, size_t operand);
std::vector<int64_t> inner_extents(const Loop& loop);  // extents but the outermost: the divisors that decode an index

// Strides with which a placed tensor is walked in the shape `to`, to which it broadcasts.
std::vector<int64_t> broadcast_strides(const Tensor& tensor, const Shape& to);

// Elements from one row to the next, through all dimensions but the last; none where rows do not lie so, or not in whole vectors of so many
// elements.
std::optional<int64_t> row_stride(const Tensor& tensor, int64_t vector);

// Removes extents of 1, puts the dimensions in the order of operand 0's strides, and merges them.
Loop normalised(Loop loop);
void drop_units(Loop& loop);
void merge(Loop& loop);

// Elements [begin, end) of the flattened nest as a few boxes [low, high).
// Example: of extents 2, 3, 4 elements [3, 17) are four boxes: element 3, elements 4 to 11, 12 to 15, and 16.
using Box = std::function<void(const std::vector<int64_t>& low, const std::vector<int64_t>& high)>;
void for_each_box(const std::vector<int64_t>& extents, int64_t begin, int64_t end, const Box& box);

// Appends the memory that operand `operand`, which starts at element `offset` of its buffer, touches in elements [begin, end) of the nest.
void append_runs(const Loop& loop, size_t operand, TensorId tensor, int64_t offset, int64_t begin, int64_t end,
                 std::vector<Region>& regions);
// Appends the memory that the operand touches in the box [low, high) of the nest.
void append_nest_box(const Loop& loop, size_t operand, TensorId tensor, int64_t offset, const std::vector<int64_t>& low,
                     const std::vector<int64_t>& high, std::vector<Region>& regions);
// Strides of a matrix, and rows [row, row_end) and columns [column, column_end) of it.
struct MatrixStrides {
  int64_t row = 0, column = 0;
};
struct MatrixPart {
  int64_t row, row_end, column, column_end;
};
// A part of matrix number `matrix` of an operand whose matrices lie in the nest; nothing if the operand is none.
void append_matrix(const Graph& graph, TensorId id, const Loop& matrices, size_t operand, MatrixStrides strides, int64_t matrix,
                   const MatrixPart& part, std::vector<Region>& regions);
// The box [low, high) of a placed tensor, in logical coordinates.
void append_box(const Graph& graph, TensorId id, const std::vector<int64_t>& low, const std::vector<int64_t>& high,
                std::vector<Region>& regions);
// The whole of a placed tensor.
void append_whole(const Graph& graph, TensorId id, std::vector<Region>& regions);
// The values for channels [low, high) of the epilogue's bias, for bodies that read the bias unpacked; nothing if there is no bias.
void append_bias(const Graph& graph, const ROperator& rop, int64_t low, int64_t high, std::vector<Region>& regions);

}  // namespace tamp::kernels
