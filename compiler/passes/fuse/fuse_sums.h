#pragma once

#include "compiler/ir/estimator.h"
#include "compiler/ir/graph.h"

namespace tamp::passes {

// The sum of two quantised tensors becomes part of the product that makes one of them, the later one:
//   a = Conv(x, w) epilogue{act=rounded, a=-128, b=127} -> f32[1,64,56,56]
//   y = Elementwise(a, s, r, t) {mul(i0, i1), mul(i2, i3), add(s0, s1), rounded(s2; -128, 127)} -> f32[1,64,56,56]
//   => y = Conv(x, w) epilogue{residual=r, act=rounded, a=-128, b=127, scale=s, residual_scale=t, low=-128, high=127}
// So does a bias behind the rounding of a product, a constant row of whole multiples of a step: these whole numbers, for all rows, are the
// residual then, in the type of the results, and the step is its scale.
// Needs: s and t constants of one element, a read once, and a graph that is faster by the estimator, which knows whether there are bodies.
Graph fuse_sums(Graph graph, const GraphEstimator& graphs);

}  // namespace tamp::passes
