// Kinds of damage to a rProgram, each to one thing at a time.
#pragma once

#include <random>
#include <vector>

#include "compiler/ir/rprogram.h"

namespace tamp::test {

struct MutantKind {
  const char* name;
  // Damages the rProgram at a random place; false if it has nothing of this kind.
  bool (*damage)(RProgram& program, std::mt19937& random);
};

// For rPrograms for persistent execution; below, for graph execution.
const std::vector<MutantKind>& lane_mutants();
const std::vector<MutantKind>& launch_mutants();

// Undoes the damage: `program` is a damaged copy of `right`.
void mend(RProgram& program, const RProgram& right);

}  // namespace tamp::test
