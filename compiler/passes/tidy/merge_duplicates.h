#pragma once

#include "compiler/ir/graph.h"

namespace tamp::passes {

// a = Elementwise(m, zero, inf) {where(i0, i1, i2)} -> f32[1,1,1,128]         a  = Elementwise(m, zero, inf) {where(i0, i1, i2)}
// y = Attention(q, k, v, a) -> f32[1,12,1,64]                                 y  = Attention(q, k, v, a)
// b = Elementwise(m, zero2, inf2) {where(i0, i1, i2)} -> f32[1,1,1,128]  =>   y2 = Attention(q2, k2, v2, a)
// y2 = Attention(q2, k2, v2, b) -> f32[1,12,1,64]
//
// Common subexpression elimination: of rOperators that do the same with the same operands, the first one is kept. Exporters write the mask
// of a transformer, or the index of a token, once for every layer. Small constants are the same where their values are. Kept are
// rOperators whose results are graph outputs, since two outputs are two places in memory. Runs behind the passes that match patterns:
// many of them want a value that is read once.
Graph merge_duplicates(Graph graph);

}  // namespace tamp::passes
