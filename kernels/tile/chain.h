// A chain of elementwise steps as a body has it: elementwise.cuh as a program that it interprets, others as template arguments.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "compiler/ir/graph.h"
#include "compiler/ir/ops.h"
#include "kernels/tile/numbers.cuh"

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

// A step as a template argument: op, x, y, z and to, from the lowest byte on. "0xff212019ull" adds inputs 0 and 1.
std::string step_text(const ChainStep& step);
// Whether the chain is short and its functions are small.
bool has_static_steps(const Chain& chain);
bool has_long_static_steps(const Chain& chain);  // the same of a body with rk::kLongConstants; where values are rounded between

}  // namespace tamp::kernels
