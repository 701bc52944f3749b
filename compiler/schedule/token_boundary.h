// Between two runs of a program that makes tokens (docs/adr/0051) all lanes meet: the last instruction of each lane that has any signals
// the boundary, the lane that is the leader waits for it and decides, and all others wait for the decision. So the next run begins when all
// that any lane did in this one is done, as runs of different launches do.
#pragma once

#include "compiler/ir/rprogram.h"

namespace tamp::schedule {

// Says in a program that is a schedule already what its generation is, and adds the boundary where it is that of one token. A schedule that
// was written with a boundary keeps it.
void add_token_boundary(RProgram& program, Generation generation);

}  // namespace tamp::schedule
