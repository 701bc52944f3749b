#pragma once

#include "compiler/ir/graph.h"

namespace tamp::passes {

// t = Transpose(x) {perm=[0,5,1,3,2,4]} -> f32[1,64,8,7,8,7]    t' = Transpose(x) {perm=[0,1,3,2,4,5]} -> f32[1,8,7,8,7,64]
// m = Reshape(t) -> f32[1,64,56,56]                          => m' = Reshape(t') -> f32[1,56,56,64]
// r = Reshape(m) -> f32[1,64,7,8,7,8]                           r' = Reshape(m') -> f32[1,7,8,7,8,64]
// y = Transpose(r) {perm=[0,3,5,2,4,1]} -> f32[1,8,8,7,7,64]    y = Transpose(r') {perm=[0,2,4,1,3,5]} -> f32[1,8,8,7,7,64]
//
// Between two kinds of windows MaxViT makes a map of the rows: channels go to the front and come back. Rows that stay whole are what
// move_rows moves. Concerns chains of a Transpose that takes the last dimension to another place, Reshapes that leave this dimension and
// those before it as they are, and a Transpose that makes it the last one again, where nothing else reads what lies between. If there is no
// such Transpose, but the Reshapes end at a map, one behind them takes the channels to the front.
Graph channels_stay_last(Graph graph);

}  // namespace tamp::passes
