#include "kernels/tile/chain.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "compiler/support/error.h"

namespace tamp::kernels {
namespace {

// Constant number `value`, as an operand code; equal bit patterns share one.
int64_t constant_code(Chain& chain, float value) {
  for (size_t i = 0; i < chain.constants.size(); ++i) {
    if (std::bit_cast<uint32_t>(chain.constants[i]) == std::bit_cast<uint32_t>(value)) return kFirstConstant + static_cast<int64_t>(i);
  }
  chain.constants.push_back(value);
  return kFirstConstant + static_cast<int64_t>(chain.constants.size()) - 1;
}

int64_t input_code(Chain& chain, const Graph& graph, TensorId id) {
  const Tensor& tensor = graph.tensor(id);
  if (tensor.role == Role::constant && tensor.dtype == DType::f32 && element_count(tensor.shape) == 1) {
    return constant_code(chain, f32_data(tensor)[0]);
  }
  for (size_t i = 0; i < chain.inputs.size(); ++i) {
    if (chain.inputs[i] == id) return kFirstInput + static_cast<int64_t>(i);
  }
  chain.inputs.push_back(id);
  return kFirstInput + static_cast<int64_t>(chain.inputs.size()) - 1;
}

// The last step that reads each step's result; the last step itself is read by the store.
std::vector<size_t> last_uses(const std::vector<ElementwiseStep>& steps) {
  std::vector<size_t> last(steps.size(), 0);
  for (size_t s = 0; s < steps.size(); ++s) {
    for (const int32_t operand : steps[s].operands) {
      if (operand < 0) last[static_cast<size_t>(-1 - operand)] = s;
    }
  }
  return last;
}

constexpr size_t kMostSteps = 6, kMostQuantisedSteps = 8, kMostLongSteps = 16;
constexpr int64_t kMostTemporaries = 2, kMostDear = 2;

using rk::functions::Speed;

// Whether all functions are short code, and not too many are costly. Functions of Speed::rare are kilobytes and stay with elementwise.cuh.
bool has_small_functions(const Chain& chain) {
  int64_t dear = 0;
  for (const ChainStep& step : chain.steps) {
    const Speed speed = row_of(static_cast<ElementwiseOp>(step.op)).speed;
    if (speed == Speed::rare) return false;
    if (speed == Speed::four) ++dear;
  }
  return dear <= kMostDear;
}

// Chains that round to whole numbers are of many short steps: between two quantisations are several factors.
bool rounds(const Chain& chain) {
  const auto is_rounding = [](const ChainStep& step) { return step.op == static_cast<int64_t>(ElementwiseOp::rounded); };
  return std::any_of(chain.steps.begin(), chain.steps.end(), is_rounding);
}

bool has_static_steps(const Chain& chain, int constants, size_t most_steps) {
  return !chain.inputs.empty() && chain.inputs.size() <= rk::kStaticInputs && chain.constants.size() <= static_cast<size_t>(constants) &&
         chain.steps.size() <= most_steps && chain.temporaries <= kMostTemporaries && has_small_functions(chain);
}

}  // namespace

std::optional<Chain> make_chain(const Graph& graph, const std::vector<TensorId>& inputs, const std::vector<ElementwiseStep>& steps) {
  if (steps.empty() || static_cast<int64_t>(steps.size()) > kChainSteps) return std::nullopt;
  Chain chain;
  const std::vector<size_t> last = last_uses(steps);
  std::vector<int64_t> temp_of(steps.size(), 0);  // operand code, 0 = only in the accumulator
  std::vector<bool> busy;
  for (size_t s = 0; s < steps.size(); ++s) {
    std::vector<int64_t> codes;
    for (const int32_t operand : steps[s].operands) {
      if (operand >= 0) {
        codes.push_back(input_code(chain, graph, inputs[static_cast<size_t>(operand)]));
        continue;
      }
      const size_t from = static_cast<size_t>(-1 - operand);
      TAMP_CHECK(from < s, "elementwise step reads a later one");
      codes.push_back(from + 1 == s ? kAcc : temp_of[from]);
      TAMP_CHECK(from + 1 == s || temp_of[from] != 0, "elementwise result was not kept");
    }
    const int attributes = row_of(steps[s].op).attributes.count;  // operands of the device's function
    if (attributes > 0) codes.push_back(constant_code(chain, steps[s].a));
    if (attributes > 1) codes.push_back(constant_code(chain, steps[s].b));
    codes.resize(3, kUnused);
    // A temporary whose last reader is this step is free for this step's result: it is read first.
    for (size_t from = 0; from < s; ++from) {
      if (temp_of[from] != 0 && last[from] == s) busy[static_cast<size_t>(temp_of[from] - kFirstTemp)] = false;
    }
    if (last[s] > s + 1) {
      size_t slot = 0;
      while (slot < busy.size() && busy[slot]) ++slot;
      if (slot == busy.size()) busy.push_back(true);
      busy[slot] = true;
      temp_of[s] = kFirstTemp + static_cast<int64_t>(slot);
    }
    chain.steps.push_back({static_cast<int64_t>(steps[s].op), codes[0], codes[1], codes[2], temp_of[s]});
  }
  chain.temporaries = static_cast<int64_t>(busy.size());
  if (static_cast<int64_t>(chain.inputs.size()) > kChainInputs || static_cast<int64_t>(chain.constants.size()) > kChainConstants)
    return std::nullopt;
  return chain;
}

Chain copy_chain(TensorId input) {
  Chain chain;
  chain.inputs = {input};
  chain.steps = {{static_cast<int64_t>(ElementwiseOp::identity), kFirstInput, kUnused, kUnused, 0}};
  return chain;
}

std::string step_text(const ChainStep& step) {
  return fmt::format("{:#x}ull", step.op | step.x << 8 | step.y << 16 | step.z << 24 | step.to << 32);
}

bool has_static_steps(const Chain& chain) {
  return has_static_steps(chain, rk::kStaticConstants, rounds(chain) ? kMostQuantisedSteps : kMostSteps);
}

bool has_long_static_steps(const Chain& chain) { return rounds(chain) && has_static_steps(chain, rk::kLongConstants, kMostLongSteps); }

}  // namespace tamp::kernels
