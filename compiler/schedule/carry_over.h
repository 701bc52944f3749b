// A schedule that was made for one batch or vDevice, run on another (IOS calls that specialised schedules). rTasks are not the same there,
// so what is carried over is what was decided about rOperators: the rKernel of each, the order in which their phases begin, and where
// everything before ends ahead of everything behind. rOperators correspond by name.
#pragma once

#include <cstdint>

#include "compiler/ir/rprogram.h"
#include "compiler/schedule/plan.h"

namespace tamp::schedule {

// `from` as a plan of another graph of the same model, or for another vDevice. A rKernel that is no candidate there is replaced by the
// fastest of its family, or of all. rTasks go to the vEUs on which they end earliest. A rOperator that `from` does not have gets its
// fastest rKernel, and comes when what it needs is placed.
Plan carry_over(const RProgram& from, const PolicyInput& to);

// How many rOperators, views left out, have the rKernel that they have in `from`, another one of its family, another one of another family;
// and how many `from` does not have.
struct Carried {
  int64_t same = 0, family = 0, other = 0, unknown = 0;
};
Carried carried(const RProgram& from, const RProgram& to);

}  // namespace tamp::schedule
