#pragma once

#include "compiler/ir/graph.h"

namespace tamp::passes {

// y = Softmax(x) {end}  =>  y = Softmax(where(valid, x, -inf)), where valid is 1 before the end and 0 behind it.
// Keeps: shapes, origin; what lies behind the end is 0 either way.
Graph mask_softmax(Graph graph);

}  // namespace tamp::passes
