// A second proof that a rProgram is correct, slow and simple, to compare the verifier with: reachability between all pairs of
// instructions, and a list of accesses per byte of memory.
#pragma once

#include "compiler/ir/rprogram.h"

namespace tamp::test {

bool slow_proof_accepts(const RProgram& program);

}  // namespace tamp::test
