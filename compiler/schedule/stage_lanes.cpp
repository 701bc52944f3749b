#include "compiler/schedule/stage_lanes.h"

#include <utility>

#include "compiler/schedule/dependencies.h"
#include "compiler/schedule/ios_prices.h"

namespace tamp::schedule {

StageLanes::StageLanes(const RProgram& program)
    : program_(program), machine_(select::machine_for(program.graph, program.vdevice, program.precision)), alone_(program) {
  producers_ = find_dependencies(program.graph).producers;
}

const RProgram& StageLanes::of(const Stage& stage, int copies) {
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
  const std::vector<std::vector<Instruction>> lanes = alone_.lanes;
  const std::vector<Event> events = alone_.events;
  for (int copy = 1; copy < copies; ++copy) append(lanes, events);
  return alone_;
}

// Appends one copy of the stage behind the existing lanes; everything appended waits for everything before.
void StageLanes::append(const std::vector<std::vector<Instruction>>& lanes, const std::vector<Event>& events) {
  int64_t ends = 0;
  for (const auto& lane : lanes) ends += lane.empty() ? 0 : 1;
  const EventId boundary(static_cast<int64_t>(alone_.events.size()));
  alone_.events.push_back({"boundary", ends});
  const auto renamed = [first = boundary.value + 1](EventId id) { return EventId(first + id.value); };
  alone_.events.insert(alone_.events.end(), events.begin(), events.end());
  for (size_t veu = 0; veu < lanes.size(); ++veu) {
    auto& lane = alone_.lanes[veu];
    if (lane.empty()) continue;
    if (lane.back().signal.valid()) lane.push_back({});
    lane.back().signal = boundary;
    const size_t first = lane.size();
    for (Instruction instruction : lanes[veu]) {
      for (EventId& wait : instruction.waits) wait = renamed(wait);
      if (instruction.signal.valid()) instruction.signal = renamed(instruction.signal);
      lane.push_back(std::move(instruction));
    }
    lane[first].waits.insert(lane[first].waits.begin(), boundary);
  }
}

}  // namespace tamp::schedule
