#pragma once

#include "compiler/ir/graph.h"

namespace tamp::passes {

// t = Transpose(x) {perm=[2,0,1,3]} -> f32[24,1,2,8]            j = Transpose(i) {perm=[1,2,0,3]} -> i64[1,1,3,1]
// s = Scatter(t, i, u) {axis=0} -> f32[24,1,2,8]            =>  v = Transpose(u) {perm=[1,2,0,3]} -> f32[1,2,3,8]
// y = Transpose(s) {perm=[1,2,0,3]} -> f32[1,2,24,8]            y = Scatter(x, j, v) {axis=2} -> f32[1,2,24,8]
//
// PyTorch's exporter writes index_copy_ along any dimension so. A cache stays as it lies, and may stay in place (compiler/ir/in_place.h).
//
// j = Elementwise(i) {identity(i0)} -> i64[1,4,1,8]
// s = Scatter(x, j, u) {axis=2}  =>  s = Scatter(x, i, u) {axis=2}, i of i64[1,1,1,1]
//
// ScatterElements has an index for each element; one for all says that the elements of a row go to one place.
Graph turn_scatters(Graph graph);

}  // namespace tamp::passes
