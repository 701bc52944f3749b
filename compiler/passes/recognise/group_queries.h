#pragma once

#include "compiler/ir/graph.h"

namespace tamp::passes {

// e = Elementwise(k) {identity(i0)} -> f32[1,3,4,7,8]           g = Reshape(q) -> f32[1,3,4,2,8]
// r = Reshape(e) -> f32[1,12,7,8]                          =>  h = Attention(g, k, v) -> f32[1,3,4,2,8]
// y = Attention(q, r, s) -> f32[1,12,2,8]                      y = Reshape(h) -> f32[1,12,2,8]
//
// Grouped-query attention: several heads of queries share one head of keys and values, here k and v of shape [1,3,1,7,8]. Exporters repeat
// keys and values for each head of queries, which copies all of them. Attention and MatMul broadcast instead, over a dimension of its own
// for the heads of a group; that dimension is a view of the queries, and of the result. Keys may be transposed in between, and the batch
// of one may be left out there; a single head of keys is broadcast as it is. Goes behind recognise_attention, which looks for products and
// sums of one shape.
Graph group_queries(Graph graph);

}  // namespace tamp::passes
