// The policies that search: what they promise about their plans. And schedules as files.
#include <algorithm>
#include <map>

#include "codegen/codegen.h"
#include "compiler/schedule/dependencies.h"
#include "compiler/schedule/launches.h"
#include "compiler/schedule/plan.h"
#include "compiler/schedule/schedule_file.h"
#include "compiler/schedule/simulate.h"
#include "compiler/schedule/stage_lanes.h"
#include "compiler/support/error.h"
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
  const ShapedVDevice d = tiny_vdevice(kVeus);
  const schedule::Dependencies found = schedule::find_dependencies(graph);
  const select::Machine machine = select::machine_for(graph, d, Precision::fp32);
  return schedule::plan_of(options.policy, {graph, machine, found.producers, found.is_view, tiny_families(), options});
}

double us_of(const schedule::Plan& plan, const Graph& graph, Execution execution) {
  const ShapedVDevice d = tiny_vdevice(kVeus);
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

TEST_CASE("vEUs take rTasks in the order that their phase asks for") {
  GraphBuilder b;
  b.output(b.tiles("one", {b.input("x", {12})}, {12}));
  const Graph graph = b.take();
  select::Families families = tiny_families();
  families[0].candidates = [](const kernels::Request& request) {
    std::vector<RKernel> all = tiny_families()[0].candidates(request);
    std::erase_if(all, [](const RKernel& rkernel) { return rkernel.phases[0].rtasks != 6; });
    for (RKernel& rkernel : all) {
      rkernel.phases[0].boxes = InputBoxes{};
      rkernel.phases[0].boxes->tiles_w = 3;
      rkernel.phases[0].boxes->n_blocks = rkernel.phases[0].boxes->blocks_beside = 2;
    }
    return all;
  };
  const ShapedVDevice d = tiny_vdevice(kVeus);
  const schedule::Dependencies found = schedule::find_dependencies(graph);
  const select::Machine machine = select::machine_for(graph, d, Precision::fp32);
  for (const Policy policy : {Policy::wavefront, Policy::greedy, Policy::sequential, Policy::list}) {
    const schedule::Plan plan = schedule::plan_of(policy, {graph, machine, found.producers, found.is_view, families, options_of(policy)});
    std::vector<int64_t> order;
    for (const schedule::Placed& placed : plan.order) order.push_back(placed.rtask.index);
    CHECK(order == std::vector<int64_t>{0, 3, 1, 4, 2, 5});
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

TEST_CASE("with a meter ios asks once for each different stage, and takes what is cheapest by that") {
  for (const Execution execution : {Execution::persistent, Execution::graph}) {
    for (const bool wants_groups : {false, true}) {
      const Graph graph = branches();
      int calls = 0;
      const schedule::StageMeter meter = [&](const std::vector<schedule::StageJob>& jobs) {
        ++calls;
        std::vector<std::vector<double>> us;
        for (const schedule::StageJob& job : jobs) {
          CHECK(schedule::verify(job.program, 8, tiny_families()).empty());
          CHECK(job.program.launches.has_value() == (execution == Execution::graph));
          std::vector<int64_t> offsets;  // each buffer has its own
          for (const int64_t offset : job.program.memory.buffer_offset) {
            if (offset >= 0) offsets.push_back(offset);
          }
          std::sort(offsets.begin(), offsets.end());
          CHECK(std::adjacent_find(offsets.begin(), offsets.end()) == offsets.end());
          us.emplace_back();
          for (const schedule::Stage& stage : job.stages) us.back().push_back(wants_groups == (stage.size() > 1) ? 1 : 100);
        }
        return us;
      };
      schedule::ScheduleOptions options = options_of(Policy::ios, execution);
      options.meter = &meter;
      const schedule::Plan plan = plan_of(graph, options);
      CHECK(calls == 1);
      size_t most_groups = 0;
      for (const schedule::Stage& stage : plan.stages) most_groups = std::max(most_groups, stage.size());
      CHECK(most_groups == (wants_groups ? 3 : 1));
      const RProgram program = schedule::schedule(graph, tiny_vdevice(kVeus), options, tiny_families());
      CHECK(schedule::verify(program, 8, tiny_families()).empty());
    }
  }
}

TEST_CASE("a meter that answers something else than it was asked is found out") {
  const Graph graph = branches();
  schedule::ScheduleOptions options = options_of(Policy::ios);
  const schedule::StageMeter no_jobs = [](const std::vector<schedule::StageJob>&) { return std::vector<std::vector<double>>{}; };
  const schedule::StageMeter too_few = [](const std::vector<schedule::StageJob>& jobs) {
    return std::vector<std::vector<double>>(jobs.size());
  };
  for (const schedule::StageMeter* meter : {&no_jobs, &too_few}) {
    options.meter = meter;
    CHECK_THROWS_AS(plan_of(graph, options), InternalError);
  }
}

TEST_CASE("the lanes of a stage have its rTasks once, and Waits for nothing outside of it") {
  const Graph graph = branches();
  const RProgram whole = scheduled(graph, Policy::sequential);
  schedule::StageLanes lanes(whole);
  const auto rows_of = [&](const schedule::Stage& stage) {
    const RProgram& alone = lanes.of(stage);
    std::map<size_t, std::vector<int64_t>> seen;  // rTasks of a rOperator
    std::vector<int64_t> signals(alone.events.size(), 0);
    for (const auto& lane : alone.lanes) {
      for (const Instruction& row : lane) {
        if (row.rtask.rop.valid()) seen[row.rtask.rop.index()].push_back(row.rtask.index);
        if (row.signal.valid()) ++signals[row.signal.index()];
      }
    }
    for (size_t e = 0; e < signals.size(); ++e) CHECK(signals[e] == alone.events[e].count);
    for (auto& [rop, indices] : seen) {
      std::sort(indices.begin(), indices.end());
      for (size_t i = 0; i < indices.size(); ++i) CHECK(indices[i] == static_cast<int64_t>(i));
      CHECK(static_cast<int64_t>(indices.size()) == whole.rkernels[rop].rtasks());
    }
    const std::vector<uint32_t> table = codegen::lane_table(whole, alone.lanes, alone.events);
    CHECK(table[0] == table.size());
    CHECK(table[1] == alone.events.size());
    CHECK(table[2] % 4 == 0);
    CHECK((table.size() - table[2]) / 4 == table[4 + static_cast<size_t>(kVeus)]);
    return seen;
  };
  CHECK(rows_of({}).empty());
  CHECK(lanes.of({}).events.empty());
  const schedule::Stage chain = {{ROperatorId(0), ROperatorId(1)}, {ROperatorId(3)}};
  CHECK(rows_of(chain).size() == 3);
  CHECK(lanes.of(chain).events.size() == 1);

  // Three copies: each rTask three times, the second copy behind a boundary that every lane signals.
  const RProgram once = lanes.of(chain);
  const RProgram& thrice = lanes.of(chain, 3);
  CHECK(thrice.events.size() == 3 * once.events.size() + 2);
  for (size_t veu = 0; veu < once.lanes.size(); ++veu) {
    std::vector<int64_t> indices, thrice_indices;
    for (const Instruction& row : once.lanes[veu]) indices.push_back(row.rtask.index);
    for (const Instruction& row : thrice.lanes[veu]) {
      if (row.rtask.rop.valid()) thrice_indices.push_back(row.rtask.index);
    }
    std::vector<int64_t> expected;
    for (int copy = 0; copy < 3; ++copy) expected.insert(expected.end(), indices.begin(), indices.end());
    CHECK(thrice_indices == expected);
  }
  std::vector<int64_t> signals(thrice.events.size(), 0), waits(thrice.events.size(), 0);
  for (const auto& lane : thrice.lanes) {
    for (const Instruction& row : lane) {
      if (row.signal.valid()) ++signals[row.signal.index()];
      for (const EventId wait : row.waits) ++waits[wait.index()];
    }
  }
  for (size_t e = 0; e < signals.size(); ++e) {
    CHECK(signals[e] == thrice.events[e].count);
    CHECK(waits[e] > 0);
  }
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
