// Two products with a Softmax between them become one rOperator where the vDevice has a rKernel for it: softmax(scale * Q * K' + bias) * V.
// The scale may be the factor of the product, or a Mul or Div of its result, of Q or of K; the bias is what is added to the scores (a
// mask). A constant factor for each head, which is the same for all queries and keys (cosine attention has one), becomes a factor of Q. If
// another rOperator reads the result of a step in between, the attention is not taken.
#pragma once

#include "compiler/ir/estimator.h"
#include "compiler/ir/graph.h"

namespace tamp::passes {

Graph recognise_attention(Graph graph, const Estimator& estimator);

}  // namespace tamp::passes
