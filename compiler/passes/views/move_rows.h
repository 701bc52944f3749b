#pragma once

#include "compiler/ir/estimator.h"
#include "compiler/ir/graph.h"

namespace tamp::passes {

// n = Normalize(x) {axes=[3]} -> f32[1,4,4,32]                      =>  p' = MatMul(Normalize(x, rows=table), w) -> f32[4,4,32]
// v = Reshape(n) -> f32[1,2,2,2,2,32]                                   z = Gather(x, table) -> f32[4,4,32]
// t = Transpose(v) {perm=[0,1,3,2,4,5]} -> f32[1,2,2,2,2,32]            y' = Elementwise(z, p') {add(i0, i1)} -> f32[4,4,32]
// f = Reshape(t) -> f32[4,4,32]                                         y = Gather(y', table) -> f32[1,4,4,32]
// p = MatMul(f, w) -> f32[4,4,32]
// .. and back: q = p in the order of x
// y = Elementwise(x, q) {add(i0, i1)} -> f32[1,4,4,32]
//
// Concerns data movement that only puts rows (along the last dimension) into another order that no strides can express. Such a movement is
// moved behind rOperators that work on each row alone: normalisation along rows, products with constant weights, elementwise steps. There
// it meets the next movement, and the two become one, or cancel. A movement that is left becomes a Gather with constant indices, or a
// Normalize that reads its rows where they are. Runs after canonicalise.
//
// q, k, v = views of rows by table: f32[4,2,4,16]    =>  q', k', v' = views of the rows as they are: f32[2,16,16]
// a = Attention(q, k, v, bias) -> f32[4,2,4,16]          a' = Attention(q', k', v', bias, table) -> f32[2,16,16]
// y = Reshape(Transpose(a)) -> f32[4,4,32]               y = Gather(Reshape(Transpose(a')) -> f32[16,32], table)
//
// Attention within windows, of up to 64 rows and with heads of up to 32 columns, may be moved over, too: it takes the rows of each window
// by a table, where the vDevice has a rKernel for that. Needs: one table of all rows for Q, K and V, views in which windows and heads lie
// as passes/window_heads.h says, and a result that is read by views alone which put its heads side by side.
Graph move_rows(Graph graph, const Estimator& estimator = {});

}  // namespace tamp::passes
