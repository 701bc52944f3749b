// Policies: from a placed graph to an rProgram. wavefront.cpp is the paper's Algorithm 1.
#pragma once

#include <string>
#include <vector>

#include "compiler/ir/merge.h"
#include "compiler/ir/rprogram.h"
#include "compiler/schedule/ios_search.h"
#include "compiler/schedule/stage_meter.h"
#include "compiler/select/records.h"
#include "compiler/select/select.h"
#include "kernels/catalogue.h"

namespace tamp::schedule {

enum class Policy { wavefront, wavefront_fastest, wavefront_launches, greedy, sequential, ios, ios_merge, ios_parallel, list, best };
const char* name_of(Policy policy);
std::vector<std::string> policy_names();
std::vector<Policy> policies();                // all
Policy parse_policy(const std::string& name);  // Error (bad input) lists the names
bool merges(Policy policy);                    // whether it may change the graph
bool prices_stages(Policy policy);             // whether it is one of IOS
// `ios` with what `--ios` says: merge, parallel or both. Error (bad input) if `policy` is another one, or the mode none of them.
Policy ios_policy(Policy policy, const std::string& mode);

enum class Execution { persistent, graph };
Execution parse_execution(const std::string& name);  // Error (bad input) lists the names

struct IosOptions {
  IosPruning pruning;
  int64_t part_units = 50;  // rOperators of a part at most, kMostUnits
};

struct ScheduleOptions {
  Policy policy = Policy::wavefront;
  Precision precision = Precision::fp32;
  const select::Records* records = nullptr;          // none: the model alone prices rKernels
  const std::vector<std::string>* forced = nullptr;  // select::identity per rOperator (empty: any), all that may be chosen
  bool share_memory = true;                          // false: no two buffers lie in the same memory
  bool gangs = true;                                 // false: no rKernels whose rTasks run at the same time (graph execution has none)
  Execution execution = Execution::persistent;
  IosOptions ios{};
  const RProgram* like = nullptr;     // a schedule whose decisions are carried over (carry_over.h), instead of a policy
  int64_t search_plans = 1000;        // that `list` simulates at most
  const StageMeter* meter = nullptr;  // for the policies of IOS; none: the simulator prices stages
  // For policies that merge convolutions, and for schedules of them; none: the graph stays as it is. Not beside `forced`, which counts
  // rOperators.
  const Merger* merger = nullptr;
};

// Chooses rKernels, puts rTasks on vEUs, inserts Waits, plans memory and the weights file. Error (unsupported) lists every
// rOperator for which no family has a rKernel. A rOperator whose outputs are all views of what others made gets a rKernel
// without phases. (`families` is an argument so that tests can bring their own.)
RProgram schedule(Graph graph, const VDevice& vdevice, const ScheduleOptions& options,
                  const select::Families& families = kernels::families());

// Estimated time of a whole rProgram in microseconds, the launch included (simulate.h), and when each instruction begins and ends. In
// graph execution a rTask runs wherever there is room, so two of a lane may overlap.
struct Span {
  double begin_us = 0, end_us = 0;
};
struct Timeline {
  double us = 0;
  std::vector<std::vector<Span>> lanes;  // as RProgram::lanes
};
Timeline timeline(const RProgram& program);
double simulate(const RProgram& program);
void estimate(RProgram& program);  // sets estimated_us and what else follows from the simulation

// All that is proved of every rProgram before it is emitted (docs/architecture.md); returns one sentence per violation (at
// most `limit`), empty = accepted.
std::vector<std::string> verify(const RProgram& program, size_t limit = 8, const select::Families& families = kernels::families());

}  // namespace tamp::schedule
