// Plans of graphs with loops of run time (docs/adr/0050). A policy plans each stretch of rOperators between the beginnings and ends of
// loops as if it were all there is; the stretches follow each other.
#pragma once

#include "compiler/schedule/plan.h"

namespace tamp::schedule {

Plan plan_with_loops(Policy policy, const PolicyInput& input);

}  // namespace tamp::schedule
