#pragma once

#include "compiler/ir/graph.h"

namespace tamp::passes {

// y = MatMul(a, w) {} -> f32[1,2,4,32]                            =>  y = MatMul(a', w) {} -> f32[1,2,4,32]
// v = Reshape(y) -> f32[8,32]                                         v = Reshape(y) -> f32[2,128]
// n = Normalize(v, rows=[[0,4,1,5],[2,6,3,7]]) -> f32[2,128]          n = Normalize(v) -> f32[2,128]
//
// Swin's patch merging normalises four rows as one, which a table puts side by side. This pass puts all rows of the stage in front into the
// table's order. Then the four lie side by side, the table goes, and the normalisation may be no level of its own (passes/defer_normalize).
// A stage is all work on each row alone between rOperators that take rows by a table: tables of attention within windows and of other
// normalisations change, and a normalisation of a map's pixels, which has none, gets one. Where anything else reads a row, the stage stays
// as it is. The last stage is ordered first, since the order of each is in terms of the rows of the one behind it.
Graph order_rows(Graph graph);

}  // namespace tamp::passes
