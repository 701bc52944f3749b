#pragma once

#include "compiler/ir/graph.h"

namespace tamp::passes {

// Channel shuffles (ShuffleNet): what a Concat put side by side is put one from each operand in turn.
//
// c = Concat(x, y) {axis=1} -> f32[1,116,28,28]               x2 = Reshape(x) -> f32[1,58,1,28,28]
// r = Reshape(c) -> f32[1,2,58,28,28]                     =>  y2 = Reshape(y) -> f32[1,58,1,28,28]
// t = Transpose(r) {perm=[0,2,1,3,4]} -> f32[1,58,2,28,28]    t = Concat(x2, y2) {axis=2} -> f32[1,58,2,28,28]
//
// Afterwards x and y can each be made where the shuffled channels lie, every second one, and no copy is left of the shuffle. Taken where
// the Reshape only divides the axis of the Concat into the operands and their elements, the Transpose swaps these two, and neither the
// Concat nor the Reshape has another reader.
Graph stack_concats(Graph graph);

}  // namespace tamp::passes
