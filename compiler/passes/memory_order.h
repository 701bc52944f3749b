// Which order of dimensions a tensor would best have in memory, before anything is placed. Internal to assign_layout.
#pragma once

#include <vector>

#include "compiler/ir/graph.h"

namespace tamp::passes {

// Per tensor: strides as if every rOperator's result had a memory of its own. Results of Conv and Pool are channels-last (N,H,W,C or
// N,L,C), Elementwise, Lrn and Pad keep the order of what they read, Concat that of its largest operand, views follow from their
// source, and everything else, and every graph output, is row-major.
std::vector<std::vector<int64_t>> preferred_strides(const Graph& graph, int64_t cell);

// N,H,W,C or N,L,C; any other rank row-major. Where there are many channels, but no multiple of four, pixels of an image are padded to
// one, and multiples of four to one of `cell`: 16-byte accesses and the copy engine (lies_for_boxes) want them to begin at 16 bytes.
// (Not 42 to 48: that the elements behind 42 are nobody's is seen by there being two of them, kernels/vectors.h.)
std::vector<int64_t> channels_last_strides(const Shape& shape, int64_t cell);

}  // namespace tamp::passes
