// Questions about an rOperator, fused or not: the products that it consists of, and the type in which its bodies keep values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "compiler/ir/graph.h"

namespace tamp {

// The step of an Elementwise that has just one, with the inputs in order as its operands; null for everything else.
const ElementwiseStep* single_step(const ROperator& rop);

// A convolution or a product with constants.
struct PlainProduct {
  int64_t channels = 0, taps = 1, groups = 1;  // channels: of the input, of a group
  int64_t outputs = 0, rows = 0;               // elements of the result; rows or pixels of it
  bool is_map = false;                         // channels are dimension 1 of the result, not the last one
};
std::vector<PlainProduct> products_of(const Graph& graph, const ROperator& rop);

// Whether all that is in the tensor's memory are whole numbers, because the steps that made them round. Of constants one number is looked
// at, and no more.
bool holds_whole_numbers(const Graph& graph, TensorId id);

// The least and the greatest number that a tensor's memory may hold, where all that makes it says that they are whole and between bounds;
// else nothing. The steps that round have such bounds (a quantisation's are those of its type), and views and poolings keep them.
struct WholeRange {
  int64_t low, high;
};
std::optional<WholeRange> whole_range(const Graph& graph, TensorId id);

// Whether the rOperator convolves maps, on which its bodies on tensor cores have boxes.
bool convolves(const ROperator& rop);
// Whether products of the rOperator get their operands as rows of 16 bits, whatever lies in memory. One row alone is kept whole
// (kernels/product/row_feed_forward.cuh).
bool keeps_rows_of_16_bits(const ROperator& rop);
// Whether the rows that a product reads are normalised in its sums, which are partial and of fp32 (docs/adr/0022).
bool normalizes_in_sums(const ROperator& rop);
// Whether a product hands on moments of its rows, or normalises rows by them (docs/adr/0035).
bool is_by_moments(const ROperator& rop);
// For each buffer of a placed graph whether a product normalises its rows itself, by moments.
std::vector<bool> normalized_by_moments(const Graph& placed);
// Whether result `k` are numbers about the first result, moments or sums, which are fp32 in every precision.
bool result_is_numbers(const ROperator& rop, size_t k);

}  // namespace tamp
