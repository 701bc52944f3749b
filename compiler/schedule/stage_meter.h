// Stages of IOS that are measured instead of simulated (`--measure`, docs/policies.md): the interface between the policy and the code that
// has a device.
#pragma once

#include <functional>
#include <vector>

#include "compiler/ir/rprogram.h"

namespace tamp::schedule {

// rOperators that run one after another, groups that run beside each other.
using Group = std::vector<ROperatorId>;
using Stage = std::vector<Group>;

// Stages to be measured, and a program that can run each of them by itself and repeatedly: no two of its buffers share memory.
struct StageJob {
  RProgram program;
  std::vector<Stage> stages;
};

// Microseconds of each stage of each job, measured with other stages running before and behind it. Throws where the device cannot measure.
using StageMeter = std::function<std::vector<std::vector<double>>(const std::vector<StageJob>& jobs)>;

}  // namespace tamp::schedule
