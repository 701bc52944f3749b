// The verifier is tested by mutation: small rPrograms, correct ones, are damaged in every way we can think of, and its
// verdict is compared with that of a second, slow and simple proof (test/support/slow_proof.h).
#include <algorithm>
#include <map>
#include <random>
#include <set>

#include "compiler/schedule/dependencies.h"
#include "compiler/schedule/memory_plan.h"
#include "compiler/schedule/owners.h"
#include "compiler/schedule/plan.h"
#include "compiler/schedule/schedule.h"
#include "compiler/support/text.h"
#include "test/support/catch.h"
#include "test/support/slow_proof.h"
#include "test/support/tiny_programs.h"

using namespace tamp;
using namespace tamp::test;
using Catch::Matchers::Contains;

namespace {

// --- programs ---

std::vector<std::string> verdict(const RProgram& program) { return schedule::verify(program, 8, tiny_families()); }

RProgram assembled(const Graph& graph, const ShapedVDevice& d, schedule::Plan plan) {
  RProgram program;
  program.vdevice = d;
  program.graph = graph;
  schedule::assemble(std::move(plan), program);
  schedule::plan_memory(program);
  schedule::list_weights({&program}, tiny_families());
  return program;
}

// The rTasks of a topological order on vEUs by chance, behind boundaries by chance: nothing a policy would do.
RProgram scattered(const Graph& graph, int64_t veus, std::mt19937& random) {
  const ShapedVDevice d = tiny_vdevice(veus);
  const schedule::Dependencies dependencies = schedule::find_dependencies(graph);
  schedule::Plan plan;
  plan.waits = dependencies.producers;
  for (size_t i = 0; i < graph.rops.size(); ++i) {
    const ROperatorId id(static_cast<int64_t>(i));
    plan.rkernels.emplace_back();
    const bool boundary = i > 0 && !dependencies.is_view[i] && random() % 8 == 0;
    if (boundary && !plan.order.empty()) plan.boundaries.push_back(plan.order.size());
    if (dependencies.is_view[i]) continue;
    auto candidates = select::candidates(tiny_families(), {graph, graph.rops[i], d, Precision::fp32});
    plan.rkernels[i] = candidates[random() % candidates.size()];
    for (size_t p = 0; p < plan.rkernels[i].phases.size(); ++p) {
      for (int64_t t = 0; t < plan.rkernels[i].phases[p].rtasks; ++t) {
        plan.order.push_back({{id, static_cast<int32_t>(p), t}, VEU(static_cast<int64_t>(random()) % veus)});
      }
    }
  }
  return assembled(graph, d, std::move(plan));
}

schedule::ScheduleOptions options_of(schedule::Policy policy) {
  schedule::ScheduleOptions options;
  options.policy = policy;
  options.search_plans = 20;
  return options;
}

std::vector<RProgram> make_programs() {
  std::vector<RProgram> all;
  std::mt19937 random(7);
  for (const NamedGraph& tiny : tiny_graphs()) {
    for (const auto policy : schedule::policies()) {
      for (const int64_t veus : {2, 3})
        all.push_back(schedule::schedule(tiny.graph, tiny_vdevice(veus), options_of(policy), tiny_families()));
    }
    for (const int64_t veus : {2, 3, 4}) all.push_back(scattered(tiny.graph, veus, random));
  }
  return all;
}

const std::vector<RProgram>& programs() {
  static const std::vector<RProgram> all = make_programs();
  return all;
}

template <class F>
void for_each_instruction(RProgram& program, F f) {
  for (auto& lane : program.lanes) {
    for (size_t p = 0; p < lane.size(); ++p) f(lane, p);
  }
}

struct Tally {
  int accepted = 0, rejected = 0;
};

// Both proofs must agree on the mutant.
void compare(const RProgram& mutant, const std::string& what, Tally& tally) {
  const bool slow = slow_proof_accepts(mutant);
  const std::vector<std::string> sentences = verdict(mutant);
  if (slow != sentences.empty()) {
    INFO(what << " of\n" << print(mutant) << (sentences.empty() ? "" : sentences[0]));
    FAIL_CHECK("the proofs disagree: " << (slow ? "the slow one accepts" : "the verifier accepts"));
  }
  ++(slow ? tally.accepted : tally.rejected);
}

}  // namespace

TEST_CASE("correct rPrograms are accepted by both proofs") {
  for (const RProgram& program : programs()) {
    INFO(print(program));
    CHECK(verdict(program) == std::vector<std::string>{});
    CHECK(slow_proof_accepts(program));
  }
}

TEST_CASE("a Wait left out is found") {
  Tally tally;
  for (RProgram program : programs()) {
    for_each_instruction(program, [&](auto& lane, size_t p) {
      const auto waits = lane[p].waits;
      for (size_t w = 0; w < waits.size(); ++w) {
        lane[p].waits.erase(lane[p].waits.begin() + static_cast<std::ptrdiff_t>(w));
        compare(program, "a Wait left out", tally);
        lane[p].waits = waits;
      }
    });
  }
  CHECK(tally.rejected > 200);
}

TEST_CASE("no policy that waits for producers only makes a Wait that could be left out") {
  for (const NamedGraph& tiny : tiny_graphs()) {
    for (const int64_t veus : {2, 3, 5}) {
      RProgram program =
          schedule::schedule(tiny.graph, tiny_vdevice(veus), {schedule::Policy::wavefront, Precision::fp32}, tiny_families());
      for_each_instruction(program, [&](auto& lane, size_t p) {
        const auto waits = lane[p].waits;
        for (size_t w = 0; w < waits.size(); ++w) {
          lane[p].waits.erase(lane[p].waits.begin() + static_cast<std::ptrdiff_t>(w));
          CHECK_FALSE(verdict(program).empty());
          lane[p].waits = waits;
        }
      });
    }
  }
}

TEST_CASE("a signal left out is found, with the event's count mended or not") {
  Tally tally;
  for (RProgram program : programs()) {
    for_each_instruction(program, [&](auto& lane, size_t p) {
      const EventId signal = lane[p].signal;
      if (!signal.valid()) return;
      lane[p].signal = {};
      CHECK_FALSE(verdict(program).empty());
      --program.events[signal.index()].count;
      compare(program, "a signal left out", tally);
      ++program.events[signal.index()].count;
      lane[p].signal = signal;
    });
  }
  CHECK(tally.rejected > 200);
}

TEST_CASE("a wrong count is found") {
  for (RProgram program : programs()) {
    for (Event& event : program.events) {
      for (const int64_t change : {-1, 1}) {
        event.count += change;
        CHECK_FALSE(verdict(program).empty());
        event.count -= change;
      }
    }
  }
}

TEST_CASE("two instructions of a vEU in the wrong order are found, and harmless exchanges accepted") {
  Tally tally;
  for (RProgram program : programs()) {
    for_each_instruction(program, [&](auto& lane, size_t p) {
      for (size_t q = p + 1; q < lane.size(); ++q) {
        std::swap(lane[p], lane[q]);
        compare(program, "instructions exchanged", tally);
        std::swap(lane[p], lane[q]);
        std::swap(lane[p].rtask, lane[q].rtask);  // Waits and signals stay
        compare(program, "rTasks exchanged", tally);
        std::swap(lane[p].rtask, lane[q].rtask);
      }
    });
  }
  CHECK(tally.rejected > 200);
  CHECK(tally.accepted > 20);
}

TEST_CASE("an instruction on another vEU is found unless it does no harm") {
  Tally tally;
  for (const RProgram& program : programs()) {
    for (size_t from = 0; from < program.lanes.size(); ++from) {
      for (size_t p = 0; p < program.lanes[from].size(); ++p) {
        RProgram mutant = program;
        auto& lane = mutant.lanes[from];
        auto& other = mutant.lanes[(from + 1) % mutant.lanes.size()];
        other.insert(other.begin() + static_cast<std::ptrdiff_t>(std::min(p, other.size())), lane[p]);
        lane.erase(lane.begin() + static_cast<std::ptrdiff_t>(p));
        compare(mutant, "an instruction moved", tally);
      }
    }
  }
  CHECK(tally.rejected > 100);
  CHECK(tally.accepted > 20);
}

TEST_CASE("a rTask that runs twice or never is found") {
  for (const RProgram& program : programs()) {
    for (size_t veu = 0; veu < program.lanes.size(); ++veu) {
      for (size_t p = 0; p < program.lanes[veu].size(); ++p) {
        if (!program.lanes[veu][p].rtask.rop.valid()) continue;
        RProgram never = program;
        never.lanes[veu][p].rtask = {};
        CHECK_FALSE(verdict(never).empty());
        RProgram twice = program;
        twice.lanes[veu].push_back({program.lanes[veu][p].rtask, {}, {}});
        CHECK_FALSE(verdict(twice).empty());
      }
    }
  }
}

TEST_CASE("a buffer or scratch moved in the arena is found unless nothing else is there at the time") {
  Tally tally;
  for (RProgram program : programs()) {
    std::vector<int64_t*> offsets;
    for (auto* list : {&program.memory.buffer_offset, &program.memory.scratch_offset}) {
      for (int64_t& offset : *list) {
        if (offset >= 0) offsets.push_back(&offset);
      }
    }
    const int64_t arena_bytes = program.memory.arena_bytes;
    for (int64_t* const offset : offsets) {
      const int64_t was = *offset;
      for (const int64_t shift : {4, 128, 256, 512, 1024}) {
        *offset = was + shift;
        compare(program, "a buffer moved up", tally);
        program.memory.arena_bytes += 1024;
        compare(program, "a buffer moved up in a larger arena", tally);
        program.memory.arena_bytes = arena_bytes;
      }
      for (const int64_t* const other : offsets) {
        *offset = *other;
        compare(program, "a buffer moved onto another", tally);
        *offset = was;
      }
      *offset = -1;
      CHECK_FALSE(verdict(program).empty());
      *offset = was;
    }
  }
  CHECK(tally.rejected > 200);
  CHECK(tally.accepted > 100);
}

TEST_CASE("a tensor shifted in its buffer is found") {
  for (RProgram program : programs()) {
    for (const ROperator& rop : program.graph.rops) {
      Tensor& tensor = program.graph.tensor(rop.outputs[0]);
      for (const int64_t shift : {-1, 1}) {
        tensor.place.offset += shift;
        CHECK_FALSE(verdict(program).empty());
        tensor.place.offset -= shift;
      }
    }
  }
}

// Two rOperators of four rTasks each, which are splits of one tile on the four vEUs of a cluster. What they read is made in front of them.
RProgram in_a_cluster() {
  GraphBuilder builder;
  const TensorId m = builder.tiles("m", {builder.input("x", {128})}, {128});
  builder.output(builder.tiles("a", {m, m}, {128}));
  builder.output(builder.tiles("b", {m, m}, {128}));
  const Graph graph = builder.take();
  ShapedVDevice d = tiny_vdevice(4);
  d.cluster_veus = 4;
  d.input_stages = 2;
  d.input_stage_bytes = 1024;
  schedule::Plan plan;
  plan.waits = schedule::find_dependencies(graph).producers;
  for (size_t i = 0; i < graph.rops.size(); ++i) {
    for (RKernel& rkernel : select::candidates(tiny_families(), {graph, graph.rops[i], d, Precision::fp32})) {
      if (rkernel.phases[0].rtasks != (i == 0 ? 1 : 4)) continue;
      plan.rkernels.push_back(rkernel);
      if (i == 0) continue;
      InputBoxes boxes;
      boxes.tensor = m;
      boxes.extents = {128, 1, 1, 1};
      boxes.strides = {1, 128, 128, 128};
      boxes.splits = boxes.boxes = 4;
      boxes.boxes_per_split = boxes.boxes_per_chunk = 1;
      plan.rkernels[i].phases[0].boxes = boxes;
      plan.rkernels[i].phases[0].cluster = 4;
    }
    for (int64_t t = 0; t < plan.rkernels[i].rtasks(); ++t) plan.order.push_back({{ROperatorId(static_cast<int64_t>(i)), 0, t}, VEU(t)});
  }
  return assembled(graph, d, std::move(plan));
}

TEST_CASE("splits of a tile must be the members of one cluster, at the same time") {
  const RProgram good = in_a_cluster();
  CHECK(verdict(good) == std::vector<std::string>{});
  RProgram exchanged = good;
  std::swap(exchanged.lanes[1][0], exchanged.lanes[2][0]);
  CHECK_THAT(join(verdict(exchanged), "\n"), Contains("'a' phase 0 rTask 2 is member 2 of its cluster and on vEU 1, which is member 1"));
  RProgram crossed = good;  // vEU 0 would wait for the others in a, and the others for vEU 0 in b
  std::swap(crossed.lanes[0][1], crossed.lanes[0][2]);
  CHECK_FALSE(verdict(crossed).empty());
  RProgram no_clusters = good;
  no_clusters.vdevice.cluster_veus = 1;
  CHECK_THAT(join(verdict(no_clusters), "\n"), Contains("is one of 4 in a cluster; the program has clusters of 1"));
}

TEST_CASE("boxes of groups begin at multiples of 16 bytes") {
  for (const int64_t channels : {4, 6, 8}) {
    RProgram program = in_a_cluster();
    InputBoxes& boxes = *program.rkernels[1].phases[0].boxes;
    boxes.splits = boxes.boxes = 1;  // so the four rTasks are four groups
    boxes.group_channels = channels;
    const std::string said = join(verdict(program), "\n");
    CHECK((said.find("has boxes of groups of 6 channels, which do not begin at multiples of 16 bytes") != std::string::npos) ==
          (channels == 6));
  }
}

TEST_CASE("deadlock is found and named by the rTask that waits") {
  RProgram program = schedule::schedule(tiny_graphs()[0].graph, tiny_vdevice(2), {}, tiny_families());
  // Both vEUs first wait for what comes second on the other.
  program.events.push_back({"late 0", 1});
  program.events.push_back({"late 1", 1});
  for (int64_t veu = 0; veu < 2; ++veu) {
    auto& lane = program.lanes[static_cast<size_t>(veu)];
    lane.front().waits.push_back(EventId(static_cast<int64_t>(program.events.size()) - 1 - veu));
    lane.push_back({{}, {}, EventId(static_cast<int64_t>(program.events.size()) - 2 + veu)});
  }
  const auto sentences = verdict(program);
  REQUIRE(sentences.size() == 2);
  CHECK(sentences[0] == "'a' rTask 0 (vEU 0) waits for ever");
}

TEST_CASE("what does not fit the vDevice or does not exist is found") {
  const RProgram good = schedule::schedule(tiny_graphs()[3].graph, tiny_vdevice(2), {}, tiny_families());
  struct Row {
    const char* sentence;
    void (*damage)(RProgram&);
  };
  const Row rows[] = {
      {"lanes for the", [](RProgram& p) { p.lanes.emplace_back(); }},
      {"bytes of shared memory", [](RProgram& p) { p.rkernels[0].phases[0].work_bytes = p.vdevice.work_bytes() + 1; }},
      {"weight chunks", [](RProgram& p) { p.rkernels[0].phases[0].ring.chunk_bytes = p.vdevice.weight_stage_bytes + 16; }},
      {"weight chunks", [](RProgram& p) { p.rkernels[0].phases[0].ring.chunk_bytes = 24; }},
      {"has another length", [](RProgram& p) { p.rkernels.pop_back(); }},
      {"waits for event 99, which does not exist", [](RProgram& p) { p.lanes[0][0].waits.push_back(EventId(99)); }},
      {"signals event 99, which does not exist", [](RProgram& p) { p.lanes[0][0].signal = EventId(99); }},
      {"rTask that does not exist", [](RProgram& p) { p.lanes[0][0].rtask.index = 99; }},
      {"leaves the arena", [](RProgram& p) { p.memory.arena_bytes = 4; }},
      {"are not aligned", [](RProgram& p) { p.weights.at(1).offset += 16, p.weight_bytes += 16; }},
      {"overlap those before", [](RProgram& p) { p.weights.at(1).bytes -= 1, p.weights.at(1).offset = 0; }},
      {"end at byte", [](RProgram& p) { p.weight_bytes -= 1; }},
      {"of packed weights, which has", [](RProgram& p) { p.rkernels[0].phases[0].ring.chunks_per_rtask *= 2; }},
      {"of packed weights, which has", [](RProgram& p) { p.rkernels[0].phases[0].ring.blocks += 1; }},
      {"by its ring of weights, which has", [](RProgram& p) { p.rkernels[0].phases[0].ring.chunks_per_rtask -= 1; }},
      {"of packed weights, which has", [](RProgram& p) { p.weights.at(0).bytes -= 16; }},
      {"of packed weights, which has 0", [](RProgram& p) { p.weights.erase(p.weights.begin()); }},
      {"of packed weights, which has",
       [](RProgram& p) {
         p.rkernels[0].phases[0].args.push_back({"table", {PackedArg{1 << 20}}});
       }},
  };
  for (const Row& row : rows) {
    RProgram program = good;
    row.damage(program);
    const auto sentences = verdict(program);
    INFO(row.sentence);
    REQUIRE_FALSE(sentences.empty());
    CHECK_THAT(sentences[0], Catch::Contains(row.sentence));
  }
}

TEST_CASE("a body may take the room of the input stages unless it has boxes itself") {
  RProgram program = schedule::schedule(tiny_graphs()[3].graph, tiny_vdevice(2), {}, tiny_families());
  ShapedVDevice& d = program.vdevice;
  d.input_stages = 2;
  d.input_stage_bytes = 8192;
  Phase& phase = program.rkernels[0].phases[0];
  phase.work_bytes = d.work_bytes() + 2 * 8192;
  CHECK(verdict(program).empty());
  phase.work_bytes += 1;
  REQUIRE_FALSE(verdict(program).empty());
  CHECK_THAT(verdict(program)[0], Catch::Contains("bytes of shared memory"));
  phase.work_bytes = d.work_bytes() + 1;
  phase.boxes.emplace().boxes_per_chunk = 1;
  REQUIRE_FALSE(verdict(program).empty());
  CHECK_THAT(verdict(program)[0], Catch::Contains("bytes of shared memory"));
  // Where products are over the input stages, a body with boxes may be, too, if it stores when its boxes have been read.
  d.products_over_inputs = true;
  REQUIRE_FALSE(verdict(program).empty());
  CHECK_THAT(verdict(program)[0], Catch::Contains("bytes of shared memory"));
  phase.stores_behind_boxes = true;
  phase.work_bytes = d.work_bytes();
  for (const std::string& sentence : verdict(program)) CHECK_THAT(sentence, !Catch::Contains("bytes of shared memory"));
  phase.work_bytes += 1;
  CHECK_THAT(verdict(program)[0], Catch::Contains("bytes of shared memory"));
}

TEST_CASE("a region that leaves its buffer, or writes an input, is found") {
  const auto with_accesses = [](void (*accesses)(const Graph&, const ROperator&, const RKernel&, int, int64_t, Accesses&)) {
    select::Families families = tiny_families();
    const RProgram program = schedule::schedule(tiny_graphs()[0].graph, tiny_vdevice(2), {}, families);
    families[0].accesses = accesses;
    return schedule::verify(program, 1, families);
  };
  const auto beyond = with_accesses([](const Graph&, const ROperator& rop, const RKernel&, int, int64_t, Accesses& out) {
    out.writes.push_back({rop.outputs[0], {0, 2, 7, 1}});
  });
  REQUIRE(beyond.size() == 1);
  CHECK_THAT(beyond[0], Catch::Contains("writes elements 0 to 8 of buffer 1, which has 7"));
  const auto input = with_accesses([](const Graph& graph, const ROperator&, const RKernel&, int, int64_t, Accesses& out) {
    out.writes.push_back({graph.inputs[0], {0, 1, 0, 7}});
  });
  REQUIRE(input.size() == 1);
  CHECK_THAT(input[0], Catch::Contains("which is an input or a constant"));
  const auto nothing = with_accesses([](const Graph&, const ROperator&, const RKernel&, int, int64_t, Accesses&) {});
  REQUIRE(nothing.size() == 1);
  CHECK_THAT(nothing[0], Catch::Contains("is never written"));
}

TEST_CASE("scratch that is read and that no phase writes is found") {
  select::Families families = tiny_families();
  const RProgram program = schedule::schedule(tiny_graphs()[3].graph, tiny_vdevice(2), {}, families);
  CHECK(schedule::verify(program, 8, families).empty());
  families[1].accesses = [](const Graph& graph, const ROperator& rop, const RKernel& rkernel, int phase, int64_t index, Accesses& out) {
    tiny_families()[1].accesses(graph, rop, rkernel, phase, index, out);
    if (phase == 0) --out.writes.back().run.length;
  };
  const auto sentences = schedule::verify(program, 8, families);
  REQUIRE_FALSE(sentences.empty());
  CHECK_THAT(sentences[0], Catch::Contains("of scratch of 'a', which is never written"));
}

TEST_CASE("a constant read where the weights have nothing is found") {
  Tally tally;
  for (RProgram program : programs()) {
    for (Tensor& tensor : program.graph.tensors) {
      if (tensor.role != Role::constant) continue;
      for (const int64_t shift : {-1, 1, 4}) {
        tensor.place.offset += shift;
        compare(program, "a constant moved", tally);
        tensor.place.offset -= shift;
      }
    }
    for (WeightBlob& blob : program.weights) {
      for (const int64_t bytes : {int64_t{0}, blob.bytes - 1, blob.bytes / 2}) {
        const int64_t was = std::exchange(blob.bytes, bytes);
        compare(program, "a blob cut off", tally);
        blob.bytes = was;
      }
    }
  }
  CHECK(tally.rejected > 40);
}

TEST_CASE("random rPrograms with random damage get the same verdict from both proofs") {
  std::mt19937 random(2026);
  Tally tally;
  for (int round = 0; round < 400; ++round) {
    const auto graphs = tiny_graphs();
    RProgram program = scattered(graphs[random() % graphs.size()].graph, 1 + static_cast<int64_t>(random() % 5), random);
    CHECK(verdict(program) == std::vector<std::string>{});
    for (int hit = 0; hit < 3; ++hit) {
      auto& lane = program.lanes[random() % program.lanes.size()];
      if (lane.empty()) continue;
      Instruction& i = lane[random() % lane.size()];
      auto& offsets = program.memory.buffer_offset;
      int64_t& offset = offsets[random() % offsets.size()];
      switch (random() % 4) {
        case 0:
          if (!i.waits.empty()) i.waits.erase(i.waits.begin() + static_cast<std::ptrdiff_t>(random() % i.waits.size()));
          break;
        case 1:
          if (!program.events.empty()) i.waits.push_back(EventId(static_cast<int64_t>(random() % program.events.size())));
          break;
        case 2: std::swap(i, lane[random() % lane.size()]); break;
        default:
          if (offset >= 0) offset = static_cast<int64_t>(random() % 4) * 256;
      }
      compare(program, "random damage", tally);
    }
  }
  CHECK(tally.rejected > 200);
  CHECK(tally.accepted > 200);
}

TEST_CASE("who writes elements is the same by pieces, by elements and window by window") {
  using schedule::Owners;
  std::mt19937 random(7);
  const auto upto = [&](int64_t most) { return static_cast<int64_t>(random() % static_cast<uint32_t>(most)); };
  for (int round = 0; round < 300; ++round) {
    const int64_t elements = 1 + upto(200), low = upto(elements), high = low + 1 + upto(elements - low);
    std::vector<int32_t> wanted(static_cast<size_t>(elements), Owners::kNobody);
    std::vector<Run> runs;
    bool twice = false;
    for (int i = 0; i < 6; ++i) {
      Run run{0, 1 + upto(4), upto(12), 1 + upto(8)};
      const int64_t reach = (run.count - 1) * run.stride + run.length;
      if (reach > elements) continue;
      run.offset = upto(elements - reach + 1);
      if (random() % 2 == 0) run = {run.offset + (run.count - 1) * run.stride, run.count, -run.stride, run.length};
      const auto owner = static_cast<int32_t>(runs.size());
      runs.push_back(run);
      for (int64_t k = 0; k < run.count; ++k) {
        for (int64_t e = run.offset + k * run.stride; e < run.offset + k * run.stride + run.length; ++e) {
          twice |= wanted[static_cast<size_t>(e)] != Owners::kNobody && e >= low && e < high;
          if (wanted[static_cast<size_t>(e)] == Owners::kNobody) wanted[static_cast<size_t>(e)] = owner;
        }
      }
    }
    for (const int64_t spans : {int64_t{0}, elements}) {  // few pieces, many
      CAPTURE(round, spans, low, high);
      Owners owners;
      owners.begin_space(elements, spans);
      owners.begin_window(low, high);
      for (size_t i = 0; i < runs.size(); ++i) owners.add(runs[i], static_cast<int32_t>(i));
      bool found_twice = false;
      const int64_t owned = owners.settle([&](int64_t, int32_t, int32_t) { found_twice = true; });
      CHECK(found_twice == twice);
      const int64_t nobody = std::count(wanted.begin() + low, wanted.begin() + high, Owners::kNobody);
      CHECK(owned == high - low - nobody);
      std::vector<int32_t> seen(static_cast<size_t>(elements), Owners::kNobody);
      owners.for_each(low, high, [&](int64_t begin, int32_t owner) {
        std::fill(seen.begin() + begin, seen.begin() + high, owner);
        return true;
      });
      if (!twice) CHECK(std::equal(wanted.begin() + low, wanted.begin() + high, seen.begin() + low));
    }
  }
}
