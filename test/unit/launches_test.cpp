// Graph execution is right if its launches alone put everything in order: proved by the verifier with nothing else to go by,
// for every small graph and policy, and shown to be needed by taking dependencies away.
#include "compiler/schedule/launches.h"

#include <algorithm>
#include <map>
#include <set>

#include "codegen/codegen.h"
#include "compiler/passes/passes.h"
#include "compiler/schedule/schedule.h"
#include "test/support/catch.h"
#include "test/support/graph_text.h"
#include "test/support/tiny_programs.h"

using namespace tamp;
using namespace tamp::test;

namespace {

ShapedVDevice with_dependents(ShapedVDevice d) {
  d.dependent_kernel_edge_us = d.kernel_edge_us - 0.25;
  return d;
}

RProgram tiny_program(const Graph& graph, int64_t veus, schedule::Policy policy = schedule::Policy::wavefront) {
  RProgram program = schedule::schedule(graph, with_dependents(tiny_vdevice(veus)), {.policy = policy}, tiny_families());
  program.launches = schedule::launches_of(program);
  return program;
}

std::vector<std::string> verdict(const RProgram& program) { return schedule::verify_launches(program, 8, tiny_families()); }

// Two convolutions side by side, their sum, and two more with the bodies of the first.
RProgram branches() {
  Graph graph = parse_graph(
      "x = input f32[1,3,9,9]\n"
      "w = const f32[5,3,3,3]\n"
      "v = const f32[5,3,3,3]\n"
      "a = Conv(x, w) {kernel=[3,3], strides=[1,1], pads=[1,1,1,1], dilations=[1,1], group=1} -> f32[1,5,9,9]\n"
      "b = Conv(x, v) {kernel=[3,3], strides=[1,1], pads=[1,1,1,1], dilations=[1,1], group=1} -> f32[1,5,9,9]\n"
      "y = Elementwise(a, b) {mul(i0, i1)} -> f32[1,5,9,9]\n"
      "outputs(y)\n");
  for (const passes::Pass& pass : passes::pipeline()) graph = pass.run(std::move(graph));
  RProgram program = schedule::schedule(std::move(graph), read_vdevice("cpu").without_inputs(), {});
  program.launches = schedule::launches_of(program);
  return program;
}

RProgram chain_of_three() {
  GraphBuilder g;
  TensorId last = g.input("x", {4, 6});
  for (const char* name : {"a", "b", "c"}) last = g.tiles(name, {last}, {4, 6});
  g.output(last);
  return tiny_program(g.take(), 3);
}

RProgram diamond() {
  GraphBuilder g;
  const TensorId a = g.tiles("a", {g.input("x", {4, 6})}, {4, 6});
  const TensorId b = g.tiles("b", {a}, {4, 6}), c = g.tiles("c", {a}, {4, 6});
  g.output(g.tiles("d", {b, c}, {4, 6}));
  return tiny_program(g.take(), 3);
}

// Numbers of the launches that are programmatic dependents.
std::vector<int> dependents_of(const RProgram& program) {
  std::vector<int> found;
  for (size_t n = 0; n < program.launches->size(); ++n) {
    if ((*program.launches)[n].dependent) found.push_back(static_cast<int>(n));
  }
  return found;
}

size_t count(const std::string& text, const std::string& part) {
  size_t found = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

}  // namespace

TEST_CASE("launches put everything in order, whatever the policy and the number of vEUs") {
  for (const NamedGraph& named : tiny_graphs()) {
    for (const int64_t veus : {1, 3, 8}) {
      for (const schedule::Policy policy : {schedule::Policy::wavefront, schedule::Policy::sequential}) {
        CAPTURE(named.name, veus, schedule::name_of(policy));
        const RProgram program = tiny_program(named.graph, veus, policy);
        CHECK(verdict(program).empty());
        std::set<std::pair<int32_t, int32_t>> phases;
        for (const PhaseLaunch& launch : *program.launches) phases.insert({launch.rop.value, launch.phase});
        CHECK(phases.size() == program.launches->size());
      }
    }
  }
}

TEST_CASE("a launch is after earlier launches only, none of them implied by another") {
  for (const NamedGraph& named : tiny_graphs()) {
    CAPTURE(named.name);
    const RProgram program = tiny_program(named.graph, 3);
    std::vector<std::set<int32_t>> before;
    for (const PhaseLaunch& launch : *program.launches) {
      std::set<int32_t> all;
      for (const int32_t m : launch.after) {
        REQUIRE((m >= 0 && m < static_cast<int32_t>(before.size())));
        for (const int32_t other : launch.after) CHECK(before[static_cast<size_t>(other)].count(m) == 0);
        all.insert(m);
      }
      for (const int32_t m : launch.after) all.insert(before[static_cast<size_t>(m)].begin(), before[static_cast<size_t>(m)].end());
      before.push_back(all);
      CHECK((launch.stream >= 0 && launch.stream < schedule::kMostStreams));
    }
  }
}

TEST_CASE("a dependency that is taken away is noticed") {
  int taken = 0;
  for (const NamedGraph& named : tiny_graphs()) {
    const RProgram program = tiny_program(named.graph, 3);
    for (size_t n = 0; n < program.launches->size(); ++n) {
      for (size_t i = 0; i < (*program.launches)[n].after.size(); ++i, ++taken) {
        CAPTURE(named.name, n, i);
        RProgram damaged = program;
        for (PhaseLaunch& launch : *damaged.launches) launch.dependent = false;  // the order alone is to tell
        auto& after = (*damaged.launches)[n].after;
        after.erase(after.begin() + static_cast<std::ptrdiff_t>(i));
        CHECK_FALSE(verdict(damaged).empty());
      }
    }
  }
  CHECK(taken > 20);
}

TEST_CASE("a launch that is after a later one, on no stream, or of no phase is refused") {
  const RProgram good = tiny_program(tiny_graphs()[1].graph, 2);
  REQUIRE(good.launches->size() >= 2);
  struct Row {
    const char* sentence;
    void (*damage)(std::vector<PhaseLaunch>&);
  };
  const Row rows[] = {
      {"launch 0 is after launch 1, which is not before it", [](std::vector<PhaseLaunch>& l) { l[0].after = {1}, l[1].after = {}; }},
      {"launch 0 is after launch 0, which is not before it", [](std::vector<PhaseLaunch>& l) { l[0].after = {0}; }},
      {"launch 1 is after launch -1", [](std::vector<PhaseLaunch>& l) { l[1].after = {-1}; }},
      {"launch 1 is on stream -1, there are 8", [](std::vector<PhaseLaunch>& l) { l[1].stream = -1; }},
      {"launch 1 is on stream 8, there are 8", [](std::vector<PhaseLaunch>& l) { l[1].stream = 8; }},
      {"launch 1 is of a phase that does not exist", [](std::vector<PhaseLaunch>& l) { l[1].phase = 7; }},
      {"launch 1 is of a phase that does not exist", [](std::vector<PhaseLaunch>& l) { l[1].rop = ROperatorId(99); }},
  };
  for (const Row& row : rows) {
    RProgram program = good;
    row.damage(*program.launches);
    INFO(row.sentence);
    const auto sentences = verdict(program);
    REQUIRE_FALSE(sentences.empty());
    CHECK_THAT(sentences[0], Catch::Contains(row.sentence));
  }
}

TEST_CASE("the rTasks of a launch are in no order, those of a vEU are") {
  // Four rTasks that read and write a quarter each; b lies a quarter before a, so each writes what the one before it reads.
  constexpr int64_t kElements = 768, kQuarterBytes = kElements / 4 * 4;
  select::Families families = tiny_families();
  families[0].candidates = [](const kernels::Request& request) {
    std::vector<RKernel> found = tiny_families()[0].candidates(request);
    std::erase_if(found, [](const RKernel& rkernel) { return rkernel.rtasks() != 4; });
    return found;
  };
  families[0].accesses = [](const Graph&, const ROperator& rop, const RKernel&, int, int64_t index, Accesses& out) {
    out.reads.push_back({rop.inputs[0], {index * kElements / 4, 1, 0, kElements / 4}});
    out.writes.push_back({rop.outputs[0], {index * kElements / 4, 1, 0, kElements / 4}});
  };
  GraphBuilder g;
  const TensorId a = g.tiles("a", {g.input("x", {kElements})}, {kElements}), b = g.tiles("b", {a}, {kElements});
  g.output(g.tiles("c", {b}, {kElements}));
  RProgram program = schedule::schedule(g.take(), tiny_vdevice(1), {}, families);
  program.launches = schedule::launches_of(program);
  REQUIRE(program.launches->size() == 3);
  const auto offset = [&](TensorId id) -> int64_t& { return program.memory.buffer_offset[program.graph.tensor(id).place.buffer.index()]; };
  offset(a) = kQuarterBytes;
  offset(b) = 0;
  program.memory.arena_bytes = 5 * kQuarterBytes;
  CHECK(schedule::verify(program, 8, families) == std::vector<std::string>{});
  const auto sentences = schedule::verify_launches(program, 8, families);
  REQUIRE(sentences.size() == 1);
  CHECK_THAT(sentences[0], Catch::Contains("share arena byte"));
  offset(a) = 4 * kQuarterBytes;
  program.memory.arena_bytes = 8 * kQuarterBytes;
  CHECK(schedule::verify_launches(program, 8, families) == std::vector<std::string>{});
}

TEST_CASE("branches get streams of their own and a chain stays on one") {
  const RProgram program = branches();
  std::set<int32_t> streams;
  for (const PhaseLaunch& launch : *program.launches) streams.insert(launch.stream);
  CHECK(streams.size() == 2);
  CHECK(program.launches->back().after.size() == 2);

  const RProgram chain = chain_of_three();
  for (const PhaseLaunch& launch : *chain.launches) CHECK(launch.stream == 0);
}

TEST_CASE("of a chain all launches but the first are dependents, where the vDevice has them") {
  RProgram chain = chain_of_three();
  CHECK(dependents_of(chain) == std::vector<int>{1, 2});
  chain.vdevice.dependent_kernel_edge_us.reset();
  chain.launches = schedule::launches_of(chain);
  CHECK(dependents_of(chain).empty());
  CHECK(verdict(chain).empty());
}

// x -> a -> {b, c} -> d: b takes a's stream, c one of its own, d joins them.
TEST_CASE("at a fork one branch is a dependent, at a join nothing is") {
  const RProgram program = diamond();
  REQUIRE(program.launches->size() == 4);
  CHECK((*program.launches)[1].after == std::vector<int32_t>{0});
  CHECK((*program.launches)[2].after == std::vector<int32_t>{0});
  CHECK((*program.launches)[3].after == std::vector<int32_t>{1, 2});
  CHECK(dependents_of(program) == std::vector<int>{1});
  CHECK(verdict(program).empty());
}

TEST_CASE("a dependent is after the launch before it in its stream and after nothing else, whatever the graph") {
  int found = 0;
  for (const NamedGraph& named : tiny_graphs()) {
    for (const schedule::Policy policy : schedule::policies()) {
      CAPTURE(named.name, schedule::name_of(policy));
      const RProgram program = tiny_program(named.graph, 3, policy);
      std::map<int32_t, int32_t> last;
      for (size_t n = 0; n < program.launches->size(); ++n) {
        const PhaseLaunch& launch = (*program.launches)[n];
        const auto before = last.find(launch.stream);
        const bool alone = before != last.end() && launch.after == std::vector<int32_t>{before->second};
        CHECK(launch.dependent == alone);
        found += alone ? 1 : 0;
        last[launch.stream] = static_cast<int32_t>(n);
      }
    }
  }
  CHECK(found > 20);
}

TEST_CASE("a launch that is marked as a dependent and must not be is refused") {
  const auto refusal = [](RProgram program, size_t launch) {
    (*program.launches)[launch].dependent = true;
    const std::vector<std::string> sentences = verdict(program);
    return sentences.empty() ? "" : sentences[0];
  };
  const RProgram program = diamond();
  CHECK(refusal(program, 1).empty());  // it is one
  CHECK(refusal(program, 0) == "launch 0 ('a') is a programmatic dependent, but it is the first in its stream");
  CHECK(refusal(program, 3) == "launch 3 ('d') is a programmatic dependent, but it is after 2 launches, not one");
  RProgram moved = program;  // c behind b in one stream: its predecessor is not the launch before it
  (*moved.launches)[2].stream = 0;
  CHECK(verdict(moved).empty());
  CHECK(refusal(moved, 2) ==
        "launch 2 ('c') is a programmatic dependent, but it is after launch 0, and launch 1 is the one before it in its stream");
  RProgram older = program;
  older.vdevice.dependent_kernel_edge_us.reset();
  CHECK(refusal(older, 1) == "launch 1 ('b') is a programmatic dependent, but the vDevice 'tiny' has no such launches");
}

TEST_CASE("the source says which launches are dependents") {
  const codegen::EmitOptions options{"model", "model.onnx", false};
  const RProgram program = branches();
  size_t dependents = 0;
  for (const PhaseLaunch& launch : *program.launches) dependents += launch.dependent ? 1 : 0;
  const std::string source = codegen::cuda_source(program, options);
  const size_t at = source.find("const tamp_host::PhaseStep kSteps[] =");
  REQUIRE(at != std::string::npos);
  const std::string steps = source.substr(at, source.find("};\n", at) - at);
  CHECK(count(steps, ", true},") == dependents);
  CHECK(count(steps, ", false},") == program.launches->size() - dependents);
}

TEST_CASE("the source for graph execution has a kernel for each distinct body and is the same each time") {
  const codegen::EmitOptions options{"model", "model.onnx", false};
  const RProgram program = branches();
  const std::string source = codegen::cuda_source(program, options);
  CHECK(source == codegen::cuda_source(branches(), options));
  std::set<std::string> bodies;
  for (const PhaseLaunch& launch : *program.launches) {
    const Phase& phase = program.rkernels[launch.rop.index()].phases[static_cast<size_t>(launch.phase)];
    std::string body = phase.body;
    for (const auto& [name, value] : phase.template_args) body += " " + value;
    bodies.insert(body);
  }
  CHECK(bodies.size() < program.launches->size());
  CHECK(count(source, "tamp_host::phase_kernel_of<") == bodies.size());
  CHECK(source.find("kInstructions[]") == std::string::npos);
  CHECK(source.find(std::to_string(program.launches->size()) + " kernel launches") != std::string::npos);
}

TEST_CASE("the estimate of graph execution has an edge between kernels for each of a chain, the shorter one for dependents") {
  RProgram chain = chain_of_three();
  const double before_us = schedule::simulate(chain);
  *chain.vdevice.dependent_kernel_edge_us += 10;
  CHECK(schedule::simulate(chain) == Approx(before_us + 20));
  for (PhaseLaunch& launch : *chain.launches) launch.dependent = false;
  *chain.vdevice.dependent_kernel_edge_us -= 10;
  CHECK(schedule::simulate(chain) == Approx(before_us + 2 * 0.25));
  chain.vdevice.kernel_edge_us += 10;
  CHECK(schedule::simulate(chain) == Approx(before_us + 2 * 10.25));
  chain.launches.reset();
  const double persistent_us = schedule::simulate(chain);
  chain.vdevice.kernel_edge_us += 10;
  CHECK(schedule::simulate(chain) == persistent_us);
}

TEST_CASE("a group is launched in its own order, whichever of it the lanes come to first") {
  GraphBuilder g;
  const TensorId x = g.input("x", {4, 6});
  const TensorId a = g.tiles("a", {x}, {4, 6}), b = g.tiles("b", {x}, {4, 6});
  g.output(g.tiles("c", {a, b}, {4, 6}));
  const RProgram program = tiny_program(g.take(), 1);
  for (const std::vector<int>& order : {std::vector<int>{0, 1, 2}, std::vector<int>{1, 0, 2}}) {
    schedule::Group group;
    for (const int rop : order) group.push_back(ROperatorId(rop));
    const std::vector<PhaseLaunch> launches = schedule::launches_of(program, {{group}});
    REQUIRE(launches.size() == 3);
    for (size_t n = 0; n < 3; ++n) {
      CHECK(launches[n].rop == group[n]);
      CHECK(launches[n].after == (n == 0 ? std::vector<int32_t>{} : std::vector<int32_t>{static_cast<int32_t>(n) - 1}));
    }
  }
}

TEST_CASE("a gang has no graph execution") {
  RProgram program = branches();
  program.rkernels.front().gang = true;
  CHECK_THROWS_WITH(schedule::launches_of(program), Catch::Contains("execution graph") && Catch::Contains("supported: persistent"));
}

TEST_CASE("an execution that is not known is refused") {
  CHECK(schedule::parse_execution("graph") == schedule::Execution::graph);
  CHECK(schedule::parse_execution("persistent") == schedule::Execution::persistent);
  CHECK_THROWS_WITH(schedule::parse_execution("eager"), Catch::Contains("'eager' is not known, supported: persistent, graph"));
}
