// The policy `sequential`: every rOperator with its fastest rKernel on all vEUs, one after another, each waiting for the one
// before it whether it needs it or not. What a framework does that launches one kernel per operator, without the launches.
#include "compiler/schedule/choose.h"
#include "compiler/schedule/plan.h"

namespace tamp::schedule {

Plan sequential(const PolicyInput& input) {
  const size_t count = input.graph.rops.size();
  Plan plan;
  plan.rkernels.resize(count);
  plan.part.assign(count, 0);
  plan.waits.resize(count);
  Timetable timetable(input.machine);
  Unsupported unsupported;
  ROperatorId before;
  std::vector<Finish> waits;
  int32_t wave = 0;
  for (size_t i = 0; i < count; ++i) {
    const ROperatorId id(static_cast<int64_t>(i));
    plan.wave.push_back(before.valid() ? ++wave : 0);
    if (input.is_view[i]) continue;
    std::vector<RKernel> candidates = candidates_of(input, id, /*alone=*/true, unsupported);
    if (candidates.empty()) continue;
    RKernel& rkernel = plan.rkernels[i] = std::move(candidates[select::fastest(candidates, input.machine)]);
    if (before.valid()) plan.waits[i].push_back(before);
    if (rkernel.gang) {
      waits = {timetable.append_gang(id, rkernel, waits)};
      before = id;
      continue;
    }
    for (size_t phase = 0; phase < rkernel.phases.size(); ++phase) {
      if (rkernel.phases[phase].rtasks == 0) continue;
      waits = {timetable.append_phase(id, static_cast<int32_t>(phase), rkernel, waits, rkernel.phases[phase].rtasks)};
      before = id;
    }
  }
  unsupported.raise(input);
  plan.order = timetable.take_appended();
  return plan;
}

}  // namespace tamp::schedule
