// The policies that search: what they promise about their plans. And schedules as files.
#include <algorithm>
#include <map>

#include "compiler/schedule/dependencies.h"
#include "compiler/schedule/launches.h"
#include "compiler/schedule/plan.h"
#include "compiler/schedule/schedule_file.h"
#include "compiler/schedule/simulate.h"
#include "test/support/catch.h"
#include "test/support/tiny_programs.h"

using namespace tamp;
using namespace tamp::test;
using schedule::Execution;
using schedule::Policy;

namespace {

constexpr int64_t kVeus = 5;

schedule::ScheduleOptions options_of(Policy policy, Execution execution = Execution::persistent) {
  schedule::ScheduleOptions options;
  options.policy = policy;
  options.execution = execution;
  options.search_plans = 30;
  return options;
}

RProgram scheduled(const Graph& graph, Policy policy, Execution execution = Execution::persistent) {
  return schedule::schedule(graph, tiny_vdevice(kVeus), options_of(policy, execution), tiny_families());
}

schedule::Plan plan_of(const Graph& graph, const schedule::ScheduleOptions& options) {
  const VDevice d = tiny_vdevice(kVeus);
  const schedule::Dependencies found = schedule::find_dependencies(graph);
  const select::Machine machine = select::machine_for(graph, d, Precision::fp32);
  return schedule::plan_of(options.policy, {graph, machine, found.producers, found.is_view, tiny_families(), options});
}

double us_of(const schedule::Plan& plan, const Graph& graph, Execution execution) {
  const VDevice d = tiny_vdevice(kVeus);
  return schedule::Simulator(select::machine_for(graph, d, Precision::fp32)).run(plan, execution);
}

// One long chain of three beside two short ones, joined.
Graph branches() {
  GraphBuilder b;
  const TensorId x = b.input("x", {12});
  TensorId chain = x;
  for (const char* name : {"a1", "a2", "a3"}) chain = b.tiles(name, {chain}, {12});
  const TensorId one = b.tiles("b", {x}, {12}), other = b.tiles("c", {x}, {12});
  b.output(b.tiles("join", {chain, one, other}, {12}));
  return b.take();
}

RProgram read(const std::string& text, const Graph& graph, const schedule::ScheduleOptions& options, int64_t veus = kVeus,
              int64_t batch = 0) {
  return schedule::read_schedule(text, "s.json", graph, tiny_vdevice(veus), options, batch, tiny_families());
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

}  // namespace

TEST_CASE("list is never estimated to be slower than wavefront, best not than any that it asks") {
  for (const NamedGraph& tiny : tiny_graphs()) {
    for (const Execution execution : {Execution::persistent, Execution::graph}) {
      INFO(tiny.name << (execution == Execution::graph ? " graph" : ""));
      std::map<Policy, double> us;
      for (const Policy policy : {Policy::wavefront, Policy::greedy, Policy::sequential, Policy::list, Policy::best})
        us[policy] = us_of(plan_of(tiny.graph, options_of(policy, execution)), tiny.graph, execution);
      CHECK(us[Policy::list] <= us[Policy::wavefront]);
      for (const auto& [policy, other_us] : us) CHECK(us[Policy::best] <= other_us);
    }
  }
}

TEST_CASE("list simulates no more plans than it may, and finds no worse one with more") {
  const Graph graph = branches();
  double before_us = 1e9;
  for (const int64_t plans : {1, 10, 100}) {
    schedule::ScheduleOptions options = options_of(Policy::list);
    options.search_plans = plans;
    const double us = us_of(plan_of(graph, options), graph, Execution::persistent);
    CHECK(us <= before_us);
    before_us = us;
  }
}

TEST_CASE("the stages of ios have each rOperator once, groups within the limits, and nothing before what it needs") {
  for (const schedule::IosPruning pruning : {schedule::IosPruning{0, 0}, schedule::IosPruning{3, 8}, schedule::IosPruning{1, 1}}) {
    for (const int64_t part_units : {1, 3, 50}) {
      for (const NamedGraph& tiny : tiny_graphs()) {
        schedule::ScheduleOptions options = options_of(Policy::ios, Execution::graph);
        options.ios = {pruning, part_units};
        const schedule::Plan plan = plan_of(tiny.graph, options);
        std::map<size_t, std::pair<size_t, size_t>> place;  // stage, group
        for (size_t s = 0; s < plan.stages.size(); ++s) {
          if (pruning.groups > 0) CHECK(plan.stages[s].size() <= static_cast<size_t>(pruning.groups));
          for (size_t g = 0; g < plan.stages[s].size(); ++g) {
            if (pruning.group_size > 0) CHECK(plan.stages[s][g].size() <= static_cast<size_t>(pruning.group_size));
            for (const ROperatorId id : plan.stages[s][g]) CHECK(place.emplace(id.index(), std::pair(s, g)).second);
          }
        }
        const schedule::Dependencies found = schedule::find_dependencies(tiny.graph);
        for (size_t i = 0; i < tiny.graph.rops.size(); ++i) {
          CHECK(place.contains(i) == (plan.rkernels[i].rtasks() > 0));
          for (const ROperatorId p : found.producers[i]) {
            if (!place.contains(i) || !place.contains(p.index())) continue;
            CHECK(place[p.index()].first <= place[i].first);
            if (place[p.index()].first == place[i].first) CHECK(place[p.index()].second == place[i].second);
          }
        }
      }
    }
  }
}

TEST_CASE("in graph execution a stage of ios is behind the one before it, its groups on streams of their own") {
  const Graph graph = branches();
  const schedule::Plan plan = plan_of(graph, options_of(Policy::ios, Execution::graph));
  const RProgram program = scheduled(graph, Policy::ios, Execution::graph);
  std::map<size_t, size_t> stage_of;
  for (size_t s = 0; s < plan.stages.size(); ++s) {
    for (const auto& group : plan.stages[s]) {
      for (const ROperatorId id : group) stage_of[id.index()] = s;
    }
  }
  REQUIRE(program.launches.has_value());
  std::vector<std::vector<bool>> behind;  // per launch: those that are done before it
  for (size_t n = 0; n < program.launches->size(); ++n) {
    behind.emplace_back(n, false);
    for (const int32_t m : (*program.launches)[n].after) {
      behind[n][static_cast<size_t>(m)] = true;
      for (size_t k = 0; k < static_cast<size_t>(m); ++k) behind[n][k] = behind[n][k] || behind[static_cast<size_t>(m)][k];
    }
    for (size_t m = 0; m < n; ++m) {
      if (stage_of[(*program.launches)[m].rop.index()] < stage_of[(*program.launches)[n].rop.index()]) CHECK(behind[n][m]);
    }
  }
  CHECK(schedule::verify_launches(program, 8, tiny_families()).empty());
}

TEST_CASE("sequential in graph execution is one launch after another") {
  const RProgram program = scheduled(branches(), Policy::sequential, Execution::graph);
  REQUIRE(program.launches.has_value());
  for (size_t n = 0; n < program.launches->size(); ++n) {
    const PhaseLaunch& launch = (*program.launches)[n];
    CHECK(launch.stream == 0);
    CHECK(launch.after == (n == 0 ? std::vector<int32_t>{} : std::vector<int32_t>{static_cast<int32_t>(n) - 1}));
  }
}

TEST_CASE("a saved schedule read again is the same rProgram") {
  for (const NamedGraph& tiny : tiny_graphs()) {
    for (const Policy policy : schedule::policies()) {
      for (const Execution execution : {Execution::persistent, Execution::graph}) {
        INFO(tiny.name << " " << schedule::name_of(policy) << (execution == Execution::graph ? " graph" : ""));
        const RProgram program = scheduled(tiny.graph, policy, execution);
        const std::string text = schedule::schedule_text(program, 0);
        const RProgram again = read(text, tiny.graph, options_of(Policy::wavefront, execution));
        CHECK(schedule::schedule_text(again, 0) == text);
        CHECK(print(again) == print(program));
        CHECK(again.estimated_us == program.estimated_us);
        CHECK(again.memory.buffer_offset == program.memory.buffer_offset);
        CHECK(again.memory.scratch_offset == program.memory.scratch_offset);
      }
    }
  }
}

TEST_CASE("a schedule for something else is refused and says for what") {
  const Graph graph = branches();
  const std::string text = schedule::schedule_text(scheduled(graph, Policy::wavefront), 0);
  const schedule::ScheduleOptions options = options_of(Policy::wavefront);
  CHECK_NOTHROW(read(text, graph, options));
  CHECK_THROWS_WITH(read(text, tiny_graphs()[0].graph, options), Catch::Contains("s.json: a schedule for model "));
  CHECK_THROWS_WITH(read(text, graph, options, kVeus, 4), Catch::Contains("batch of the model; this is") && Catch::Contains("batch 4"));
  CHECK_THROWS_WITH(read(text, graph, options, kVeus + 1), Catch::Contains("5 lanes for the 6 vEUs") || Catch::Contains("a schedule for"));
  CHECK_THROWS_WITH(read(text, graph, options_of(Policy::wavefront, Execution::graph)),
                    Catch::Contains("for persistent execution, asked for is graph"));
  schedule::ScheduleOptions other = options;
  other.precision = Precision::tf32;
  CHECK_THROWS_WITH(read(text, graph, other), Catch::Contains("precision fp32") && Catch::Contains("precision tf32"));
}

TEST_CASE("a schedule that is damaged is refused and says where") {
  const Graph graph = branches();
  const std::string text = schedule::schedule_text(scheduled(graph, Policy::sequential), 0);
  const schedule::ScheduleOptions options = options_of(Policy::wavefront);
  const auto refused = [&](const std::string& damaged, const std::string& says) {
    CHECK_THROWS_WITH(read(damaged, graph, options), Catch::StartsWith("s.json: ") && Catch::Contains(says));
  };
  refused("{", "not a schedule");
  refused("[]", "not a schedule");
  refused(replaced(text, "\"lanes\"", "\"lines\""), "not a schedule");
  refused(replaced(text, "tiles<", "trials<"), "has no rKernel");
  refused(replaced(text, "\"0.0.0", "\"0.0.999"), "lane 0 instruction 0: 999 is not below");
  refused(replaced(text, "\"0.0.0", "\"99.0.0"), "lane 0 instruction 0: 99 is not below 6");
  refused(replaced(text, "\"0.0.0", "\"0.0.x"), "a number is expected");
  refused(replaced(text, "\"0.0.0", "\"1.0.0 0.0.0"), "'a2' phase 0 rTask 0 runs 2 times");
  refused(replaced(text, "<0", ""), "without waiting for 'a1' rTask");
  refused(replaced(text, "\"0.0.0", "\"0.0.0<0"), "waits for ever, for 'a1'");
}
