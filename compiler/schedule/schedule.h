// Policies: from a placed graph to an rProgram. wavefront.cpp is the paper's Algorithm 1.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "compiler/ir/merge.h"
#include "compiler/ir/rprogram.h"
#include "compiler/schedule/ios_search.h"
#include "compiler/select/records.h"
#include "compiler/select/select.h"
#include "kernels/catalogue.h"

namespace tamp::schedule {

enum class Policy { wavefront, wavefront_fastest, wavefront_launches, greedy, sequential, ios, ios_merge, ios_parallel, list, best };
const char* name_of(Policy policy);
std::vector<std::string> policy_names();
std::vector<Policy> policies();                // all
Policy parse_policy(const std::string& name);  // Error (bad input) lists the names
bool merges(Policy policy);                    // whether the policy may change the graph
bool prices_stages(Policy policy);             // whether the policy is one of IOS
// The policy that `ios` with `--ios` MODE means; the modes are merge, parallel or both. Error (bad input) if `policy` is not `ios`, or
// `mode` is none of the modes.
Policy ios_policy(Policy policy, const std::string& mode);

enum class Execution { persistent, graph };
Execution parse_execution(const std::string& name);  // Error (bad input) lists the names

struct IosOptions {
  IosPruning pruning;
  int64_t part_units = 50;  // rOperators of a part at most, kMostUnits
};

// Stages of IOS that are measured instead of simulated (`--measure`, docs/policies.md): the interface between the policy and the code that
// has a device. A stage's groups run beside each other, the rOperators of a group one after another.
using Group = std::vector<ROperatorId>;
using Stage = std::vector<Group>;

// Stages to be measured, and a program that can run each of them by itself and repeatedly: no two of its buffers share memory.
struct StageJob {
  RProgram program;
  std::vector<Stage> stages;
};

// Microseconds of each stage of each job, measured with other stages running before and behind it. Throws where the device cannot measure.
using StageMeter = std::function<std::vector<std::vector<double>>(const std::vector<StageJob>& jobs)>;

struct ScheduleOptions {
  Policy policy = Policy::wavefront;
  Precision precision = Precision::fp32;
  const select::Records* records = nullptr;          // none: the model alone prices rKernels
  const std::vector<std::string>* forced = nullptr;  // select::identity per rOperator (empty: any): only these may be chosen
  bool share_memory = true;                          // false: no two buffers lie in the same memory
  bool gangs = true;                                 // false: no rKernels whose rTasks must run at the same time (graph execution has none)
  Execution execution = Execution::persistent;
  IosOptions ios{};
  const RProgram* like = nullptr;     // a schedule whose decisions are carried over (carry_over.h); no policy runs then
  int64_t search_plans = 1000;        // how many plans `list` may simulate
  const StageMeter* meter = nullptr;  // for the policies of IOS; none: the simulator prices stages
  // For policies that merge convolutions, and for their schedules. Without a merger the graph stays as it is. Not together with `forced`,
  // whose entries are numbered by the rOperators of the unmerged graph.
  const Merger* merger = nullptr;
};

// Chooses rKernels, puts rTasks on vEUs, inserts Waits, plans memory and the weights file. Error (unsupported) lists every rOperator for
// which no family has a rKernel. A rOperator whose outputs are all views of other rOperators' results gets a rKernel without phases.
// (`families` is an argument so that tests can bring their own.)
RProgram schedule(Graph graph, const ShapedVDevice& vdevice, const ScheduleOptions& options,
                  const select::Families& families = kernels::families());

// Estimated time of a whole rProgram in microseconds, the launch included (simulate.h), and when each instruction begins and ends. In graph
// execution a rTask runs wherever there is room, so two rTasks of a lane may overlap.
struct Span {
  double begin_us = 0, end_us = 0;
};
struct Timeline {
  double us = 0;
  std::vector<std::vector<Span>> lanes;  // as RProgram::lanes
};
Timeline timeline(const RProgram& program);
double simulate(const RProgram& program);
void estimate(RProgram& program);  // sets estimated_us and the fields that follow from it

// Proves everything that must hold for an rProgram before it is emitted (docs/architecture.md). Returns one sentence per violation (at most
// `limit`); none means that the program is accepted.
std::vector<std::string> verify(const RProgram& program, size_t limit = 8, const select::Families& families = kernels::families());

}  // namespace tamp::schedule
