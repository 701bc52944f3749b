// Schedules as files: what a policy decided, to be looked at, edited, and used again. JSON with sorted keys; one rOperator, event, lane and
// launch a line. docs/policies.md describes it.
#pragma once

#include <string>

#include "compiler/schedule/schedule.h"

namespace tamp::schedule {

// What a schedule is for. Weights do not count: the same network trained again has the same key.
struct ScheduleKey {
  std::string model;  // hash of the graph as it is scheduled
  std::string vdevice;
  std::string precision;
  int64_t batch = 0;  // of `--batch`; 0 = as the model says
  bool operator==(const ScheduleKey&) const = default;
};
ScheduleKey key_of(const Graph& graph, const VDevice& vdevice, Precision precision, int64_t batch);

// What the file says that it is for. Error (bad input) if it is no schedule.
struct ScheduleHead {
  ScheduleKey key;
  Execution execution = Execution::persistent;
  std::string policy;
};
ScheduleHead read_schedule_head(const std::string& text, const std::string& source_name);

std::string schedule_text(const RProgram& program, int64_t batch);

// schedule() with a file in the place of a policy. `source_name` is the file's, for errors (bad input), which name what is wrong: a key
// that is another's, a rKernel that does not exist, or, as the verifier says it, the rTask that does not wait for another.
RProgram read_schedule(const std::string& text, const std::string& source_name, Graph graph, const VDevice& vdevice,
                       const ScheduleOptions& options, int64_t batch, const select::Families& families = kernels::families());

}  // namespace tamp::schedule
