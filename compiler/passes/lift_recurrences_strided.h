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

// The views that make of a tensor of shape `from` what `wanted` says, in shape `to` (with as many elements in the same order); none
// if that is the tensor itself. Nothing where a dimension repeats or strides are no multiples of each other.
std::optional<std::vector<ViewStep>> view_steps(const Shape& from, const Strided& wanted, const Shape& to);

}  // namespace tamp::passes::lift
