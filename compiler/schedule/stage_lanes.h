// A stage by itself in the persistent kernel: for whoever measures stages of a program (stage_meter.h).
#pragma once

#include <vector>

#include "compiler/schedule/stage_meter.h"
#include "compiler/select/select.h"

namespace tamp::schedule {

class StageLanes {
 public:
  explicit StageLanes(const RProgram& program);  // outlives it
  // Its lanes and events are those of the stage: rTasks of `program`, on the vEUs on which the policy would put them. Until the next call.
  const RProgram& of(const Stage& stage);

 private:
  const RProgram& program_;
  select::Machine machine_;
  std::vector<std::vector<ROperatorId>> producers_;
  RProgram alone_;
};

}  // namespace tamp::schedule
