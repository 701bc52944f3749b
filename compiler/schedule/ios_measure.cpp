#include "compiler/schedule/ios_measure.h"

#include "compiler/schedule/ios_prices.h"
#include "compiler/schedule/timetable.h"
#include "compiler/support/error.h"

namespace tamp::schedule {

RProgram program_to_measure(const PolicyInput& input, const std::vector<const RKernel*>& rkernels) {
  Draft draft{rkernels, input.producers, {}, {}, {}};
  Timetable timetable(input.machine);
  std::vector<Finish> finish(rkernels.size());
  for (size_t i = 0; i < rkernels.size(); ++i) {
    if (rkernels[i]->rtasks() == 0) continue;
    draft.stages.push_back({{ROperatorId(static_cast<int64_t>(i))}});
    append_stage(timetable, draft.stages.back(), draft, input.machine, finish);
  }
  draft.order = timetable.take_appended();
  RProgram program;
  program.vdevice = input.machine.vdevice;
  program.precision = input.machine.precision;
  program.policy = name_of(input.options.policy);
  program.graph = input.graph;
  ScheduleOptions options = input.options;
  options.share_memory = false;
  complete(program, plan_of(draft), options, input.families);
  return program;
}

std::vector<std::vector<double>> measured(const StageMeter& meter, const std::vector<StageJob>& jobs) {
  std::vector<std::vector<double>> us = meter(jobs);
  TAMP_CHECK(us.size() == jobs.size(), "stages of other programs were measured");
  for (size_t i = 0; i < jobs.size(); ++i) TAMP_CHECK(us[i].size() == jobs[i].stages.size(), "other stages were measured");
  return us;
}

}  // namespace tamp::schedule
