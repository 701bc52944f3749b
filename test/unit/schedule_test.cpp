// The cost model, the choice of rKernels, the policies, the memory plan, and the estimate of a whole rProgram.
#include "compiler/schedule/schedule.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "compiler/schedule/dependencies.h"
#include "compiler/schedule/memory_plan.h"
#include "compiler/schedule/plan.h"
#include "compiler/schedule/timetable.h"
#include "compiler/support/error.h"
#include "test/support/catch.h"
#include "test/support/tiny_programs.h"

using namespace tamp;
using namespace tamp::test;

namespace {

RProgram schedule_tiny(const Graph& graph, int64_t veus, schedule::Policy policy = schedule::Policy::wavefront,
                       schedule::Execution execution = schedule::Execution::persistent) {
  schedule::ScheduleOptions options;
  options.policy = policy;
  options.search_plans = 20;
  options.execution = execution;
  return schedule::schedule(graph, tiny_vdevice(veus), options, tiny_families());
}

std::set<size_t> veus_of(const RProgram& program, size_t rop) {
  std::set<size_t> veus;
  for (size_t veu = 0; veu < program.lanes.size(); ++veu) {
    for (const Instruction& i : program.lanes[veu]) {
      if (i.rtask.rop.valid() && i.rtask.rop.index() == rop) veus.insert(veu);
    }
  }
  return veus;
}

size_t waits_in(const RProgram& program) {
  size_t waits = 0;
  for (const auto& lane : program.lanes) {
    for (const Instruction& i : lane) waits += i.waits.size();
  }
  return waits;
}

Phase phase_with(double flops, double activation_bytes, double weight_bytes) {
  Phase phase;
  phase.rtasks = 4;
  phase.cost = {flops, false, 1.0, activation_bytes, weight_bytes};
  return phase;
}

}  // namespace

TEST_CASE("a rTask never gets cheaper by more work or more company") {
  ShapedVDevice d = tiny_vdevice(8);
  d.dram_gb_per_s = 2;
  for (const bool in_l2 : {true, false}) {
    const select::Machine machine{d, Precision::fp32, in_l2};
    double before = -1;
    for (const double scale : {0.0, 1.0, 2.0, 5.0, 100.0}) {
      const Phase phase = phase_with(scale * 1e6, scale * 1e3, scale * 500);
      double previous_us = -1;
      for (int64_t active = 1; active <= 8; ++active) {
        const double us = select::after({}, select::cost_of(phase, machine, active), 0).free_us;
        CHECK(us >= previous_us);
        previous_us = us;
      }
      CHECK(previous_us >= before);
      before = previous_us;
    }
  }
}

TEST_CASE("a rTask's time is its fixed cost and the longest of arithmetic, activations and weights") {
  const ShapedVDevice d = tiny_vdevice(4);  // per vEU: 1e6 flops and 1e3 bytes a us
  const select::Machine machine{d, Precision::fp32, true};
  struct Row {
    double flops, activation_bytes, weight_bytes, us;
  };
  for (const Row& row : {Row{3e6, 0, 0, 4}, Row{3e6, 2e3, 0, 4}, Row{3e6, 5e3, 0, 6}, Row{3e6, 5e3, 7e3, 8}, Row{0, 0, 0, 1}}) {
    CHECK(select::after({}, select::cost_of(phase_with(row.flops, row.activation_bytes, row.weight_bytes), machine, 4), 0).free_us ==
          Approx(row.us));
  }
}

TEST_CASE("weights that fit into the ring hide behind a wait, others only in part") {
  const ShapedVDevice d = tiny_vdevice(4);
  const select::Machine machine{d, Precision::fp32, true};
  Phase phase = phase_with(1e6, 0, 8e3);  // 8 us of weights
  const auto end_after_wait = [&](double ready_us) { return select::after({}, select::cost_of(phase, machine, 4), ready_us).free_us; };
  CHECK(end_after_wait(100) == Approx(109));  // no ring: nothing is fetched ahead
  phase.ring = {1024, 2, 1, 4};
  CHECK(end_after_wait(100) == Approx(102));
  CHECK(end_after_wait(3) == Approx(3 + 1 + 5));
  phase.ring.chunks_per_rtask = 4;  // the ring has two stages: half of it
  CHECK(end_after_wait(100) == Approx(105));
}

TEST_CASE("weights come from DRAM when the model's constants exceed L2") {
  GraphBuilder small, big;
  small.constant("w", {1000});
  big.constant("w", {1000, 1000});
  const ShapedVDevice d = tiny_vdevice(2);
  CHECK(select::machine_for(small.take(), d, Precision::fp32).weights_in_l2);
  CHECK_FALSE(select::machine_for(big.take(), d, Precision::fp32).weights_in_l2);
}

TEST_CASE("the fastest rKernel fills the vEUs and the efficient one spends the least of them") {
  GraphBuilder b;
  b.output(b.tiles("a", {b.input("x", {12})}, {12}));
  const Graph graph = b.take();
  const ShapedVDevice d = tiny_vdevice(4);
  const select::Machine machine = select::machine_for(graph, d, Precision::fp32);
  const auto found = select::candidates(tiny_families(), {graph, graph.rops[0], d, Precision::fp32});
  REQUIRE(found.size() == 5);
  CHECK(found[select::fastest(found, machine)].name == "tiles<4>");
  CHECK(found[select::efficient(found, machine)].name == "tiles<1>");
  CHECK(found[select::fastest_on(found, machine, 2)].name == "tiles<2>");
}

TEST_CASE("vEUs take rTasks with the same input one after the other where a phase says so, and each rTask once") {
  Phase phase;
  phase.rtasks = 24;
  CHECK(phase.taken(7) == 7);  // no boxes
  phase.boxes = InputBoxes{};
  phase.boxes->tiles_w = 3;
  phase.boxes->tiles_h = 2;
  phase.boxes->n_blocks = 4;
  CHECK(phase.taken(7) == 7);
  for (const auto& [beside, want] :
       {std::pair<int64_t, std::vector<int64_t>>{2, {0, 6, 1, 7, 2, 8}}, {3, {0, 6, 12, 1, 7, 13}}, {4, {0, 6, 12, 18, 1, 7}}}) {
    phase.boxes->blocks_beside = beside;
    std::vector<int64_t> begin;
    std::set<int64_t> all;
    for (int64_t i = 0; i < phase.rtasks; ++i) {
      if (i < 6) begin.push_back(phase.taken(i));
      all.insert(phase.taken(i));
    }
    CHECK(begin == want);
    CHECK((all.size() == 24 && *all.begin() == 0 && *all.rbegin() == 23));
  }
  phase.boxes->blocks_beside = 3;  // of four: three are beside each other, and the last is alone
  CHECK(phase.taken(17) == 17);
  CHECK(phase.taken(18) == 18);
  CHECK(phase.taken(23) == 23);
}

TEST_CASE("rTasks that take no time by their records do not follow each other on the vEU that need not wait for a signal") {
  ShapedVDevice d = tiny_vdevice(5);
  d.edge_us = 1.6;
  d.same_veu_us = 0.3;
  const select::Machine machine{d, Precision::fp32, true};
  const auto rkernel_of = [](int64_t rtasks, double correction) {
    RKernel rkernel;
    rkernel.phases.push_back(phase_with(1e6, 0, 0));
    rkernel.phases[0].rtasks = rtasks;
    rkernel.phases[0].cost.correction = correction;
    return rkernel;
  };
  const auto busiest_veu = [&](double correction) {
    schedule::Timetable timetable(machine);
    const schedule::Finish first = timetable.append(ROperatorId(0), rkernel_of(1, 0), {});
    timetable.take_appended();
    timetable.append(ROperatorId(1), rkernel_of(5, correction), std::array{first});
    std::map<int64_t, int> on;
    for (const auto& placed : timetable.appended()) ++on[placed.veu.value];
    return std::max_element(on.begin(), on.end(), [](const auto& a, const auto& b) { return a.second < b.second; })->second;
  };
  CHECK(busiest_veu(1e-4) == 1);
  CHECK(busiest_veu(0) == 1);
  CHECK(busiest_veu(0.25) == 2);  // half a microsecond each: two of them are done when a signal has come
}

TEST_CASE("two independent rOperators of a wave run side by side") {
  GraphBuilder b;
  const TensorId x = b.input("x", {12});
  b.output(b.tiles("left", {x}, {12}));
  b.output(b.tiles("right", {x}, {12}));
  const RProgram program = schedule_tiny(b.take(), 8);
  CHECK(program.depth == 1);
  const std::set<size_t> left = veus_of(program, 0), right = veus_of(program, 1);
  CHECK_FALSE(left.empty());
  for (const size_t veu : left) CHECK(right.count(veu) == 0);
  CHECK(waits_in(program) == 0);
  CHECK(program.events.empty());
}

TEST_CASE("a wave that more than fills the vEUs takes resource-efficient rKernels") {
  GraphBuilder b;
  const TensorId x = b.input("x", {12});
  for (const char* name : {"a", "b", "c", "d"}) b.output(b.tiles(name, {x}, {12}));
  const Graph graph = b.take();
  const RProgram full = schedule_tiny(graph, 4);
  for (const RKernel& rkernel : full.rkernels) CHECK(rkernel.name == "tiles<1>");
  const RProgram roomy = schedule_tiny(graph, 32);
  for (const RKernel& rkernel : roomy.rkernels) CHECK(rkernel.name == "tiles<6>");
}

TEST_CASE("a wave is the fringe of a breadth-first walk, and views take no part") {
  const Graph graph = tiny_graphs()[2].graph;  // p, q, r(p), all = concat, of_all, of_q, join
  const RProgram program = schedule_tiny(graph, 3, schedule::Policy::wavefront_launches, schedule::Execution::graph);
  CHECK(program.depth == 4);
  CHECK(program.rkernels[3].phases.empty());
  std::map<size_t, size_t> wave_of;  // by the launches: one wave after another
  REQUIRE(program.launches.has_value());
  for (const PhaseLaunch& launch : *program.launches) {
    size_t wave = 0;
    for (const int32_t m : launch.after) {
      const PhaseLaunch& other = (*program.launches)[static_cast<size_t>(m)];
      wave = std::max(wave, wave_of[other.rop.index()] + (other.rop == launch.rop ? 0 : 1));
    }
    wave_of[launch.rop.index()] = wave;
  }
  CHECK(wave_of == std::map<size_t, size_t>{{0, 0}, {1, 0}, {2, 1}, {4, 2}, {5, 1}, {6, 3}});
}

TEST_CASE("dependencies are found through slices of one buffer") {
  const schedule::Dependencies found = schedule::find_dependencies(tiny_graphs()[2].graph);
  const auto ids = [](const std::vector<int>& values) {
    std::vector<ROperatorId> out;
    for (const int v : values) out.push_back(ROperatorId(v));
    return out;
  };
  CHECK(found.producers[4] == ids({0, 1, 2}));  // of_all reads the concat
  CHECK(found.producers[5] == ids({1}));        // of_q reads one slice
  CHECK(found.is_view == std::vector<bool>{false, false, false, true, false, false, false});
}

TEST_CASE("a reader depends on every writer of a part of its elements, wherever in the buffer that begins") {
  GraphBuilder b;
  const TensorId x = b.input("x", {5, 8});
  const TensorId p = b.tiles("p", {x}, {5, 2}), q = b.tiles("q", {x}, {5, 4}), r = b.tiles("r", {x}, {5, 6});
  const TensorId all = b.concat_last("all", {p, q, r});
  b.output(b.tiles("reader", {all}, {4}));
  const Graph graph = b.take();
  // The reader's operand becomes columns `first` to `first` + `count` of the twelve, in one row or in all five.
  const auto producers = [&](int64_t first, int64_t count, int64_t rows) {
    Graph changed = graph;
    Tensor window = changed.tensor(all);
    window.shape = {rows, count};
    window.place.offset += first;
    changed.rops[4].inputs = {add_tensor(changed, window)};
    const schedule::Dependencies dependencies = schedule::find_dependencies(changed);
    std::vector<size_t> found;
    for (const ROperatorId id : dependencies.producers[4]) found.push_back(id.index());
    return found;
  };
  using Found = std::vector<size_t>;
  for (const int64_t rows : {1, 5}) {
    CHECK(producers(0, 2, rows) == Found{0});
    CHECK(producers(2, 4, rows) == Found{1});
    CHECK(producers(2, 6, rows) == Found{1, 2});  // all begin and end at even columns
    CHECK(producers(1, 1, rows) == Found{0});
    CHECK(producers(5, 1, rows) == Found{1});
    CHECK(producers(5, 2, rows) == Found{1, 2});
    CHECK(producers(1, 6, rows) == Found{0, 1, 2});
    CHECK(producers(11, 1, rows) == Found{2});
  }
}

TEST_CASE("every policy's rProgram is accepted by the verifier, at any number of vEUs, and the same every time") {
  for (const NamedGraph& tiny : tiny_graphs()) {
    for (const auto policy : schedule::policies()) {
      for (const int64_t veus : {1, 2, 3, 5, 16}) {
        INFO(tiny.name << " " << schedule::name_of(policy) << " on " << veus);
        const RProgram program = schedule_tiny(tiny.graph, veus, policy);
        CHECK(schedule::verify(program, 8, tiny_families()) == std::vector<std::string>{});
        CHECK(program.policy.starts_with(schedule::name_of(policy)));  // "best (list)"
        CHECK(print(program) == print(schedule_tiny(tiny.graph, veus, policy)));
        CHECK(program.estimated_us == schedule::simulate(program));
      }
    }
  }
}

TEST_CASE("on one vEU nothing waits and nothing signals") {
  for (const NamedGraph& tiny : tiny_graphs()) {
    const RProgram program = schedule_tiny(tiny.graph, 1);
    CHECK(waits_in(program) == 0);
    CHECK(program.events.empty());
  }
}

TEST_CASE("sequential runs one rOperator after another where wavefront overlaps them") {
  const Graph graph = tiny_graphs()[4].graph;
  const RProgram one = schedule_tiny(graph, 6, schedule::Policy::sequential), other = schedule_tiny(graph, 6);
  CHECK(other.estimated_us < one.estimated_us);
}

TEST_CASE("a consumer waits once per vEU, and not for what its vEU or another Wait says already") {
  // x -> a (all vEUs) -> b -> c, and c reads a too: its Wait for b implies a.
  GraphBuilder b;
  const TensorId x = b.input("x", {8});
  const TensorId a = b.tiles("a", {x}, {8}), c = b.tiles("b", {a}, {8});
  b.output(b.tiles("c", {c, a}, {8}));
  const RProgram program = schedule_tiny(b.take(), 4);
  REQUIRE(program.events.size() == 2);
  CHECK(program.events[0].name == "a");
  CHECK(program.events[1].name == "b");
  for (const auto& lane : program.lanes) {
    REQUIRE(lane.size() == 3);
    CHECK(lane[1].waits == std::vector<EventId>{EventId(0)});
    CHECK(lane[2].waits == std::vector<EventId>{EventId(1)});
    CHECK_FALSE(lane[2].signal.valid());
  }
  CHECK(program.events[0].count == 4);
}

TEST_CASE("what is only ever needed together is one event, and what somebody needs alone is not part of it") {
  GraphBuilder b;
  const TensorId x = b.input("x", {8});
  const TensorId p = b.tiles("p", {x}, {8}), q = b.tiles("q", {x}, {8}), r = b.tiles("r", {x}, {8});
  b.output(b.tiles("all", {p, q, r}, {8}));
  b.output(b.tiles("again", {p, q, r}, {8}));
  b.output(b.tiles("alone", {r}, {8}));
  const RProgram program = schedule_tiny(b.take(), 6);
  CHECK(schedule::verify(program, 8, tiny_families()) == std::vector<std::string>{});
  std::map<std::string, int64_t> counts;
  for (const Event& event : program.events) counts[event.name] = event.count;
  REQUIRE(counts.contains("p, q"));
  CHECK_FALSE(counts.contains("p"));
  CHECK_FALSE(counts.contains("q"));
  std::set<size_t> veus = veus_of(program, 0);
  veus.merge(veus_of(program, 1));
  CHECK(counts["p, q"] == static_cast<int64_t>(veus.size()));
  for (const auto& lane : program.lanes) {
    for (const Instruction& instruction : lane) CHECK(instruction.waits.size() <= 2);
  }
}

TEST_CASE("a boundary between parts is signalled once by each vEU and waited for once") {
  const Graph graph = tiny_graphs()[0].graph;
  const ShapedVDevice d = tiny_vdevice(3);
  const schedule::Dependencies dependencies = schedule::find_dependencies(graph);
  const select::Machine machine = select::machine_for(graph, d, Precision::fp32);
  schedule::Plan plan = schedule::wavefront({graph, machine, dependencies.producers, dependencies.is_view, tiny_families()});
  const auto behind = [](const schedule::Placed& placed) { return placed.rtask.rop.index() >= 3; };
  std::stable_partition(plan.order.begin(), plan.order.end(), [&](const schedule::Placed& placed) { return !behind(placed); });
  plan.boundaries = {static_cast<size_t>(std::find_if(plan.order.begin(), plan.order.end(), behind) - plan.order.begin())};
  RProgram program;
  program.vdevice = d;
  program.graph = graph;
  schedule::assemble(plan, program);
  schedule::plan_memory(program);
  CHECK(schedule::verify(program, 8, tiny_families()) == std::vector<std::string>{});
  const auto boundary = std::find_if(program.events.begin(), program.events.end(), [](const Event& e) { return e.name == "boundary 0"; });
  REQUIRE(boundary != program.events.end());
  CHECK(boundary->count == 3);
  for (const Event& event : program.events) CHECK(event.name != "c");  // the boundary says so
}

TEST_CASE("buffers share memory where the schedule allows it and never else") {
  GraphBuilder b;
  TensorId t = b.input("x", {100});
  for (int i = 0; i < 20; ++i) t = b.tiles("t" + std::to_string(i), {t}, {100});
  b.output(t);
  const RProgram program = schedule_tiny(b.take(), 4);
  CHECK(program.memory.arena_bytes == 2 * 512);  // two of them at a time, 400 bytes each
  CHECK(schedule::unshared_bytes(program) == 19 * 512);
  CHECK(program.memory.buffer_offset[0] == -1);
  for (const int64_t offset : program.memory.buffer_offset) CHECK((offset == -1 || offset % 256 == 0));
}

TEST_CASE("the weights file lists constants that are read as they are and what the families pack, each once") {
  GraphBuilder b;
  const TensorId x = b.input("x", {1, 5}), w = b.constant("w", {5, 3}), c = b.constant("c", {3}), unused = b.constant("unused", {3});
  (void)unused;
  const TensorId y = b.split("y", {x, w}, {1, 3});
  b.output(b.tiles("z", {b.tiles("u", {y, c}, {3}), c}, {3}));
  const RProgram program = schedule_tiny(b.take(), 2);
  REQUIRE(program.weights.size() == 2);
  CHECK(program.weights[0].constant == c);
  CHECK(program.weights[0].bytes == 12);
  CHECK(program.weights[1].rop == ROperatorId(0));
  CHECK(program.weights[1].offset == 256);
  CHECK(program.weight_bytes == 256 + program.weights[1].bytes);
}

TEST_CASE("equal weights are in the file once") {
  GraphBuilder b;
  const TensorId w = b.constant("w", {3, 3});
  TensorId t = b.input("x", {1, 3});
  for (const char* name : {"a", "b", "c"}) t = b.split(name, {t, w}, {1, 3});
  b.output(t);
  const RProgram program = schedule_tiny(b.take(), 2);
  REQUIRE(program.weights.size() == 3);
  for (const WeightBlob& blob : program.weights) CHECK(blob.offset == 0);
  CHECK(program.weight_bytes == program.weights[0].bytes);
}

TEST_CASE("rOperators that no family can run are all named in one error") {
  GraphBuilder b;
  const TensorId x = b.input("x", {4});
  b.output(b.tiles("fine", {x}, {4}));
  Graph graph = b.take();
  for (const char* name : {"first", "second"}) {
    const TensorId out = add_tensor(
        graph, {name, DType::f32, {4}, Role::activation, nullptr, {BufferId(static_cast<int64_t>(graph.buffers.size())), 0, {1}}});
    graph.buffers.push_back({BufferKind::arena, 4, DType::f32, -1, {}});
    graph.rops.push_back({name, Lrn{}, {}, {x}, {out}, {name}});
  }
  for (const auto policy : schedule::policies()) {
    try {
      schedule_tiny(graph, 2, policy);
      FAIL("accepted");
    } catch (const Error& error) {
      CHECK(error.code() == ExitCode::unsupported);
      CHECK_THAT(error.what(),
                 Catch::Contains("node 'first' (LRN): f32[4] -> f32[4]") && Catch::Contains("node 'second'") && Catch::Contains("tiny"));
    }
  }
}

TEST_CASE("an unknown policy is refused with the names of the known ones") {
  CHECK(schedule::parse_policy("wavefront") == schedule::Policy::wavefront);
  CHECK(schedule::parse_policy("sequential") == schedule::Policy::sequential);
  CHECK_THROWS_WITH(schedule::parse_policy("fast"),
                    "policy 'fast' is not known, supported: sequential, greedy, wavefront, wavefront-fastest, wavefront-launches, ios, "
                    "ios-merge, ios-parallel, list, best");
}

TEST_CASE("the timeline has every instruction on its vEU one after another, and ends when the program does") {
  const RProgram program = schedule_tiny(tiny_graphs()[1].graph, 3);
  const schedule::Timeline timeline = schedule::timeline(program);
  double end_us = 0;
  for (size_t veu = 0; veu < program.lanes.size(); ++veu) {
    REQUIRE(timeline.lanes[veu].size() == program.lanes[veu].size());
    double before_us = program.vdevice.launch_us;
    for (const schedule::Span& span : timeline.lanes[veu]) {
      CHECK(span.begin_us >= before_us);
      CHECK(span.end_us > span.begin_us);
      before_us = span.end_us;
    }
    end_us = std::max(end_us, before_us);
  }
  CHECK(timeline.us == Approx(end_us));
}

TEST_CASE("a printed rProgram names its parts and hides control characters of the model's names") {
  Graph graph = tiny_graphs()[3].graph;
  graph.rops[0].name = "a\n\x1b[31m";
  const std::string text = print(schedule_tiny(graph, 2));
  CHECK_THAT(text, Catch::Contains("policy wavefront, precision fp32") && Catch::Contains("3 rOperators") && Catch::Contains("split<2>"));
  CHECK_THAT(text, Catch::Contains("vEU 0:") && Catch::Contains("a\\x0a"));
  CHECK(text.find('\x1b') == std::string::npos);
}
