// The simulator: what a plan takes, by its edges, by what shares memory at the same time, and by execution.
#include "compiler/schedule/simulate.h"

#include <algorithm>

#include "compiler/schedule/dependencies.h"
#include "compiler/schedule/plan.h"
#include "test/support/catch.h"
#include "test/support/tiny_programs.h"

using namespace tamp;
using namespace tamp::test;

namespace {

RKernel rkernel(int64_t rtasks, double flops, double activation_bytes = 0, double weight_bytes = 0) {
  Phase phase;
  phase.rtasks = rtasks;
  phase.cost = {flops, false, 1.0, activation_bytes, weight_bytes};
  if (weight_bytes > 0) phase.ring = {1024, 1, 1, rtasks};
  RKernel made;
  made.phases = {phase};
  return made;
}

// rOperators that each wait for those named; rTask i of the n-th is on vEU `first[n] + i`.
schedule::Plan plan_of(const std::vector<RKernel>& rkernels, const std::vector<std::vector<int>>& waits, const std::vector<int>& first) {
  schedule::Plan plan;
  plan.rkernels = rkernels;
  for (size_t n = 0; n < rkernels.size(); ++n) {
    plan.waits.emplace_back();
    for (const int w : waits[n]) plan.waits.back().push_back(ROperatorId(w));
    for (int64_t i = 0; i < rkernels[n].phases[0].rtasks; ++i)
      plan.order.push_back({{ROperatorId(static_cast<int64_t>(n)), 0, i}, VEU(first[n] + i)});
  }
  return plan;
}

// 4 vEUs of 1e6 flops and 1e3 bytes a us each; a rTask costs 1 us; an edge 5, between kernels 7, on the same vEU 0.5.
ShapedVDevice device() {
  ShapedVDevice d = tiny_vdevice(4);
  d.rtask_us = 1, d.edge_us = 5, d.kernel_edge_us = 7, d.same_veu_us = 0.5, d.launch_us = 0, d.barrier_us = 5;
  d.lone_veu_shares = 4;
  return d;
}

double us_of(const schedule::Plan& plan, schedule::Execution execution = schedule::Execution::persistent) {
  const ShapedVDevice d = device();
  return schedule::Simulator({d, Precision::fp32, true}).run(plan, execution);
}

}  // namespace

TEST_CASE("a rTask sees what ran on its own vEU sooner than what ran on another, and another kernel's last") {
  const std::vector<RKernel> two = {rkernel(1, 2e6), rkernel(1, 2e6)};
  CHECK(us_of(plan_of(two, {{}, {0}}, {0, 0})) == Approx(3 + 0.5 + 3));
  CHECK(us_of(plan_of(two, {{}, {0}}, {0, 1})) == Approx(3 + 5 + 3));
  CHECK(us_of(plan_of(two, {{}, {0}}, {0, 1}), schedule::Execution::graph) == Approx(3 + 7 + 3));
  CHECK(us_of(plan_of(two, {{}, {}}, {0, 1})) == Approx(3));
}

TEST_CASE("an edge behind few signals is shorter, and a signal keeps the next rTask of its vEU waiting") {
  ShapedVDevice d = device();
  d.edge_spread_us = 2, d.signal_us = 0.25;
  const auto us_of_plan = [&](const schedule::Plan& plan) { return schedule::Simulator({d, Precision::fp32, true}).run(plan); };
  // Of four vEUs: one signal, then all four.
  CHECK(us_of_plan(plan_of({rkernel(1, 2e6), rkernel(1, 2e6)}, {{}, {0}}, {0, 1})) == Approx(3 + 5 - 2 * 0.75 + 3));
  CHECK(us_of_plan(plan_of({rkernel(4, 2e6), rkernel(1, 2e6)}, {{}, {0}}, {0, 0})) == Approx(3 + 5 + 3));
  CHECK(us_of_plan(plan_of({rkernel(1, 2e6), rkernel(1, 2e6)}, {{}, {}}, {0, 0})) == Approx(3 + 0.5 + 0.25 + 3));
}

TEST_CASE("in graph execution a kernel that only follows the one before it in its stream has the edge of a dependent") {
  const std::vector<RKernel> three(3, rkernel(1, 2e6)), four(4, rkernel(1, 2e6));
  ShapedVDevice d = device();
  d.dependent_kernel_edge_us = 6;
  const auto graph_us = [&](const schedule::Plan& plan) {
    return schedule::Simulator({d, Precision::fp32, true}).run(plan, schedule::Execution::graph);
  };
  CHECK(graph_us(plan_of(three, {{}, {0}, {0, 1}}, {0, 0, 0})) == Approx(3 + 6 + 3 + 6 + 3));  // a chain: 2 is after 0 by 1
  CHECK(graph_us(plan_of(three, {{}, {0}, {0}}, {0, 0, 1})) == Approx(3 + 7 + 3));             // a fork: one branch has a stream of its own
  CHECK(graph_us(plan_of(four, {{}, {0}, {0}, {1, 2}}, {0, 0, 1, 0})) == Approx(3 + 7 + 3 + 7 + 3));
  d.dependent_kernel_edge_us.reset();
  CHECK(graph_us(plan_of(three, {{}, {0}, {0, 1}}, {0, 0, 0})) == Approx(3 + 7 + 3 + 7 + 3));
}

TEST_CASE("rTasks share memory with those that really run at the same time") {
  // 8e3 bytes: 2 us for a vEU that has all of the 4e3 bytes a us, 8 us for one of four.
  CHECK(us_of(plan_of({rkernel(1, 0, 8e3)}, {{}}, {0})) == Approx(1 + 2));
  CHECK(us_of(plan_of({rkernel(4, 0, 8e3)}, {{}}, {0})) == Approx(1 + 8));
  // Two rOperators of one rTask: beside each other they share, one after the other they do not.
  const std::vector<RKernel> two = {rkernel(1, 0, 8e3), rkernel(1, 0, 8e3)};
  CHECK(us_of(plan_of(two, {{}, {}}, {0, 1})) == Approx(1 + 4));
  CHECK(us_of(plan_of(two, {{}, {0}}, {0, 1})) == Approx(1 + 2 + 5 + 1 + 2));
}

TEST_CASE("weights are fetched while a rTask waits, but not before its kernel begins") {
  const std::vector<RKernel> two = {rkernel(1, 9e6), rkernel(1, 0, 0, 8e3)};
  CHECK(us_of(plan_of(two, {{}, {0}}, {0, 1})) == Approx(10 + 5 + 1));
  CHECK(us_of(plan_of(two, {{}, {0}}, {0, 1}), schedule::Execution::graph) == Approx(10 + 7 + 1 + 2));
}

TEST_CASE("behind a boundary nothing begins before all ahead of it has ended") {
  schedule::Plan plan = plan_of({rkernel(1, 9e6), rkernel(1, 1e6), rkernel(1, 1e6)}, {{}, {}, {1}}, {0, 1, 1});
  CHECK(us_of(plan) == Approx(10));
  plan.boundaries = {2};
  CHECK(us_of(plan) == Approx(10 + 5 + 2));
}

TEST_CASE("in graph execution a stage begins when the one before it has ended, a group runs in order") {
  schedule::Plan plan = plan_of({rkernel(1, 9e6), rkernel(1, 1e6), rkernel(1, 1e6)}, {{}, {}, {}}, {0, 1, 2});
  const auto graph_us = [&](std::vector<schedule::Stage> stages) {
    plan.stages = std::move(stages);
    return us_of(plan, schedule::Execution::graph);
  };
  const ROperatorId a(0), b(1), c(2);
  CHECK(graph_us({}) == Approx(10));
  CHECK(graph_us({{{a}, {b}}, {{c}}}) == Approx(10 + 7 + 2));
  CHECK(graph_us({{{a, b}, {c}}}) == Approx(10 + 7 + 2));
  CHECK(graph_us({{{a}, {b, c}}}) == Approx(2 + 7 + 2));
}

TEST_CASE("a gang begins when all of its vEUs are free") {
  RKernel gang = rkernel(2, 1e6);
  gang.gang = true;
  CHECK(us_of(plan_of({rkernel(1, 9e6), gang}, {{}, {}}, {1, 0})) == Approx(10 + 0.5 + 2));
}

TEST_CASE("a plan takes as long as the rProgram that is made of it") {
  for (const NamedGraph& tiny : tiny_graphs()) {
    ShapedVDevice d = tiny_vdevice(3);
    d.dependent_kernel_edge_us = d.kernel_edge_us - 0.25;
    const schedule::Dependencies found = schedule::find_dependencies(tiny.graph);
    const select::Machine machine = select::machine_for(tiny.graph, d, Precision::fp32);
    for (const schedule::Policy policy : schedule::policies()) {
      for (const auto execution : {schedule::Execution::persistent, schedule::Execution::graph}) {
        INFO(tiny.name << " " << schedule::name_of(policy) << (execution == schedule::Execution::graph ? " graph" : ""));
        schedule::ScheduleOptions options;
        options.policy = policy;
        options.search_plans = 20;
        options.execution = execution;
        options.share_memory = false;  // memory that is used again makes kernels wait; a plan does not know of it
        const schedule::Plan plan =
            schedule::plan_of(policy, {tiny.graph, machine, found.producers, found.is_view, tiny_families(), options});
        const RProgram program = schedule::schedule(tiny.graph, d, options, tiny_families());
        CHECK(schedule::Simulator(machine).run(plan, execution) == Approx(program.estimated_us));
      }
    }
  }
}

TEST_CASE("a plan is the same whatever an edge takes in estimates, and its estimate is not") {
  ShapedVDevice d = device();
  const Graph graph = tiny_graphs().front().graph;
  const RProgram usual = schedule::schedule(graph, d, {}, tiny_families());
  d.estimated_edge_us = 1;
  const RProgram shorter = schedule::schedule(graph, d, {}, tiny_families());
  CHECK(shorter.policy == usual.policy);
  REQUIRE(shorter.lanes.size() == usual.lanes.size());
  for (size_t veu = 0; veu < usual.lanes.size(); ++veu) {
    const auto same = [](const Instruction& a, const Instruction& b) {
      return a.rtask.rop == b.rtask.rop && a.rtask.phase == b.rtask.phase && a.rtask.index == b.rtask.index && a.waits == b.waits;
    };
    CHECK(std::equal(usual.lanes[veu].begin(), usual.lanes[veu].end(), shorter.lanes[veu].begin(), shorter.lanes[veu].end(), same));
  }
  CHECK(shorter.estimated_us < usual.estimated_us);
  CHECK(schedule::simulate(shorter) == shorter.estimated_us);
  CHECK(schedule::timeline(shorter).us == shorter.estimated_us);
}

TEST_CASE("few weights stay in L2, and more where a program copies them most of its time") {
  RProgram program = schedule::schedule(tiny_graphs().front().graph, device(), {}, tiny_families());
  program.weight_bytes = 1 << 30;  // a table of which an inference reads one row is no matter
  schedule::estimate(program);
  CHECK(program.weights_in_l2 == kFewWeightsInL2);
  Phase& phase =
      std::find_if(program.rkernels.begin(), program.rkernels.end(), [](const RKernel& r) { return !r.phases.empty(); })->phases[0];
  const auto with_megabytes = [&](double of_a_microsecond) {
    phase.ring = {16384, static_cast<int64_t>(of_a_microsecond * 1e6 * program.estimated_us / (4 * 16384)), 1, 4};
    schedule::estimate(program);
    return program.weights_in_l2;
  };
  CHECK(with_megabytes(0.1) == kFewWeightsInL2);
  CHECK(with_megabytes(40) == kManyWeightsInL2);
}
