// Loops of run time (docs/adr/0050): what is in a loop, what placement makes of it, and what the verifier refuses.
#include "compiler/ir/loops.h"

#include <algorithm>
#include <functional>

#include "compiler/passes/place/assign_layout.h"
#include "compiler/schedule/schedule.h"
#include "compiler/schedule/schedule_file.h"
#include "test/support/catch.h"
#include "test/support/graph_text.h"

using namespace tamp;
using namespace tamp::test;

namespace {

// a, b = b, a * w, until the sum of b is 100 or more; `k` needs nothing of an iteration.
const std::string kUntil = R"(
  x = input f32[8,64]
  go = input bool[]
  w = const f32[64,64]
  most = const f32[] {100}
  c, a, b = LoopBegin(go, x, x) {loop=5} -> bool[], f32[8,64], f32[8,64]
  k = MatMul(x, w) -> f32[8,64]
  p = MatMul(a, w) -> f32[8,64]
  s = Elementwise(p, k) {add(i0, i1)} -> f32[8,64]
  r = Reduce(s) {kind=sum, axes=[0,1], keepdims=0} -> f32[]
  n = Elementwise(r, most) {less(i0, i1)} -> bool[]
  d, y, z = LoopEnd(c, a, b, n, b, s) {loop=5} -> bool[], f32[8,64], f32[8,64]
  o = MatMul(z, w) -> f32[8,64]
  outputs(y, o)
)";

RProgram scheduled(Graph graph, schedule::Policy policy = schedule::Policy::best) {
  schedule::ScheduleOptions options;
  options.precision = Precision::fp32;
  options.policy = policy;
  options.gangs = false;
  return schedule::schedule(std::move(graph), read_vdevice("cpu").without_inputs(), options);
}

Graph placed() { return passes::assign_layout(parse_graph(kUntil)); }

TensorId id_of(const Graph& graph, const std::string& name) {
  const auto is = [&](const Tensor& tensor) { return tensor.name == name; };
  return TensorId(std::find_if(graph.tensors.begin(), graph.tensors.end(), is) - graph.tensors.begin());
}

// The verifier's first violation, or nothing.
std::string verdict(const RProgram& program) {
  const std::vector<std::string> violations = schedule::verify(program);
  return violations.empty() ? "" : violations[0];
}

// The instruction of vEU `veu` that takes the turn, as its position.
size_t turn_of(const RProgram& program, size_t veu, Turn turn) {
  const auto& lane = program.lanes[veu];
  const auto found = std::find_if(lane.begin(), lane.end(), [&](const Instruction& i) { return i.turn == turn; });
  REQUIRE(found != lane.end());
  return static_cast<size_t>(found - lane.begin());
}

}  // namespace

TEST_CASE("what depends on an iteration is in the loop") {
  const Graph graph = parse_graph(kUntil);
  const LoopNests nests = loop_nests(graph);
  std::vector<size_t> depth;
  for (const auto& nest : nests.of_rop) depth.push_back(nest.size());
  CHECK(depth == std::vector<size_t>{0, 0, 1, 1, 1, 1, 1, 0});
}

TEST_CASE("placement makes copies of a loop's values, to the same memory") {
  const Graph graph = placed();
  REQUIRE(graph.loops.size() == 1);
  std::vector<std::string> in_front, ends;
  for (const ROperator& rop : graph.rops) {
    if (rop.ends_iteration) ends.push_back(graph.tensor(rop.outputs[0]).name);
    if (rop.loop < 0) in_front.push_back(graph.tensor(rop.outputs[0]).name);
  }
  CHECK(in_front == std::vector<std::string>{"c", "a", "b", "k", "o"});
  // The condition is made where it belongs; b becomes a by way of a copy, since a new b is made at the same time.
  CHECK(ends == std::vector<std::string>{"n", "y", "z"});
  CHECK(std::count_if(graph.rops.begin(), graph.rops.end(), [](const ROperator& rop) { return rop.loop == 0; }) == 7);
}

TEST_CASE("every policy's program with a loop is proved, and can be read back from its schedule") {
  for (const schedule::Policy policy : {schedule::Policy::best, schedule::Policy::sequential, schedule::Policy::greedy,
                                        schedule::Policy::wavefront, schedule::Policy::list, schedule::Policy::ios}) {
    INFO(schedule::name_of(policy));
    const RProgram program = scheduled(placed(), policy);
    CHECK(verdict(program) == "");
    schedule::ScheduleOptions options;
    options.precision = Precision::fp32;
    options.gangs = false;
    const std::string text = schedule::schedule_text(program, 0);
    const RProgram read = schedule::read_schedule(text, "file", placed(), program.vdevice, options, 0);
    CHECK(schedule::schedule_text(read, 0) == text);
  }
}

TEST_CASE("no Wait of a program with a loop could be left out") {
  RProgram program = scheduled(placed());
  for (auto& lane : program.lanes) {
    for (Instruction& i : lane) {
      for (size_t w = 0; w < i.waits.size(); ++w) {
        const std::vector<EventId> all = i.waits;
        i.waits.erase(i.waits.begin() + static_cast<std::ptrdiff_t>(w));
        INFO(program.events[all[w].index()].name);
        CHECK(verdict(program) != "");
        i.waits = all;
      }
    }
  }
}

TEST_CASE("iterations that are not kept apart are found") {
  const RProgram good = scheduled(placed());
  const std::vector<ROperator>& rops = good.graph.rops;
  // Changes a copy of the program at vEU 0; what the verifier says of it.
  const auto said = [&](const std::function<void(RProgram&, std::vector<Instruction>&)>& change) {
    RProgram program = good;
    change(program, program.lanes[0]);
    return verdict(program);
  };
  const size_t enter = turn_of(good, 0, Turn::enter), repeat = turn_of(good, 0, Turn::repeat);
  CHECK_THAT(said([&](auto&, auto& lane) { lane[repeat].waits.clear(); }), Catch::Contains("of the iteration before"));
  CHECK_THAT(said([&](auto&, auto& lane) { lane[enter].waits.clear(); }), Catch::Contains("without waiting for"));
  CHECK_THAT(said([&](auto&, auto& lane) { lane.erase(lane.begin() + static_cast<std::ptrdiff_t>(repeat)); }),
             Catch::Contains("in a loop"));
  CHECK_THAT(said([&](auto&, auto& lane) { std::swap(lane[enter], lane[enter + 1]); }), Catch::Contains("loop"));
  CHECK_THAT(said([&](auto& program, auto&) { program.lanes[1].clear(); }), Catch::Contains("times"));

  // A rTask that ends the iteration before all lanes have seen what led to it.
  for (size_t veu = 0; veu < good.lanes.size(); ++veu) {
    for (size_t p = 0; p < good.lanes[veu].size(); ++p) {
      const Instruction& i = good.lanes[veu][p];
      if (!i.rtask.rop.valid() || !rops[i.rtask.rop.index()].ends_iteration || i.waits.empty()) continue;
      RProgram program = good;
      program.lanes[veu][p].waits.clear();
      CHECK_THAT(verdict(program), Catch::Contains("may run before"));
    }
  }

  // Memory that each iteration reads and that was written in front of the loop.
  const TensorId kept = id_of(good.graph, "k"), made = id_of(good.graph, "r");
  CHECK_THAT(said([&](RProgram& program, auto&) {
               program.memory.buffer_offset[good.graph.tensor(made).place.buffer.index()] =
                   program.memory.buffer_offset[good.graph.tensor(kept).place.buffer.index()];
             }),
             Catch::Contains("a loop needs one of them in each iteration"));
  // A reader behind the loop of what is made in it.
  Graph graph = good.graph;
  for (ROperator& rop : graph.rops) {
    if (rop.outputs[0] == id_of(graph, "o")) rop.inputs[0] = id_of(graph, "s");
  }
  CHECK_THAT(verdict(scheduled(std::move(graph))), Catch::Contains("reads what is made in a loop that it is not in"));
}
