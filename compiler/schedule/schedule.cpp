#include "compiler/schedule/schedule.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include "compiler/schedule/carry_over.h"
#include "compiler/schedule/dependencies.h"
#include "compiler/schedule/guards.h"
#include "compiler/schedule/launches.h"
#include "compiler/schedule/loop_plan.h"
#include "compiler/schedule/memory_plan.h"
#include "compiler/schedule/plan.h"
#include "compiler/schedule/words.h"
#include "compiler/support/error.h"
#include "compiler/support/nearest.h"
#include "compiler/support/text.h"

namespace tamp::schedule {
namespace {

struct Row {
  Policy policy;
  const char* name;
  Plan (*run)(const PolicyInput& input);
  Planned (*merge)(const PolicyInput& input) = nullptr;  // for policies that may change the graph
};
constexpr Row kPolicies[] = {{Policy::sequential, "sequential", sequential},
                             {Policy::greedy, "greedy", greedy},
                             {Policy::wavefront, "wavefront", wavefront},
                             {Policy::wavefront_fastest, "wavefront-fastest", wavefront_fastest},
                             {Policy::wavefront_launches, "wavefront-launches", wavefront_launches},
                             {Policy::ios, "ios", ios, ios_merged},
                             {Policy::ios_merge, "ios-merge", ios_merge, ios_merge_merged},
                             {Policy::ios_parallel, "ios-parallel", ios},
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
  throw bad_input("policy '{}' is not known, supported: {}{}", printable(name), join(policy_names(), ", "),
                  did_you_mean(name, policy_names()));
}

bool merges(Policy policy) { return row_of(policy).merge != nullptr; }

bool prices_stages(Policy policy) { return policy == Policy::ios || policy == Policy::ios_merge || policy == Policy::ios_parallel; }

Policy ios_policy(Policy policy, const std::string& mode) {
  if (policy != Policy::ios) throw bad_input("--ios {}: for policy ios, found '{}'", printable(mode), name_of(policy));
  if (mode == "both") return Policy::ios;
  if (mode == "merge") return Policy::ios_merge;
  if (mode == "parallel") return Policy::ios_parallel;
  throw bad_input("--ios '{}' is not known, supported: merge, parallel, both{}", printable(mode),
                  did_you_mean(mode, {"merge", "parallel", "both"}));
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

Planned planned(Policy policy, const PolicyInput& input) {
  if (!input.graph.loops.empty()) return {{}, std::nullopt, plan_with_loops(policy, input)};
  const Row& row = row_of(policy);
  const Merger* merger = input.options.merger;
  if (row.merge && merger && !merger->classes.empty() && !input.options.forced) return row.merge(input);
  return {{}, std::nullopt, row.run(input)};
}

void complete(RProgram& program, Plan plan, const ScheduleOptions& options, const select::Families& families) {
  const std::vector<Stage> stages = std::move(plan.stages);
  assemble(std::move(plan), program);
  if (options.execution == Execution::persistent) choose_words(program);
  set_guards(program, families);
  plan_memory(program, options.share_memory);
  list_weights({&program}, families);
  if (options.execution == Execution::graph) program.launches = launches_of(program, stages);
}

RProgram schedule(Graph graph, const ShapedVDevice& vdevice, const ScheduleOptions& options, const select::Families& families) {
  RProgram program;
  program.vdevice = vdevice;
  program.precision = options.precision;
  program.policy = options.like ? options.like->policy : name_of(options.policy);
  program.graph = std::move(graph);
  if (options.like && !options.like->merges.empty() && options.merger) {
    program.merges = options.like->merges;
    program.graph = options.merger->merged(program.merges);
  }
  const Dependencies dependencies = find_dependencies(program.graph);
  const select::Machine machine = select::machine_for(program.graph, program.vdevice, options.precision);
  const PolicyInput input{program.graph, machine, dependencies.producers, dependencies.is_view, families, options};
  auto [merges, merged, plan] =
      options.like ? Planned{std::move(program.merges), std::nullopt, carry_over(*options.like, input)} : planned(options.policy, input);
  program.merges = std::move(merges);
  if (merged) program.graph = *std::move(merged);
  program.depth = depth_of(merged ? find_dependencies(program.graph) : dependencies);
  if (plan.chosen) program.policy += fmt::format(" ({})", plan.chosen);
  complete(program, std::move(plan), options, families);
  estimate(program);
  spdlog::debug("{}: {} events, arena {} of {} unshared, weights {}, estimated {:.1f} us", program.policy, program.events.size(),
                bytes_text(program.memory.arena_bytes), bytes_text(unshared_bytes(program)), bytes_text(program.weight_bytes),
                program.estimated_us);
  return program;
}

}  // namespace tamp::schedule
