#pragma once

#include "compiler/ir/graph.h"

namespace tamp::passes {

// a = Attention(q, k, v) -> f32[2,3,5,4]                =>  t = Transpose(a) {perm=[0,2,1,3]} -> f32[2,5,3,4]
// t = Transpose(a) {perm=[2,0,1,3]} -> f32[5,2,3,4]         m = Reshape(t) -> f32[10,12]
// m = Reshape(t) -> f32[10,12]                              p = MatMul(m, w) -> f32[10,12]
// p = MatMul(m, w) -> f32[10,12]                            .. and p in the order that it had:
// r = Reshape(p) -> f32[5,2,12]                             r = Reshape(Transpose(Reshape(p) -> f32[2,5,12])) -> f32[5,2,12]
// y = Transpose(r) {perm=[1,0,2]} -> f32[2,5,12]            y = Transpose(r) {perm=[1,0,2]} -> f32[2,5,12]
//
// A product of a constant reads rows that views have put into another order. It is done in the order in which they lie in memory, and with
// it the bias and the activation behind it. Most often its result was put back into that order anyway; passes/join_views sees that. Stays
// as it is where somebody reads the result in the order that it has, or in one that would then need a copy.
Graph sink_transposes(Graph graph, int64_t cell);

}  // namespace tamp::passes
