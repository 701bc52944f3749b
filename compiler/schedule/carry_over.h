// Runs a schedule that was made for one batch or vDevice on another (IOS calls such schedules specialised). The rTasks differ between the
// two, so only decisions about rOperators are carried over: the rKernel of each, the order in which their phases begin, and the
// places between which everything before ends ahead of everything behind. rOperators correspond by name.
#pragma once

#include <cstdint>

#include "compiler/ir/rprogram.h"
#include "compiler/schedule/plan.h"

namespace tamp::schedule {

// `from` as a plan for another graph of the same model, or for another vDevice. A rKernel that is no candidate there is replaced by the
// fastest of its family, or else by the fastest of all. rTasks go to the vEUs on which they end earliest. A rOperator that `from` does not
// have gets its fastest rKernel, and its turn comes when everything that it needs is placed.
Plan carry_over(const RProgram& from, const PolicyInput& to);

// Counts of rOperators, views left out: those that keep their rKernel of `from`, those with another rKernel of the same family, those with
// one of another family, and those that `from` does not have.
struct Carried {
  int64_t same = 0, family = 0, other = 0, unknown = 0;
};
Carried carried(const RProgram& from, const RProgram& to);

}  // namespace tamp::schedule
