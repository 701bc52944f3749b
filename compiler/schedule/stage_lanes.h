// Lanes that run one stage of a program by itself in the persistent kernel, to measure the stage (StageMeter).
#pragma once

#include <vector>

#include "compiler/schedule/schedule.h"

namespace tamp::schedule {

class StageLanes {
 public:
  explicit StageLanes(const RProgram& program);  // must outlive this object
  // A program whose lanes and events are those of the stage: rTasks of `program`, on the vEUs on which the policy would put them. It has
  // `copies` of the stage one behind another, with a boundary between them. The reference is valid until the next call.
  const RProgram& of(const Stage& stage, int copies = 1);

 private:
  void append(const std::vector<std::vector<Instruction>>& lanes, const std::vector<Event>& events);

  const RProgram& program_;
  select::Machine machine_;
  std::vector<std::vector<ROperatorId>> producers_;
  RProgram alone_;
};

}  // namespace tamp::schedule
