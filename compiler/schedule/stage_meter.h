// Stages of IOS that are measured instead of simulated (`--measure`, docs/policies.md): what the policy hands to whoever has a device.
#pragma once

#include <functional>
#include <vector>

#include "compiler/ir/rprogram.h"

namespace tamp::schedule {

// rOperators that run one after another, groups that run beside each other.
using Group = std::vector<ROperatorId>;
using Stage = std::vector<Group>;

// Stages and the program in which each of them can run by itself and again and again: no two of its buffers share memory.
struct StageJob {
  RProgram program;
  std::vector<Stage> stages;
};

// Microseconds of each stage of each job, when others run before and behind it. Throws where the device does not give them.
using StageMeter = std::function<std::vector<std::vector<double>>(const std::vector<StageJob>& jobs)>;

}  // namespace tamp::schedule
