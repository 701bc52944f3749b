#pragma once

#include "compiler/ir/graph.h"

namespace tamp::passes {

// a = Slice(x) {starts=[0,0,0,0]} -> f32[1,32,40,40]          y = Concat(x, z) {axis=1} -> f32[1,96,40,40]
// b = Slice(x) {starts=[0,32,0,0]} -> f32[1,32,40,40]      =>
// y = Concat(a, b, z) {axis=1} -> f32[1,96,40,40]
//
// Neighbouring operands of a Concat that are all parts of one tensor, side by side as in that tensor and along the same axis, are that
// tensor. YOLO's blocks halve a map, work on one half, and join both halves and the work. The map can then be made where it is joined, and
// nothing is copied.
Graph join_slices(Graph graph);

}  // namespace tamp::passes
