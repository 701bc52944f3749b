#pragma once

#include "compiler/ir/graph.h"

namespace tamp::passes {

// a = const f32[2] {1, 2}                             =>  b = const f32[2] {-1, -2}
// b = Elementwise(a) {neg(i0)} -> f32[2]
//
// Everything whose operands are all constant is evaluated by the reference. A result of more than 64 MiB, or beyond 1 GiB of
// results in all, or beyond ops::kFoldTotalWork, is left to run time: a few bytes of a model must not become gigabytes or minutes.
Graph fold_constants(Graph graph);

}  // namespace tamp::passes
