#pragma once

#include "compiler/ir/graph.h"

namespace tamp::passes {

// a = Elementwise(x) {identity(i0)} -> f32[2,3]  =>  b = Elementwise(x) {relu(i0)} -> f32[2,3]
// b = Elementwise(a) {relu(i0)} -> f32[2,3]
//
// Likewise Reshape to the same shape, Transpose that moves nothing, Slice of everything, Concat of one operand, Pad by nothing and
// cast to the same type. Keeps: names of graph outputs; so an output that is an input, a constant or another output stays a copy.
Graph remove_identities(Graph graph);

}  // namespace tamp::passes
