#include "compiler/schedule/stage_lanes.h"

#include "compiler/schedule/dependencies.h"
#include "compiler/schedule/ios_prices.h"

namespace tamp::schedule {

StageLanes::StageLanes(const RProgram& program)
    : program_(program), machine_(select::machine_for(program.graph, program.vdevice, program.precision)), alone_(program) {
  producers_ = find_dependencies(program.graph).producers;
}

const RProgram& StageLanes::of(const Stage& stage) {
  static const RKernel kNothing;
  Draft draft;
  draft.rkernels.assign(program_.rkernels.size(), &kNothing);
  draft.waits.resize(program_.rkernels.size());
  for (const Group& group : stage) {
    for (const ROperatorId id : group) {
      draft.rkernels[id.index()] = &program_.rkernels[id.index()];
      draft.waits[id.index()] = producers_[id.index()];
    }
  }
  Timetable timetable(machine_);
  std::vector<Finish> finish(draft.rkernels.size());
  append_stage(timetable, stage, draft, machine_, finish);
  draft.order = timetable.take_appended();
  assemble(plan_of(draft), alone_);
  return alone_;
}

}  // namespace tamp::schedule
