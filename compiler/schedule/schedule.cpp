#include "compiler/schedule/schedule.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include "compiler/schedule/carry_over.h"
#include "compiler/schedule/dependencies.h"
#include "compiler/schedule/launches.h"
#include "compiler/schedule/memory_plan.h"
#include "compiler/schedule/plan.h"
#include "compiler/support/error.h"
#include "compiler/support/text.h"

namespace tamp::schedule {
namespace {

struct Row {
  Policy policy;
  const char* name;
  Plan (*run)(const PolicyInput& input);
};
constexpr Row kPolicies[] = {{Policy::sequential, "sequential", sequential},
                             {Policy::greedy, "greedy", greedy},
                             {Policy::wavefront, "wavefront", wavefront},
                             {Policy::wavefront_fastest, "wavefront-fastest", wavefront_fastest},
                             {Policy::wavefront_launches, "wavefront-launches", wavefront_launches},
                             {Policy::ios, "ios", ios},
                             {Policy::list, "list", list},
                             {Policy::best, "best", best}};

const Row& row_of(Policy policy) {
  for (const Row& row : kPolicies) {
    if (row.policy == policy) return row;
  }
  TAMP_CHECK(false, "a policy without a row");
}

}  // namespace

const char* name_of(Policy policy) { return row_of(policy).name; }

std::vector<Policy> policies() {
  std::vector<Policy> all;
  for (const Row& row : kPolicies) all.push_back(row.policy);
  return all;
}

std::vector<std::string> policy_names() {
  std::vector<std::string> names;
  for (const Row& row : kPolicies) names.emplace_back(row.name);
  return names;
}

Policy parse_policy(const std::string& name) {
  for (const Row& row : kPolicies) {
    if (name == row.name) return row.policy;
  }
  throw bad_input(fmt::format("policy '{}' is not known, supported: {}", printable(name), join(policy_names(), ", ")));
}

Draft draft_of(const Plan& plan) {
  Draft draft{{}, plan.waits, plan.order, plan.boundaries, plan.stages};
  for (const RKernel& rkernel : plan.rkernels) draft.rkernels.push_back(&rkernel);
  return draft;
}

Plan plan_of(const Draft& draft) {
  Plan plan{{}, draft.waits, draft.order, draft.boundaries, draft.stages};
  for (const RKernel* rkernel : draft.rkernels) plan.rkernels.push_back(*rkernel);
  return plan;
}

Plan plan_of(Policy policy, const PolicyInput& input) { return row_of(policy).run(input); }

RProgram schedule(Graph graph, const VDevice& vdevice, const ScheduleOptions& options, const select::Families& families) {
  RProgram program;
  program.vdevice = vdevice;
  program.precision = options.precision;
  program.policy = options.like ? options.like->policy : name_of(options.policy);
  program.graph = std::move(graph);
  const Dependencies dependencies = find_dependencies(program.graph);
  program.depth = depth_of(dependencies);
  const select::Machine machine = select::machine_for(program.graph, program.vdevice, options.precision);
  const PolicyInput input{program.graph, machine, dependencies.producers, dependencies.is_view, families, options};
  Plan plan = options.like ? carry_over(*options.like, input) : plan_of(options.policy, input);
  std::vector<Stage> stages = std::move(plan.stages);
  assemble(std::move(plan), program);
  plan_memory(program, options.share_memory);
  list_weights(program, families);
  if (options.execution == Execution::graph) program.launches = launches_of(program, stages);
  program.estimated_us = simulate(program);
  spdlog::debug("{}: {} events, arena {} of {} unshared, weights {}, estimated {:.1f} us", program.policy, program.events.size(),
                bytes_text(program.memory.arena_bytes), bytes_text(unshared_bytes(program)), bytes_text(program.weight_bytes),
                program.estimated_us);
  return program;
}

}  // namespace tamp::schedule
