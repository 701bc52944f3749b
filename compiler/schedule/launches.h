// Graph execution: the rProgram's phases as kernel launches, with their real dependencies, for comparison with the persistent
// kernel and for tools that want one kernel per operator (docs/adr/0007).
#pragma once

#include <string>
#include <vector>

#include "compiler/ir/rprogram.h"
#include "compiler/schedule/plan.h"
#include "compiler/schedule/schedule.h"
#include "compiler/schedule/streams.h"
#include "compiler/select/select.h"
#include "kernels/catalogue.h"

namespace tamp::schedule {

// One launch per phase that has rTasks, in an order in which they may run one after another: that in which the lanes first
// come to them. A launch is after the phases that make what it reads, and after those that are to be done with memory that it
// writes. Where there are `stages` (all of the plan's, in the order of the lanes), a launch is also after those of earlier stages and those
// before it in its group. Error (unsupported) names a gang: its phases need each other.
std::vector<PhaseLaunch> launches_of(const RProgram& program, const std::vector<Stage>& stages = {});

// schedule::verify of the program in which only RProgram::launches say what comes after what: the rTasks of a launch have no order, and
// programmatic dependents are where they may be.
std::vector<std::string> verify_launches(const RProgram& program, size_t limit = 8, const select::Families& families = kernels::families());

}  // namespace tamp::schedule
