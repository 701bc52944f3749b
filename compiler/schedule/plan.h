// A policy's input and its decisions. Append and Wait are Rammer's two calls: a policy is a program of these calls, written down as
// `Plan::order` and `Plan::waits`. A policy is one file with one function `Plan NAME(const PolicyInput&)` and a row in schedule.cpp. How a
// policy estimates times is its own business (most place rTasks with a Timetable); how long the finished plan takes, simulate.h says for
// all policies alike.
#pragma once

#include <optional>
#include <vector>

#include "compiler/ir/rprogram.h"
#include "compiler/schedule/schedule.h"
#include "compiler/select/select.h"

namespace tamp::schedule {

struct Placed {
  RTask rtask;
  VEU veu;
};

// Where a plan enters a loop, where the rOperators begin that end an iteration, and where it goes back: in front of position `at` of its
// order, and a boundary at each of them. Marks are in the order in which they are met.
struct LoopMark {
  enum class Kind : uint8_t { enter, ends, repeat };
  size_t at = 0;
  Kind kind = Kind::enter;
  int32_t loop = -1;
};

// All of a policy's decisions. `order` is one topological order of all rTasks: the rTasks of a (rOperator, phase) come before the rTasks
// that wait for them, and those of a gang follow each other.
struct Plan {
  std::vector<RKernel> rkernels;                // per rOperator; without phases where nothing is to be done
  std::vector<std::vector<ROperatorId>> waits;  // per rOperator: the rOperators that each of its rTasks waits for
  std::vector<Placed> order;
  // Grid-wide boundaries, as positions in `order`, ascending. All rTasks ahead of a boundary end before any behind it begins.
  std::vector<size_t> boundaries;
  // Graph execution: stages one behind the other, of all rOperators that have rTasks, in the order of `order`. If there are none, a
  // rOperator waits only for its data.
  std::vector<Stage> stages;
  const char* chosen = nullptr;      // the policy that made the plan, where another policy chose that one
  std::vector<LoopMark> marks = {};  // loop_plan.h
};

// A plan that does not own its rKernels: for policies that try many plans, and all that the simulator needs.
struct Draft {
  std::vector<const RKernel*> rkernels;
  std::vector<std::vector<ROperatorId>> waits;
  std::vector<Placed> order;
  std::vector<size_t> boundaries;
  std::vector<Stage> stages;
};
Draft draft_of(const Plan& plan);
Plan plan_of(const Draft& draft);

// `producers` and `is_view` are find_dependencies' results. A policy's Error (unsupported) names all rOperators without any candidate.
struct PolicyInput {
  const Graph& graph;
  const select::Machine& machine;
  const std::vector<std::vector<ROperatorId>>& producers;
  const std::vector<bool>& is_view;
  const select::Families& families;
  ScheduleOptions options{};
};

// The result of a policy that may change the graph (docs/policies.md, ios): then the plan is for `graph`, in which `merges` were made.
struct Planned {
  std::vector<Merge> merges;
  std::optional<Graph> graph;  // none: the graph is unchanged
  Plan plan;
};

// Calls a policy by its name. `planned` lets a policy change the graph if the options have a merger; plan_of never does.
Plan plan_of(Policy policy, const PolicyInput& input);
Planned planned(Policy policy, const PolicyInput& input);
Plan wavefront(const PolicyInput& input);
Plan wavefront_fastest(const PolicyInput& input);
Plan wavefront_launches(const PolicyInput& input);
Plan sequential(const PolicyInput& input);
Plan greedy(const PolicyInput& input);
Plan ios(const PolicyInput& input);        // and ios-parallel
Plan ios_merge(const PolicyInput& input);  // of a graph that is merged
Planned ios_merged(const PolicyInput& input);
Planned ios_merge_merged(const PolicyInput& input);
Plan list(const PolicyInput& input);
Plan list_from(const PolicyInput& input, Plan wavefront);  // `list`, where the wavefront policy's plan is known
Plan best(const PolicyInput& input);
// A plan is taken only if its simulated time is less than this share of the wavefront policy's. A plan that is simulated to be less than
// 1 % faster is mostly not faster when measured; in graph execution neither is one that promises 5 % (docs/policies.md).
double worth_of(Execution execution);

// Makes the program from a plan of `program.graph`: lanes, events, places in memory, weights, and launches in graph execution. The
// program's vDevice and precision are set before.
void complete(RProgram& program, Plan plan, const ScheduleOptions& options, const select::Families& families);

// Makes lanes and events from a plan and fills RProgram::lanes and ::events; the plan's rKernels become the program's. There is one event
// per (rOperator, phase) that another vEU waits for and one signal per vEU that has such rTasks; Waits that others imply are left out.
void assemble(Plan plan, RProgram& program);

}  // namespace tamp::schedule
