#pragma once

#include "compiler/ir/graph.h"

namespace tamp::passes {

// a = Conv(x, w) {...} -> f32[1,8,4,4]                    =>  y = Conv(x, y.folded_weight, y.folded_bias) {...} -> f32[1,8,4,4]
// y = BatchNorm(a, scale, b, mean, var) -> f32[1,8,4,4]
//
// In front of convolutions without padding the operand is scaled instead (MaxViT's expansions):
//
// a = BatchNorm(x, scale, b, mean, var) -> f32[1,64,4,4]  =>  y = Conv(x, y.folded_weight, y.folded_bias) {...} -> f32[1,256,4,4]
// y = Conv(a, w) {...} -> f32[1,256,4,4]
//
// A MatMul of rank 2 is treated as the first Conv (folded_weight replaces its B). Needs: constant operands, and that nothing else reads
// `a` (in front: nothing but such convolutions). Where folding is not possible: y = Elementwise(a, scale', shift') {mul(i0, i1),
// add(s0, i2)}, or the whole formula where an operand is not constant. From here on there is no BatchNorm.
Graph fold_batch_norm(Graph graph);

}  // namespace tamp::passes
