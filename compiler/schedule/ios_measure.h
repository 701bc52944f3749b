// What the policies of IOS do with a meter (stage_meter.h): programs for stages to be measured in.
#pragma once

#include <vector>

#include "compiler/schedule/plan.h"

namespace tamp::schedule {

// All rOperators of a graph one behind another, each with the rKernel that is given for it (views: one without phases), no memory shared.
RProgram program_to_measure(const PolicyInput& input, const std::vector<const RKernel*>& rkernels);

// What the meter says. InternalError if it is not what it was asked for.
std::vector<std::vector<double>> measured(const StageMeter& meter, const std::vector<StageJob>& jobs);

}  // namespace tamp::schedule
