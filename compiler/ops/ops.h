// The CPU reference of every internal operator, used to fold constants and by `tamp run --check`. Plain and exact rather
// than fast, but fast enough for a ResNet-50 in a few seconds.
#pragma once

#include <functional>
#include <vector>

#include "compiler/ir/graph.h"

namespace tamp::ops {

// A tensor's values, row-major in logical order.
struct Value {
  DType dtype = DType::f32;
  Shape shape;
  std::shared_ptr<const Bytes> data;
};

// Runs one rOperator, epilogue included, at the shapes and types that graph gives its output tensors. `value_of` gives
// the value of any tensor that the rOperator reads. Sums are accumulated in double for small reductions and at least
// pairwise in fp32 for large products, so that the result is a reference for every device precision.
using ValueOf = std::function<const Value&(TensorId)>;
std::vector<Value> evaluate(const Graph& graph, const ROperator& rop, const ValueOf& value_of);

// Runs the whole graph; `inputs` in the order of graph.inputs; returns the outputs in the order of graph.outputs.
std::vector<Value> run(const Graph& graph, const std::vector<Value>& inputs);

// TAMP_CHECK that the output shapes of every rOperator agree with its inputs and attributes (called between passes).
void verify_shapes(const Graph& graph);

// numpy broadcasting of two shapes; Error (bad input) that names both if they do not.
Shape broadcast(const Shape& a, const Shape& b);

}  // namespace tamp::ops
