// A stage by itself in the persistent kernel: for whoever measures stages of a program (stage_meter.h).
#pragma once

#include <vector>

#include "compiler/schedule/stage_meter.h"
#include "compiler/select/select.h"

namespace tamp::schedule {

class StageLanes {
 public:
  explicit StageLanes(const RProgram& program);  // outlives it
  // Its lanes and events are those of the stage: rTasks of `program`, on the vEUs on which the policy would put them; `copies` of it one
  // behind another, with a boundary between them. Until the next call.
  const RProgram& of(const Stage& stage, int copies = 1);

 private:
  void append(const std::vector<std::vector<Instruction>>& lanes, const std::vector<Event>& events);

  const RProgram& program_;
  select::Machine machine_;
  std::vector<std::vector<ROperatorId>> producers_;
  RProgram alone_;
};

}  // namespace tamp::schedule
