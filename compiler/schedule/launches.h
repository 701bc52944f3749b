// Graph execution: the rProgram's phases as kernel launches, with their real dependencies, for comparison with the persistent
// kernel and for tools that want one kernel per operator (docs/adr/0007).
#pragma once

#include <string>
#include <vector>

#include "compiler/ir/rprogram.h"
#include "compiler/schedule/schedule.h"
#include "compiler/schedule/streams.h"
#include "compiler/select/select.h"
#include "kernels/catalogue.h"

namespace tamp::schedule {

// One launch per phase that has rTasks, in an order in which they may run one after another: that in which the lanes first come to them. A
// launch comes after the phases that make its inputs, and after those that use the memory that it will write and must finish before. Where
// there are `stages` (all of the plan's, in the order of the lanes), a launch also comes after those of earlier stages and those before it
// in its group. Error (unsupported) names a gang: its phases need each other.
std::vector<PhaseLaunch> launches_of(const RProgram& program, const std::vector<Stage>& stages = {});

// The program, if its lanes and events say what comes after what. In graph execution: a lane and an event per launch say so, and a launch
// is one instruction.
RProgram with_lanes_in_order(const RProgram& program);

// As schedule::verify, but only RProgram::launches say what comes after what: the rTasks of a launch have no order. It also checks that
// programmatic dependents are only where they may be.
std::vector<std::string> verify_launches(const RProgram& program, size_t limit = 8, const select::Families& families = kernels::families());

}  // namespace tamp::schedule
