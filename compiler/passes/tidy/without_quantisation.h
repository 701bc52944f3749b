// The network that a quantised one was made from, for estimates: what it would take in floats. Its weights are the integers themselves, so
// it is not to be run.
//   a = Elementwise(x, scale) {div(i0, i1)} -> f32[1,8]            y' = MatMul(x, w') -> f32[1,4]
//   b = Elementwise(a) {round(i0)} -> f32[1,8]
//   c = Elementwise(b) {clip(i0; 0, 255)} -> f32[1,8]        =>
//   q = Elementwise(c) {cast(i0)} -> u8[1,8]
//   m = MatMul(q, w) -> i32[1,4]
//   n = Elementwise(m) {cast(i0)} -> f32[1,4]
//   y = Elementwise(n, scales) {mul(i0, i1)} -> f32[1,4]
// A QuantizeLinear with its DequantizeLinear is nothing, a product or convolution of integers one of floats.
#pragma once

#include <optional>

#include "compiler/ir/graph.h"

namespace tamp::passes {

struct WithoutQuantisation {
  Graph graph;
  int64_t integer_products = 0;  // MatMul and Conv of integers that became ones of floats
  int64_t roundings = 0;         // tensors of 8 bits that became floats
};

// Nothing if the graph has no quantised tensors.
std::optional<WithoutQuantisation> without_quantisation(const Graph& graph);

}  // namespace tamp::passes
