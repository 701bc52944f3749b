#pragma once

#include "compiler/ir/graph.h"

namespace tamp::passes {

// c = const bool[1,1,128,1] {all true}
// b = Elementwise(c, m) {where(logical_and(i0, i1), 0, -inf)}      =>   b' = Elementwise(c', m) {..} -> f32[8,1,1,128]
//       of m = bool[8,1,1,128] -> f32[8,1,128,128]                      y  = Attention(q, k, v, b') -> f32[8,12,128,64]
// y = Attention(q, k, v, b) -> f32[8,12,128,64]
//
// A bias is made once for all queries, or for all heads, where it is the same for them: an attention broadcasts its bias, and loads the
// values of one row of keys for all its queries. Exporters write a mask of keys out for every query. Needs: an Elementwise that only biases
// of Attention read, and operands that are constant along the dimension, by their extent of 1 or by their values. Runs after
// fuse_elementwise, which makes one Elementwise of a mask's steps.
Graph shrink_biases(Graph graph);

}  // namespace tamp::passes
