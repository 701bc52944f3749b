#pragma once

#include <optional>

#include "compiler/ir/graph.h"

namespace tamp::passes {

// What the device's bodies hold.
inline constexpr size_t kMostChainInputs = 8, kMostChainSteps = 16;

// a = Elementwise(x, y) {mul(i0, i1)} -> f32[2,3]     =>  b = Elementwise(x, y) {mul(i0, i1), tanh(s0)} -> f32[2,3]
// b = Elementwise(a) {tanh(i0)} -> f32[2,3]
//
// Chains and diamonds. Needs: only the one rOperator reads `a`, `a` is no graph output and has the shape of what it is fused into
// (so a value is never computed twice). At most 8 operands and 16 steps.
Graph fuse_elementwise(Graph graph);

// `consumer` with `producer` computed inside of it, if their types and the limits above allow it. The caller sees to it that nobody else
// reads the producer's result, and that it has the shape of the consumer's.
std::optional<ROperator> join_elementwise(const Graph& graph, const ROperator& producer, const ROperator& consumer);

}  // namespace tamp::passes
