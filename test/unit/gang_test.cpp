// Gangs in the scheduler, the memory plan and the verifier: every rTask on a vEU of its own, all of them behind the same Waits,
// and a verifier that notices each way in which words or places could be wrong.
#include <algorithm>
#include <functional>
#include <set>

#include "compiler/schedule/schedule.h"
#include "test/support/catch.h"
#include "test/support/tiny_programs.h"

using namespace tamp;
using namespace tamp::test;

namespace {

// Two phases of two rTasks; rTask r writes a quarter of the output, publishes words [8r, 8r + 8) and awaits all 32 words.
constexpr int64_t kWords = 32;

std::vector<RKernel> gang_candidates(const kernels::Request& request) {
  if (request.rop.name.rfind("gang", 0) != 0) return {};
  Phase phase;
  phase.body = "rk::ring";
  phase.rtasks = 2;
  phase.cost.latency_us = 20;
  RKernel rkernel{"ring", "ring<4>", {phase, phase}, 0, {}};
  rkernel.gang = true;
  rkernel.exchange_words = kWords;
  return {rkernel};
}

Bytes pack_nothing(const Graph&, const ROperator&, const RKernel&, int) { return {}; }

// What a test breaks in the regions that the family states.
struct Damage {
  int64_t publish_shift = 0, await_shift = 0;
  bool drop_publish = false;
};
Damage damage;

void gang_accesses(const Graph& graph, const ROperator& rop, const RKernel&, int phase, int64_t index, Accesses& out) {
  const int64_t r = phase * 2 + index, elements = element_count(graph.tensor(rop.outputs[0]).shape);
  for (const TensorId id : rop.inputs) {
    for (const Run& run : whole_runs(graph.tensor(id))) out.reads.push_back({id, run});
  }
  for (const Run& run : flat_runs(graph.tensor(rop.outputs[0]), elements * r / 4, elements * (r + 1) / 4))
    out.writes.push_back({rop.outputs[0], run});
  const bool damaged = r == 3;
  if (!(damaged && damage.drop_publish)) out.publishes.push_back({8 * r + (damaged ? damage.publish_shift : 0), 2, 4, 4});
  out.awaits.push_back({damaged ? damage.await_shift : 0, 1, 0, kWords});
}

select::Families families() {
  select::Families all = {{"ring", gang_candidates, pack_nothing, gang_accesses}};
  for (const kernels::Family& family : tiny_families()) {
    all.push_back({family.name,
                   family.name == std::string("tiles") ? [](const kernels::Request& request) {
                     return request.rop.name.rfind("gang", 0) == 0 ? std::vector<RKernel>() : tiny_families()[0].candidates(request);
                   } : family.candidates,
                   family.pack, family.accesses});
  }
  return all;
}

// before -> gang -> after, and a branch beside the gang.
Graph graph_with_gangs(int gangs) {
  GraphBuilder b;
  const TensorId x = b.input("x", {40});
  TensorId at = b.tiles("before", {x}, {40});
  const TensorId beside = b.tiles("beside", {at}, {60});
  for (int g = 0; g < gangs; ++g) at = b.tiles("gang" + std::to_string(g), {at}, {40});
  b.output(b.tiles("after", {at, beside}, {7}));
  return b.take();
}

RProgram scheduled(int64_t veus, int gangs, schedule::Policy policy = schedule::Policy::wavefront) {
  damage = {};
  return schedule::schedule(graph_with_gangs(gangs), tiny_vdevice(veus), {policy, Precision::fp32}, families());
}

std::string verdict(const RProgram& program) {
  const auto violations = schedule::verify(program, 8, families());
  return violations.empty() ? "" : violations[0];
}

std::set<size_t> veus_of(const RProgram& program, const std::string& name) {
  std::set<size_t> veus;
  for (size_t veu = 0; veu < program.lanes.size(); ++veu) {
    for (const Instruction& i : program.lanes[veu]) {
      if (i.rtask.rop.valid() && program.graph.rop(i.rtask.rop).name == name) veus.insert(veu);
    }
  }
  return veus;
}

size_t rop_named(const RProgram& program, const std::string& name) {
  for (size_t i = 0; i < program.graph.rops.size(); ++i) {
    if (program.graph.rops[i].name == name) return i;
  }
  FAIL("no rOperator '" + name + "'");
  return 0;
}

}  // namespace

TEST_CASE("every rTask of a gang has a vEU of its own, under every policy, and the verifier accepts it") {
  for (const auto policy : {schedule::Policy::wavefront, schedule::Policy::sequential}) {
    for (const int64_t veus : {4, 5, 9}) {
      for (const int gangs : {1, 2, 3}) {
        CAPTURE(veus, gangs, schedule::name_of(policy));
        const RProgram program = scheduled(veus, gangs, policy);
        CHECK(verdict(program) == "");
        for (int g = 0; g < gangs; ++g) CHECK(veus_of(program, "gang" + std::to_string(g)).size() == 4);
      }
    }
  }
}

TEST_CASE("what follows a gang waits for all of its phases") {
  const RProgram program = scheduled(9, 1);
  // It needs what is beside the gang, too, so the two share an event: one signal of each vEU that has rTasks of them.
  const auto event = std::find_if(program.events.begin(), program.events.end(), [](const Event& e) { return e.name == "beside, gang0"; });
  REQUIRE(event != program.events.end());
  std::set<size_t> veus = veus_of(program, "gang0");
  CHECK(veus.size() == 4);
  veus.merge(veus_of(program, "beside"));
  CHECK(event->count == static_cast<int64_t>(veus.size()));
}

TEST_CASE("a gang takes at least the time of its steps") {
  CHECK(scheduled(9, 1).estimated_us > 20);
  CHECK(scheduled(9, 2).estimated_us > 40);
}

TEST_CASE("without gangs another rKernel is taken, and where there is none the rOperator is refused") {
  damage = {};
  for (const auto policy : {schedule::Policy::wavefront, schedule::Policy::sequential}) {
    CAPTURE(schedule::name_of(policy));
    const schedule::ScheduleOptions options{.policy = policy, .gangs = false};
    select::Families all = tiny_families();
    all.push_back({"ring", gang_candidates, pack_nothing, gang_accesses});
    const RProgram program = schedule::schedule(graph_with_gangs(2), tiny_vdevice(9), options, all);
    for (const RKernel& rkernel : program.rkernels) CHECK_FALSE(rkernel.gang);
    CHECK_THROWS_WITH(schedule::schedule(graph_with_gangs(1), tiny_vdevice(9), options, families()),
                      Catch::Contains("no rKernel for") && Catch::Contains("'gang0'"));
  }
}

TEST_CASE("a gang of more rTasks than vEUs is refused") {
  damage = {};
  const auto schedule_it = [] {
    return schedule::schedule(graph_with_gangs(1), tiny_vdevice(3), {schedule::Policy::wavefront, Precision::fp32}, families());
  };
  CHECK_THROWS(schedule_it());
}

TEST_CASE("the verifier sees words without a publisher, with two, and outside of the exchange") {
  const RProgram program = scheduled(9, 2);
  damage.drop_publish = true;
  CHECK(verdict(program).find("awaits word 24, which nobody publishes") != std::string::npos);
  damage = {};
  damage.publish_shift = -8;
  CHECK(verdict(program).find("is published by phase 1 rTask 0 and by phase 1 rTask 1") != std::string::npos);
  damage = {};
  damage.publish_shift = 1;
  CHECK(verdict(program).find("publishes words 29 to 33 of 32") != std::string::npos);
  damage = {};
  damage.await_shift = 1;
  CHECK(verdict(program).find("awaits words 1 to 33 of 32") != std::string::npos);
  damage = {};
  damage.await_shift = -1;
  CHECK(verdict(program).find("awaits words -1 to 31") != std::string::npos);
  damage = {};
  CHECK(verdict(program) == "");
}

TEST_CASE("the verifier sees an exchange that is somebody else's memory") {
  const RProgram good = scheduled(9, 2);
  const size_t first = rop_named(good, "gang0"), second = rop_named(good, "gang1");
  RProgram program = good;
  program.memory.exchange_offset[first] = program.memory.exchange_offset[second];
  CHECK(verdict(program).find("shares arena memory with exchange of 'gang1'") != std::string::npos);
  program = good;
  const TensorId made = program.graph.rops[rop_named(good, "before")].outputs[0];
  program.memory.exchange_offset[first] = program.memory.buffer_offset[program.graph.tensor(made).place.buffer.index()];
  CHECK(verdict(program).find("shares arena memory with buffer") != std::string::npos);
  program = good;
  program.memory.exchange_offset[second] = program.memory.arena_bytes;
  CHECK(verdict(program).find("ends at byte") != std::string::npos);
  program = good;
  program.memory.exchange_offset[second] += 8;
  CHECK_FALSE(verdict(program).empty());
  program = good;
  program.memory.exchange_offset[second] = -1;
  CHECK(verdict(program).find("has no place") != std::string::npos);
  program = good;
  program.rkernels[rop_named(good, "after")].exchange_words = 4;
  CHECK(verdict(program).find("is no gang") != std::string::npos);
}

TEST_CASE("the verifier sees two rTasks of a gang on one vEU, and a gang that can never be together") {
  const RProgram good = scheduled(9, 2);
  const size_t gang = rop_named(good, "gang0");
  const auto lane_with = [&](RProgram& program, size_t rop, size_t nth) -> std::vector<Instruction>& {
    for (auto& lane : program.lanes) {
      for (const Instruction& i : lane) {
        if (i.rtask.rop.valid() && i.rtask.rop.index() == rop && nth-- == 0) return lane;
      }
    }
    FAIL("no such rTask");
    return program.lanes[0];
  };
  const auto is_gang = [&](const Instruction& i) { return i.rtask.rop.valid() && i.rtask.rop.index() == gang; };
  RProgram program = good;
  auto& from = lane_with(program, gang, 0);
  auto& to = lane_with(program, gang, 1);
  const auto moved = std::find_if(from.begin(), from.end(), is_gang);
  to.insert(std::find_if(to.begin(), to.end(), is_gang), *moved);
  from.erase(moved);
  CHECK(verdict(program).find("has 2 rTasks of the gang 'gang0'") != std::string::npos);

  // One of them stands behind a rTask that waits for the whole gang.
  program = good;
  for (auto& lane : program.lanes) {
    const auto mine = std::find_if(lane.begin(), lane.end(), is_gang);
    const auto later =
        mine == lane.end() ? mine : std::find_if(mine + 1, lane.end(), [](const Instruction& i) { return !i.waits.empty(); });
    if (later == lane.end()) continue;
    std::iter_swap(mine, later);
    break;
  }
  CHECK(verdict(program).find("waits for ever") != std::string::npos);
}

TEST_CASE("dropping any one Wait of a program with gangs is noticed") {
  const RProgram good = scheduled(6, 2);
  int dropped = 0;
  for (size_t veu = 0; veu < good.lanes.size(); ++veu) {
    for (size_t p = 0; p < good.lanes[veu].size(); ++p) {
      for (size_t w = 0; w < good.lanes[veu][p].waits.size(); ++w) {
        RProgram program = good;
        auto& waits = program.lanes[veu][p].waits;
        waits.erase(waits.begin() + static_cast<std::ptrdiff_t>(w));
        CAPTURE(veu, p, w);
        CHECK_FALSE(verdict(program).empty());
        ++dropped;
      }
    }
  }
  CHECK(dropped > 5);
}
