// Runs a graph after assign_layout on the memory that it describes: every buffer is an array, operands are gathered and results
// scattered by their strides. So a wrong offset, a part of a Concat that nobody writes, or a view of the wrong thing gives a wrong
// answer, NaN, or an exception.
#pragma once

#include <vector>

#include "compiler/ops/ops.h"

namespace tamp::test {

// Throws std::runtime_error if an element lies outside its buffer or is written twice.
std::vector<ops::Value> placed_run(const Graph& graph, const std::vector<ops::Value>& inputs);

// placed_run where the graph is placed, else ops::run.
std::vector<ops::Value> run_any(const Graph& graph, const std::vector<ops::Value>& inputs);

// Values for the graph's inputs, the same ones every time: floats in [-1, 1). All inputs must be f32.
std::vector<ops::Value> random_inputs(const Graph& graph);

// Largest difference of an element, relative to the larger of 1 and the element; infinite where one is not a number, or where
// shapes or types differ. Only f32.
double distance(const std::vector<ops::Value>& a, const std::vector<ops::Value>& b);

}  // namespace tamp::test
