// Quantised numbers carried by floats.
#pragma once

#include "compiler/ir/graph.h"

namespace tamp::passes {

// Quantised integers of 8 bits, and the i32 that are made of them, become f32 tensors that hold the same whole numbers less their zero
// point. f32, tf32 and fp16 all hold these exactly, products of two of them, too, and sums of products as long as they are below 2^24. So
// a product of integers becomes one of floats, which has fast bodies, and a quantisation a single step behind it:
//   a = Elementwise(x, scale) {div(i0, i1)} -> f32[1,8]
//   b = Elementwise(a) {round(i0)} -> f32[1,8]                          a = Elementwise(x, scale) {div(i0, i1)} -> f32[1,8]
//   c = Elementwise(b, three) {add(i0, i1)} -> f32[1,8]                 b = Elementwise(a) {rounded(i0; -3, 252)} -> f32[1,8]
//   d = Elementwise(c) {clip(i0; 0, 255)} -> f32[1,8]          =>
//   q = Elementwise(d) {cast(i0)} -> u8[1,8]
//   i = Elementwise(q) {cast(i0)} -> i32[1,8]
//   s = Elementwise(i, three) {sub(i0, i1)} -> i32[1,8]
//   m = MatMul(s, w) -> i32[1,4]                                        n = MatMul(b, w') -> f32[1,4]
//   n = Elementwise(m) {cast(i0)} -> f32[1,4]
// Where sums may be larger, they must become f32 behind: that rounds them to 24 bits as well. Integers that something else reads stay
// beside their floats.
Graph carry_integers(Graph graph);

}  // namespace tamp::passes
