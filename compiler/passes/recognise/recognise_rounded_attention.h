// The attention of a network that onnxruntime.quantization made, where it quantised the weights and perhaps scores and results, becomes one
// rOperator where the vDevice has a rKernel for it. scale_products has left of it, Q, K and V being whole numbers:
//   s = MatMul(q, k) {alpha=0.004} -> f32[1,4,128,128]
//   r = Elementwise(s) {rounded(i0; -122, 133)} -> f32[1,4,128,128]
//   p = Elementwise(r, step) {mul(i0, i1)} -> f32[1,4,128,128]
//   w = Softmax(p) {axes=[3,3]} -> f32[1,4,128,128]
//   d = Elementwise(w, scale) {div(i0, i1)} -> f32[1,4,128,128]
//   e = Elementwise(d) {rounded(i0; 0, 255)} -> f32[1,4,128,128]
//   t = MatMul(e, v) {alpha=0.0176} -> f32[1,4,128,64]
//   y = Elementwise(t) {rounded(i0; -129, 126)} -> f32[1,4,128,64]
//   => y = Attention(q, k', v) {scale=0.004, rounded_products_low=-122, ..} -> f32[1,4,128,64]
// Between r and p a mask may be added, and the sum rounded. The scores or the result may be as they are. If another rOperator reads the
// result of a step in between, the attention is not taken.
#pragma once

#include "compiler/ir/estimator.h"
#include "compiler/ir/graph.h"

namespace tamp::passes {

Graph recognise_rounded_attention(Graph graph, const Estimator& estimator);

}  // namespace tamp::passes
