// Damage to a rProgram, one thing at a time, by kind.
#pragma once

#include <random>
#include <vector>

#include "compiler/ir/rprogram.h"

namespace tamp::test {

struct MutantKind {
  const char* name;
  // Damages the rProgram somewhere by chance; false where there is nothing of the kind to damage.
  bool (*damage)(RProgram& program, std::mt19937& random);
};

// Of rPrograms for persistent execution, and of those for graph execution.
const std::vector<MutantKind>& lane_mutants();
const std::vector<MutantKind>& launch_mutants();

// Undoes what a mutant of `right` has: `program` is a copy of it that was damaged.
void mend(RProgram& program, const RProgram& right);

}  // namespace tamp::test
