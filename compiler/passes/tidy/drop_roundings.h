#pragma once

#include "compiler/ir/graph.h"

namespace tamp::passes {

//   q = Elementwise(x) {rounded(i0; -128, 127)}                     q = Elementwise(x) {rounded(i0; -128, 127)}
//   s = Elementwise(q, 1.0000001) {mul(i0, i1)}             =>
//   y = Elementwise(s) {rounded(i0; -128, 127)}                     (readers of y read q)
//
// Drops roundings of what is rounded already: y is q where every whole number that q may be becomes itself. Quantised models have them
// where a step between two quantisations is a factor that the scales take up (attention's 1 / sqrt(size)), or nothing at all.
//
//   n = Elementwise(q) {is_nan(i0)}
//   y = Elementwise(n, c, q) {where(i0, i1, i2)}            =>      (readers of y read q)
//
// Drops guards against NaN of such whole numbers, times a number or not. torch's exporter writes them behind each softmax.
Graph drop_roundings(Graph graph);

}  // namespace tamp::passes
