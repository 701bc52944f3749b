// The policy `sequential`: every rOperator with its fastest rKernel on all vEUs, one after another, each waiting for the one before even if
// it does not need it. A framework that launches one kernel per operator does the same with launches in addition. In graph execution this
// policy has the launches, too: it is Rammer's RammerBase.
#include "compiler/schedule/choose.h"
#include "compiler/schedule/plan.h"
#include "compiler/schedule/timetable.h"

namespace tamp::schedule {

Plan sequential(const PolicyInput& input) {
  const size_t count = input.graph.rops.size();
  Plan plan;
  plan.rkernels.resize(count);
  plan.waits.resize(count);
  Timetable timetable(input.machine);
  Unsupported unsupported;
  ROperatorId before;
  std::vector<Finish> waits;
  for (size_t i = 0; i < count; ++i) {
    const ROperatorId id(static_cast<int64_t>(i));
    if (input.is_view[i]) continue;
    std::vector<RKernel> candidates = candidates_of(input, id, /*alone=*/true, unsupported);
    if (candidates.empty()) continue;
    RKernel& rkernel = plan.rkernels[i] = std::move(candidates[select::fastest(candidates, input.machine)]);
    if (before.valid()) plan.waits[i].push_back(before);
    if (rkernel.rtasks() == 0) continue;
    waits = {timetable.append(id, rkernel, waits)};
    plan.stages.push_back({{id}});
    before = id;
  }
  refuse_unsupported(input, unsupported);
  plan.order = timetable.take_appended();
  return plan;
}

}  // namespace tamp::schedule
