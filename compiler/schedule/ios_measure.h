// For the policies of IOS with a meter (stage_meter.h): programs in which stages can be measured.
#pragma once

#include <vector>

#include "compiler/schedule/plan.h"

namespace tamp::schedule {

// All rOperators of a graph one behind another, each with its rKernel of `rkernels` (for a view, one without phases), no memory shared.
RProgram program_to_measure(const PolicyInput& input, const std::vector<const RKernel*>& rkernels);

// Asks the meter. InternalError if the answer does not have the shape of the question.
std::vector<std::vector<double>> measured(const StageMeter& meter, const std::vector<StageJob>& jobs);

}  // namespace tamp::schedule
