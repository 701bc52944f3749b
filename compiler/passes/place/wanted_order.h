// In which order a rOperator would like to find an operand in memory. Internal to assign_layout, which puts a copy in front of the
// rOperator where that is faster.
#pragma once

#include <optional>
#include <vector>

#include "compiler/ir/graph.h"

namespace tamp::passes {

// Strides of a dense copy of operand `i` that suit `rop`: channels-last for convolutions, the dimension that is summed over innermost for
// products, normalisations and Softmax. Rows of many elements are padded as pixels are (channels_last_strides). Nothing where the order
// does not matter, or the operand lies in that order already, with rows and pixels at multiples of 16 bytes. Example: MatMul of
// f32[1,768,196] @ strides[0,1,768] by a constant, a map whose channels are its rows: strides[0,196,1] are wanted.
std::optional<std::vector<int64_t>> wanted_strides(const Graph& graph, const ROperator& rop, size_t i, int64_t cell);

}  // namespace tamp::passes
