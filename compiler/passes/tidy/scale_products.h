// Scales of quantised numbers.
#pragma once

#include "compiler/ir/graph.h"

namespace tamp::passes {

// A quantised tensor is whole numbers times a scale. Products multiply the whole numbers, which are exact in every precision, and the scale
// goes into their weights, or is their factor (behind a convolution a step) where both operands are quantised:
//   a = Elementwise(x) {rounded(i0; -128, 127)} -> f32[1,8]
//   b = Elementwise(a, scale) {mul(i0, i1)} -> f32[1,8]
//   y = MatMul(b, w) -> f32[1,4]                            =>   y = MatMul(a, w') -> f32[1,4], w' = scale * w
// What stands between them and only moves numbers, or is their maximum, moves the whole numbers; a normalisation or a mean is that of whole
// numbers, with another epsilon, or the scale behind it.
// The sum of two quantised tensors, or of one and a constant, that is quantised itself is one of their whole numbers, each times a number,
// rounded; and their product is that of their whole numbers, times a number, rounded. Several factors of whole numbers are one.
// Where a product's result is quantised itself, the division by its scale becomes a multiplication, which fold_scales brings into the
// weights, too, and a relu or clip in front of it the bounds of the step that rounds:
//   b = Elementwise(y) {relu(i0)}                                b = Elementwise(y, reciprocal) {mul(i0, i1)}
//   c = Elementwise(b, scale) {div(i0, i1)}                 =>   d = Elementwise(b) {rounded(i0; 0, 127)}
//   d = Elementwise(c) {rounded(i0; -128, 127)}
Graph scale_products(Graph graph);

}  // namespace tamp::passes
