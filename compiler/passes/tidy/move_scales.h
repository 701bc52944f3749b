// Scales of dynamic quantisation.
#pragma once

#include "compiler/ir/graph.h"

namespace tamp::passes {

// Dynamic quantisation finds the scale of a tensor at run time, so it is in no weights, and it is a step behind the product that no
// epilogue takes. Where activations lie in 16 bits anyway, in fp16 and bf16, this number goes in front of the product, to the steps that
// make the whole numbers. What is constant of the scale goes into the weights:
//   m = MatMul(q, w) -> f32[8,64]
//   f = Elementwise(scale, c) {mul(i0, i1)} -> f32[]             p = Elementwise(q, scale) {mul(i0, i1)} -> f32[8,32]
//   y = Elementwise(m, f) {mul(i0, i1)} -> f32[8,64]      =>     y = MatMul(p, w') -> f32[8,64], w' = w * c
// In fp16 an element of p has an error of 2^-12 of itself at most, where half a step of the quantisation is 2^-9 of the range. fp32 and
// tf32 keep products of whole numbers, which are exact.
Graph move_scales(Graph graph);

}  // namespace tamp::passes
