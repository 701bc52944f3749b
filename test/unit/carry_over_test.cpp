// A schedule's decisions on another batch or vDevice: what is kept of them, and that every result is proved.
#include "compiler/schedule/carry_over.h"

#include <algorithm>

#include "compiler/schedule/launches.h"
#include "compiler/schedule/schedule_file.h"
#include "test/support/catch.h"
#include "test/support/tiny_programs.h"

using namespace tamp;
using namespace tamp::test;
using schedule::Execution;
using schedule::Policy;

namespace {

constexpr int64_t kVeus = 5;

RProgram scheduled(const Graph& graph, Policy policy, Execution execution = Execution::persistent, int64_t veus = kVeus) {
  schedule::ScheduleOptions options;
  options.policy = policy;
  options.execution = execution;
  options.search_plans = 30;
  return schedule::schedule(graph, tiny_vdevice(veus), options, tiny_families());
}

RProgram carried(const RProgram& from, const Graph& graph, int64_t veus = kVeus) {
  schedule::ScheduleOptions options;
  options.execution = from.launches ? Execution::graph : Execution::persistent;
  options.like = &from;
  return schedule::schedule(graph, tiny_vdevice(veus), options, tiny_families());
}

std::vector<std::string> violations(const RProgram& program) {
  std::vector<std::string> found = schedule::verify(program, 8, tiny_families());
  if (found.empty() && program.launches) found = schedule::verify_launches(program, 8, tiny_families());
  return found;
}

// One long chain of three beside two short ones, joined; `extent` stands for a batch.
Graph branches(int64_t extent, bool with_b = true) {
  GraphBuilder b;
  const TensorId x = b.input("x", {extent});
  TensorId chain = x;
  for (const char* name : {"a1", "a2", "a3"}) chain = b.tiles(name, {chain}, {extent});
  std::vector<TensorId> parts = {chain};
  if (with_b) parts.push_back(b.tiles("b", {x}, {extent}));
  parts.push_back(b.tiles("c", {x}, {extent}));
  b.output(b.tiles("join", parts, {extent}));
  return b.take();
}

schedule::Span span_of(const RProgram& program, const std::string& name) {
  const schedule::Timeline timeline = schedule::timeline(program);
  schedule::Span span{1e30, 0};
  for (size_t veu = 0; veu < program.lanes.size(); ++veu) {
    for (size_t i = 0; i < program.lanes[veu].size(); ++i) {
      const ROperatorId rop = program.lanes[veu][i].rtask.rop;
      if (!rop.valid() || program.graph.rop(rop).name != name) continue;
      span.begin_us = std::min(span.begin_us, timeline.lanes[veu][i].begin_us);
      span.end_us = std::max(span.end_us, timeline.lanes[veu][i].end_us);
    }
  }
  return span;
}

}  // namespace

TEST_CASE("a schedule of any policy can be carried over to any number of vEUs, and is proved there") {
  for (const NamedGraph& named : tiny_graphs()) {
    for (const Policy policy : schedule::policies()) {
      for (const Execution execution : {Execution::persistent, Execution::graph}) {
        const RProgram from = scheduled(named.graph, policy, execution);
        for (const int64_t veus : {kVeus, int64_t{2}, int64_t{9}}) {
          CAPTURE(named.name, schedule::name_of(policy), execution == Execution::graph, veus);
          const RProgram to = carried(from, named.graph, veus);
          CHECK(violations(to) == std::vector<std::string>{});
          CHECK(to.policy == from.policy);
          CHECK(to.launches.has_value() == from.launches.has_value());
          const schedule::Carried counts = schedule::carried(from, to);
          CHECK(counts.family + counts.other + counts.unknown == 0);
        }
      }
    }
  }
}

TEST_CASE("carried over to where it comes from, a schedule takes about as long") {
  for (const Policy policy : schedule::policies()) {
    const Graph graph = branches(12);
    const RProgram from = scheduled(graph, policy);
    CAPTURE(schedule::name_of(policy));
    CHECK(carried(from, graph).estimated_us <= 1.2 * from.estimated_us);
  }
}

TEST_CASE("what ran one after another does so at another batch and on other vEUs") {
  const RProgram to = carried(scheduled(branches(12), Policy::sequential), branches(48), 9);
  CHECK(to.graph.rops.size() == 6);
  double end_us = 0;
  for (const char* name : {"a1", "a2", "a3", "b", "c", "join"}) {
    const schedule::Span span = span_of(to, name);
    CHECK(span.begin_us >= end_us);
    end_us = span.end_us;
  }
}

TEST_CASE("waves stay behind each other") {
  const RProgram to = carried(scheduled(branches(12), Policy::greedy), branches(48), 9);
  for (const char* first : {"a1", "b", "c"}) CHECK(span_of(to, first).end_us <= span_of(to, "a2").begin_us);
}

TEST_CASE("stages and groups of graph execution stay what they were") {
  for (const Policy policy : {Policy::sequential, Policy::greedy, Policy::wavefront_launches, Policy::ios}) {
    CAPTURE(schedule::name_of(policy));
    const RProgram from = scheduled(branches(12), policy, Execution::graph), to = carried(from, branches(48), 9);
    REQUIRE(to.launches->size() == from.launches->size());
    for (size_t n = 0; n < to.launches->size(); ++n) {
      // What runs side by side may be launched in another order.
      if (policy == Policy::sequential) CHECK(to.launches->at(n).rop == from.launches->at(n).rop);
      CHECK(to.launches->at(n).after == from.launches->at(n).after);
    }
  }
}

TEST_CASE("a rOperator that the schedule does not have finds its place") {
  const RProgram from = scheduled(branches(12, /*with_b=*/false), Policy::list);
  const RProgram to = carried(from, branches(12));
  CHECK(violations(to) == std::vector<std::string>{});
  CHECK(schedule::carried(from, to).unknown == 1);
  CHECK(schedule::carried(from, to).same == 5);
}

TEST_CASE("a schedule file says what it is for") {
  const Graph graph = branches(12);
  const RProgram program = scheduled(graph, Policy::greedy, Execution::graph);
  const schedule::ScheduleHead head = schedule::read_schedule_head(schedule::schedule_text(program, 8), "s.json");
  CHECK(head.key == schedule::key_of(graph, program.vdevice, program.precision, 8));
  CHECK(head.execution == Execution::graph);
  CHECK(head.policy == "greedy");
  CHECK_THROWS_WITH(schedule::read_schedule_head("[]", "s.json"), Catch::Matchers::StartsWith("s.json: not a schedule"));
}
