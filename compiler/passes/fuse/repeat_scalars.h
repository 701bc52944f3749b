#pragma once

#include "compiler/ir/estimator.h"
#include "compiler/ir/graph.h"

namespace tamp::passes {

// s = Elementwise(a, b) {sub(i0, i1)} -> f32[]                =>   y = Elementwise(x, a, b) {sub(i1, i2), div(i0, s0)} -> f32[8,64]
// t = Elementwise(s) {neg(i0)} -> f32[]                            z = Elementwise(w, a, b) {sub(i1, i2), neg(s0), mul(i0, s1)} ->
// f32[8,64] y = Elementwise(x, s) {div(i0, i1)} -> f32[8,64] z = Elementwise(w, t) {mul(i0, i1)} -> f32[8,64]
//
// One number costs nothing to compute again, and a level to wait for: the scale and the zero point of a dynamic quantisation are such.
// Each chain computes those that it reads, as far as 8 operands and 16 steps allow. Kept where the estimate of the whole graph is less,
// since each element pays for the steps.
Graph repeat_scalars(Graph graph, const GraphEstimator& graphs);

}  // namespace tamp::passes
