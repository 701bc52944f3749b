#pragma once

#include "compiler/ir/estimator.h"
#include "compiler/ir/graph.h"

namespace tamp::passes {

// s = MatMul(a, w) epilogue{bias=b, residual=r}     =>   s, m = Fused { s = MatMul(a, w) epilogue{bias=b, residual=r}; m = Moments(s) }
// n = Normalize(s, scale, shift) {axes=[1]}              y = Fused { n = NormalizeBy(s, m);
// y = MatMul(n, v) epilogue{bias=c, act=gelu}                        y = MatMul(n, scale * v) epilogue{bias=c + shift * v, act=gelu} }
//
// A normalisation of rows between products is no rOperator of its own: the product in front of it also gives the moments of its rows, and
// those behind it take the rows as they are and put their results right by the moments. So there is one level less. Where something else
// reads the normalised rows, too (in BERT the next residual), the Normalize stays, beside these products. Reshapes that keep the last
// dimension may stand between them. In front there may also be a depthwise convolution whose pixels are the rows (ConvNeXt). Needs: f32, no
// activation in front, rows of a multiple of kMomentColumns, constants of one row as scale and shift, and no more than kMostDeferredRows
// rows: larger products are bound by arithmetic, and levels matter little to them. Keeps: answers, names, origins. Does nothing where
// `estimator` is empty. All normalisations of a kind (rows, columns, columns of the products behind) are changed, or none: none where the
// graph is not estimated to be clearly faster with the change.
//
// `rounds`: the program is tf32. Where values are known to be bounded it has the above; else rows stay in fp32, and the products read them
// in 16 bits (docs/adr/0045):
//   s, m, h = Fused { s = MatMul(a, w) epilogue{bias=b, residual=r}; m = Moments(s); h = Elementwise(s) {identity(i0)} }
//   y = Fused { n = NormalizeBy(s, m, h); y = MatMul(n, scale * v) epilogue{bias=c + shift * v, act=gelu} }
// The product in front is no chain of products then.
Graph defer_normalize(Graph graph, const GraphEstimator& estimator, bool rounds = false);

inline constexpr int64_t kMostDeferredRows = 4000;

}  // namespace tamp::passes
