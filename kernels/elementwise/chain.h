// The chain of an Elementwise rOperator as the program that kernels/elementwise/elementwise.cuh interprets.
#pragma once

#include <optional>
#include <vector>

#include "compiler/ir/graph.h"
#include "compiler/ir/ops.h"
#include "kernels/elementwise/numbers.cuh"

namespace tamp::kernels {

// Limits and operand codes, as 64-bit numbers like all of the host's.
inline constexpr int64_t kChainRank = rk::kChainRank, kChainInputs = rk::kChainInputs, kChainSteps = rk::kChainSteps,
                         kChainConstants = rk::kChainConstants;
inline constexpr int64_t kAcc = rk::kAcc, kFirstTemp = rk::kFirstTemp, kFirstInput = rk::kFirstInput, kFirstConstant = rk::kFirstConstant,
                         kUnused = rk::kUnused;

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
