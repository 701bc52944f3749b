#pragma once

#include "compiler/ir/graph.h"

namespace tamp::passes {

// A quantisation by one scale goes in front of Reshapes and Transposes that move what it quantises:
//   a = Reshape(x) -> f32[1,128,4,64]
//   b = Transpose(a) {perm=[0,2,1,3]} -> f32[1,4,128,64]
//   c = Elementwise(b, s) {div(i0, i1)} -> f32[1,4,128,64]
//   y = Elementwise(c) {rounded(i0; -128, 127)} -> f32[1,4,128,64]
//   => the quotient and its rounding in the shape of x, and then the Reshape and the Transpose
// So it stands where x is made, as the query of an attention is, which was split into heads before it was quantised. Needs: nobody else
// reads what is in between, and some rOperator makes x.
Graph round_before_views(Graph graph);

}  // namespace tamp::passes
