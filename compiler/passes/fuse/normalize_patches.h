#pragma once

#include "compiler/ir/estimator.h"
#include "compiler/ir/graph.h"

namespace tamp::passes {

// y = Conv(x, w) {..} epilogue{bias=b} -> f32[1,96,56,56]             =>   m = NormalizedConv(x, w, b, scale, shift) {..} ->
// f32[1,96,56,56] t = Transpose(y) {perm=[0,2,3,1]} -> f32[1,56,56,96]                     n = Transpose(m) {perm=[0,2,3,1]} ->
// f32[1,56,56,96] n = Normalize(t, scale, shift) {axes=[3]} -> f32[1,56,56,96]
//
// The convolution of patches at the begin of a network (ConvNeXt, Swin) normalises its pixels itself, since a rTask of it has all channels
// of a pixel. Needs: f32, constant weights, one group, neither residual nor activation, and nobody else who reads y or t; scale and shift
// are constants of one row or missing. Keeps: answers, the convolution's name, n. Changes nothing where the
// estimator is empty, or where the graph is not estimated to be faster with the change; it is not where no body normalises.
Graph normalize_patches(Graph graph, const GraphEstimator& estimator);

}  // namespace tamp::passes
