// Cells in a row: layers over time. Internal to lift_recurrences.
#pragma once

#include <optional>
#include <vector>

#include "compiler/passes/recognise/recurrences/lift_recurrences_cells.h"

namespace tamp::passes::lift {

// Positions in Cell::parts. The inputs are in the same order in all steps of a chain.
struct Roles {
  std::vector<size_t> inputs;
  std::optional<size_t> state;  // the hidden state before; nothing = zeros
};

// Steps of one layer in the order of time: the steps have equal weights, and each step begins with the state that the step before has made.
struct Chain {
  std::vector<size_t> cells;
  std::vector<Roles> roles;  // per step
  std::vector<bool> is_cut;  // per step: an rOperator outside reads the cell state that the step makes
};

// Chains of two steps and more with an input each, ordered by their first steps.
std::vector<Chain> chains_of(const Source& source, const std::vector<Cell>& cells);

}  // namespace tamp::passes::lift
