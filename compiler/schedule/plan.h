// What a policy decides, and what it is told. Append and Wait are Rammer's two calls: a policy is a program over them, written down as
// `Plan::order` and `Plan::waits`. A policy is one file with one function `Plan NAME(const PolicyInput&)` and a row in schedule.cpp. What
// it believes of times is its own business (most place rTasks with a Timetable); what its plan takes, simulate.h says, of all alike.
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

// All of a policy's decisions. `order` is one topological order of all rTasks; the rTasks of a (rOperator, phase) that others
// wait for come before theirs, and those of a gang follow each other.
struct Plan {
  std::vector<RKernel> rkernels;                // per rOperator; no phases where nothing is to be done
  std::vector<std::vector<ROperatorId>> waits;  // per rOperator: those that each of its rTasks waits for
  std::vector<Placed> order;
  // Positions in `order`, ascending: grid-wide boundaries. All rTasks ahead of one end before any behind it begins.
  std::vector<size_t> boundaries;
  // Graph execution: stages one behind the other, of all rOperators that have rTasks, as in `order`. Empty: a rOperator waits for its data
  // alone.
  std::vector<Stage> stages;
  const char* chosen = nullptr;  // the policy that made it, where another one chose that
};

// The same without rKernels of its own: for policies that try many, and for what the simulator needs.
struct Draft {
  std::vector<const RKernel*> rkernels;
  std::vector<std::vector<ROperatorId>> waits;
  std::vector<Placed> order;
  std::vector<size_t> boundaries;
  std::vector<Stage> stages;
};
Draft draft_of(const Plan& plan);
Plan plan_of(const Draft& draft);

// `producers` and `is_view` as found by find_dependencies. Error (unsupported) of a policy names all rOperators without any candidate.
struct PolicyInput {
  const Graph& graph;
  const select::Machine& machine;
  const std::vector<std::vector<ROperatorId>>& producers;
  const std::vector<bool>& is_view;
  const select::Families& families;
  ScheduleOptions options{};
};

// With a policy that may change the graph (docs/policies.md, ios): the plan is of another graph, in which `merges` were made.
struct Planned {
  std::vector<Merge> merges;
  std::optional<Graph> graph;  // none: as it was
  Plan plan;
};

// The policies, by name and by function. `planned` lets a policy change the graph if the options have a merger, plan_of never does.
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
// The share of the wavefront policy's simulated time that a plan must promise to be taken instead. One that is simulated to be less than 1
// % faster is mostly not; in graph execution nor is one that promises 5 % (docs/policies.md).
double worth_of(Execution execution);

// Makes a plan of `program.graph` the program: lanes, events, places in memory, weights, and launches in graph execution. What it is for
// (vDevice, precision) is there already.
void complete(RProgram& program, Plan plan, const ScheduleOptions& options, const select::Families& families);

// Lanes and events of a plan: one event per (rOperator, phase) that somebody on another vEU waits for, one signal per vEU
// that has such rTasks, Waits that others imply left out. Fills RProgram::lanes and ::events; takes the rest from the plan.
void assemble(Plan plan, RProgram& program);

}  // namespace tamp::schedule
