#pragma once

#include "compiler/ir/graph.h"

namespace tamp::passes {

// a = Slice(x) {starts=[0,4]} -> f32[2,4]                       s = Slice(w) {starts=[0,0]} -> f32[2,4]
// n = Elementwise(a) {neg(i0)} -> f32[2,4]                      t = Slice(w) {starts=[0,4]} -> f32[2,4]
// b = Slice(x) {starts=[0,0]} -> f32[2,4]                   =>  p = Elementwise(a, s) {neg(i0), mul(s0, i1)} -> f32[2,4]
// c = Concat(n, b) {axis=1} -> f32[2,8]                         q = Elementwise(b, t) {mul(i0, i1)} -> f32[2,4]
// y = Elementwise(c, w) {mul(i0, i1)} -> f32[2,8]               y = Concat(p, q) {axis=1} -> f32[2,8]
//
// A chain behind a Concat is computed for each operand of the Concat, and the Concat comes behind it. So there is one level instead of two:
// what would be copied into the Concat is read where it lies, and what a chain makes for the Concat becomes the beginning of the new chain.
// Rotary position embedding, as it is written out, is such a Concat. Only where all operands are one or the other: what a convolution
// makes for a Concat is free, and the chain behind it is one level either way. A Concat of columns that a Reshape joins, so that the
// operands' elements take turns, counts as well. Needs fuse_elementwise.
Graph split_at_concats(Graph graph);

}  // namespace tamp::passes
