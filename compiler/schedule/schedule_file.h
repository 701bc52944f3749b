// Schedules as files: a policy's decisions, to be looked at, edited, and used again. The format is JSON with sorted keys, with one
// rOperator, event, lane or launch per line. docs/policies.md describes it.
#pragma once

#include <string>

#include "compiler/schedule/schedule.h"

namespace tamp::schedule {

// The programs that a schedule is valid for. Values of weights do not count: a retrained network has the same key.
struct ScheduleKey {
  std::string model;  // hash of the graph as it is scheduled
  std::string vdevice;
  std::string precision;
  int64_t batch = 0;  // of `--batch`; 0 = the model's own
  bool operator==(const ScheduleKey&) const = default;
};
ScheduleKey key_of(const Graph& graph, const ShapedVDevice& vdevice, Precision precision, int64_t batch);

// Reads the file's key. Error (bad input) if it is no schedule.
struct ScheduleHead {
  ScheduleKey key;
  Execution execution = Execution::persistent;
  std::string policy;
};
ScheduleHead read_schedule_head(const std::string& text, const std::string& source_name);

std::string schedule_text(const RProgram& program, int64_t batch);

// As schedule(), with a file in the place of a policy. Errors (bad input) begin with `source_name` and name the fault: a key of another
// model or vDevice, a rKernel that does not exist, or, in the verifier's words, a rTask that does not wait for another.
RProgram read_schedule(const std::string& text, const std::string& source_name, Graph graph, const ShapedVDevice& vdevice,
                       const ScheduleOptions& options, int64_t batch, const select::Families& families = kernels::families());

}  // namespace tamp::schedule
