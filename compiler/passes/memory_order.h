// The order of dimensions that each tensor should best have in memory, found before tensors are placed. Internal to assign_layout.
#pragma once

#include <vector>

#include "compiler/ir/graph.h"

namespace tamp::passes {

// Per tensor: strides as if every rOperator's result had a memory of its own. Results of Conv and Pool are channels-last (N,H,W,C or
// N,L,C), Elementwise, Lrn and Pad keep the order of their operand, Concat that of its largest operand, views follow from their
// source, and everything else, and every graph output, is row-major.
std::vector<std::vector<int64_t>> preferred_strides(const Graph& graph, int64_t cell);

// N,H,W,C or N,L,C; any other rank row-major. 16-byte accesses and the copy engine (lies_for_boxes) need pixels that begin at multiples of
// 16 bytes. So where there are many channels (kPaddedChannels), pixels of an image are padded: to a multiple of four if their number is
// none, else to a multiple of `cell`. 42 channels become 44, and with a `cell` of 8, 44 channels become 48. (42 do not become 48:
// kernels/vectors.h takes the elements behind the channels for padding only if pixels have the next multiple of four.)
std::vector<int64_t> channels_last_strides(const Shape& shape, int64_t cell);

}  // namespace tamp::passes
