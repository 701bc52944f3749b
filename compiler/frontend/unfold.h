// Of a model with lengths of run time: arithmetic that the importers folded, where its result depends on a length in another way than that
// it is cut off there or is a straight line over it, becomes rOperators again, which are followed as all others are.
// Example: x / sqrt(L) was folded to a division by 22.6 at L of 512, and is a Cast, a square root and a division of run time.
#pragma once

#include <vector>

#include "compiler/frontend/lengths.h"

namespace tamp::frontend {

// The same in the graph with the largest lengths and in the probes.
void unfold(Probe& read, std::vector<Probe>& probes);

}  // namespace tamp::frontend
