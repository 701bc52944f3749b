// The chain of an Elementwise rOperator as the program that kernels/elementwise/elementwise.cuh interprets.
#pragma once

#include <optional>
#include <vector>

#include "compiler/ir/graph.h"
#include "compiler/ir/ops.h"

namespace tamp::kernels {

// Limits and operand codes; the same as in elementwise.cuh.
inline constexpr int64_t kChainRank = 8, kChainInputs = 8, kChainSteps = 16, kChainConstants = 24;
inline constexpr int64_t kAcc = 0, kFirstTemp = 1, kFirstInput = 32, kFirstConstant = 64, kUnused = 255;

struct ChainStep {
  int64_t op = 0, x = kUnused, y = kUnused, z = kUnused, to = 0;
};

struct Chain {
  std::vector<ChainStep> steps;
  std::vector<TensorId> inputs;  // those that are read from memory; constants of one element are in `constants`
  std::vector<float> constants;
  int64_t temporaries = 0;
};

// nullopt if the chain exceeds a limit.
std::optional<Chain> make_chain(const Graph& graph, const std::vector<TensorId>& inputs, const std::vector<ElementwiseStep>& steps);

// The chain of a copy.
Chain copy_chain(TensorId input);

}  // namespace tamp::kernels
