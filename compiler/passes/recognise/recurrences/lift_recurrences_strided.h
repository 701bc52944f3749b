// The way back from strides to views: which Reshape, Slice and Transpose give a tensor. Internal to lift_recurrences.
#pragma once

#include <optional>
#include <vector>

#include "compiler/ir/graph.h"

namespace tamp::passes::lift {

// Element (i, j, ..) is number offset + i * strides[0] + j * strides[1] + .. of another tensor in row-major order.
struct Strided {
  int64_t offset = 0;
  Shape extents;
  std::vector<int64_t> strides;
};

struct ViewStep {
  OpAttrs attrs;
  Shape shape;  // of the result
};

// The views that turn a tensor of shape `from` into the one that `wanted` describes, in shape `to` (as many elements, in the same order).
// The list is empty if that is the tensor itself. Nothing where a dimension repeats elements or strides are no multiples of each other.
// Example: from [3,8], wanted offset 4, extents [3,4], strides [8,1] describes columns 4 to 7, which a Slice makes.
std::optional<std::vector<ViewStep>> view_steps(const Shape& from, const Strided& wanted, const Shape& to);

}  // namespace tamp::passes::lift
