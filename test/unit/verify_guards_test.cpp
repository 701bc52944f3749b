// Lengths of run time in the verifier: what an rTask that does nothing in some runs may leave undone (docs/adr/0049-lengths.md).
#include <algorithm>

#include "compiler/passes/passes.h"
#include "compiler/passes/place/narrow_activations.h"
#include "compiler/schedule/schedule.h"
#include "compiler/select/records.h"
#include "test/support/catch.h"
#include "test/support/graph_text.h"

using namespace tamp;
using Catch::Matchers::Contains;

namespace {

// Of 1 to 128 rows, which come dense; `wanted` is a part of the names of the rKernels that are taken where there are any.
RProgram program_of(const ShapedVDevice& vdevice, Precision precision, const std::string& wanted) {
  Graph graph = test::parse_graph(R"(
    x = input f32[128,3072]
    w = const f32[3072,256]
    p = Pad(x) {before=[0,0], after=[0,0]} -> f32[128,3072]
    a = Elementwise(p) {tanh(i0)} -> f32[128,3072]
    b = MatMul(a, w) -> f32[128,256]
    y = Elementwise(b) {relu(i0)} -> f32[128,256]
    outputs(y)
  )");
  graph.lengths = {{"rows", 1, 128}};
  graph.input_axes = graph.output_axes = {{{0, {0}}}};
  auto& pad = std::get<Pad>(graph.rops[0].attrs);
  pad.ends = {{0, {0}}};
  pad.packed = Packed::in;
  for (const passes::Pass& pass : passes::pipeline()) graph = pass.run(std::move(graph));
  if (precision == Precision::fp16) {
    const auto takes = [&](const Graph& narrow, const ROperator& rop) {
      return !select::candidates_in_program(kernels::families(), {narrow, rop, vdevice, precision}).empty();
    };
    graph = passes::narrow_activations(std::move(graph), DType::f16, takes);
  }
  std::vector<std::string> forced;
  for (const ROperator& rop : graph.rops) {
    forced.emplace_back();
    for (const RKernel& rkernel : select::candidates_in_program(kernels::families(), {graph, rop, vdevice, precision})) {
      if (forced.back().empty() && rkernel.name.find(wanted) != std::string::npos) forced.back() = select::identity(rkernel);
    }
  }
  schedule::ScheduleOptions options;
  options.precision = precision;
  options.forced = &forced;
  return schedule::schedule(std::move(graph), vdevice, options);
}

// Rows that are halved until their sum, over the rows that there are, is small: what lies behind their end is read in no iteration.
RProgram with_loop() {
  Graph graph = test::parse_graph(R"(
    x = input f32[128,256]
    go = input bool[]
    ones = const f32[128,1]
    half = const f32[] {0.5}
    zero = const f32[] {0}
    least = const f32[] {1}
    p = Pad(x) {before=[0,0], after=[0,0]} -> f32[128,256]
    valid = Pad(ones) {before=[0,0], after=[0,0]} -> f32[128,1]
    c, a = LoopBegin(go, p) {loop=0} -> bool[], f32[128,256]
    h = Elementwise(a, half) {mul(i0, i1)} -> f32[128,256]
    m = Elementwise(valid, h, zero) {where(i0, i1, i2)} -> f32[128,256]
    s = Reduce(m) {kind=sum, axes=[0,1], keepdims=0} -> f32[]
    n = Elementwise(s, least) {less(i1, i0)} -> bool[]
    d, b = LoopEnd(c, a, n, h) {loop=0} -> bool[], f32[128,256]
    y = Pad(b) {before=[0,0], after=[0,0]} -> f32[128,256]
    outputs(y)
  )");
  graph.lengths = {{"rows", 1, 128}};
  graph.input_axes = {{{0, {0}}}, {}};
  graph.output_axes = {{{0, {0}}}};
  for (ROperator& rop : graph.rops) {
    auto* const pad = std::get_if<Pad>(&rop.attrs);
    if (pad == nullptr) continue;
    pad->ends = {{0, {0}}};
    pad->packed = rop.name == "p" ? Packed::in : rop.name == "y" ? Packed::out : Packed::none;
  }
  for (const passes::Pass& pass : passes::pipeline()) graph = pass.run(std::move(graph));
  schedule::ScheduleOptions options;
  options.precision = Precision::fp32;
  options.gangs = false;
  return schedule::schedule(std::move(graph), read_vdevice("cpu").without_inputs(), options);
}

RProgram plain() { return program_of(read_vdevice("cpu").without_inputs(), Precision::fp32, ""); }
RProgram with_splits() { return program_of(read_vdevice("h200").with_inputs(), Precision::tf32, "split"); }
RProgram with_clusters() {
  ShapedVDevice clusters = read_vdevice("h200").with_clusters();
  clusters.wide_products = clusters.even_stages = true;
  return program_of(clusters, Precision::fp16, "cluster");
}

std::string verdict(const RProgram& program) {
  const std::vector<std::string> violations = schedule::verify(program);
  return violations.empty() ? "" : violations[0];
}

// The first rTask that has nothing to do in a run of one row, of a phase that `fits`.
struct Place {
  size_t rop, phase, rtask;
};
template <class Fits>
Place place_of(const RProgram& program, Fits fits) {
  for (size_t i = 0; i < program.guards.size(); ++i) {
    for (size_t p = 0; p < program.guards[i].size(); ++p) {
      if (!program.guards[i][p] || !fits(program.rkernels[i], p)) continue;
      const auto& begins = program.guards[i][p]->begins;
      const auto found = std::find_if(begins.begin(), begins.end(), [](int64_t begin) { return begin > 0; });
      if (found != begins.end()) return {i, p, static_cast<size_t>(found - begins.begin())};
    }
  }
  FAIL("no rTask has a guard");
  return {};
}
Place any_place(const RProgram& program) {
  return place_of(program, [](const RKernel&, size_t) { return true; });
}

}  // namespace

TEST_CASE("guards say no more than is true") {
  RProgram program = plain();
  REQUIRE(verdict(program).empty());
  const Place at = any_place(program);
  auto& guard = program.guards[at.rop][at.phase];
  SECTION("an rTask that would run where it need not") {
    guard->begins[at.rtask] = 0;
    CHECK(verdict(program).empty());
  }
  SECTION("one that does nothing in a run of one row more") {
    ++guard->begins[at.rtask];
    CHECK_THAT(verdict(program), Contains("writes elements of") && Contains("that such a run needs"));
  }
  SECTION("a first rTask that does nothing") {
    guard->begins[0] = 1;
    CHECK_THAT(verdict(program), Contains("does nothing in runs of up to 1, but writes"));
  }
  SECTION("an extent that no run says") {
    guard->extent.plus = 1;
    CHECK_THAT(verdict(program), Contains("has an extent that no run says"));
  }
  SECTION("an extent of something else") {
    guard->extent.plus = -1;
    program.extents.push_back(guard->extent);
    CHECK_THAT(verdict(program), Contains("writes elements of"));
  }
  SECTION("an extent of a length that there is not") {
    program.extents[0].length = 1;
    CHECK_THAT(verdict(program), Contains("has an extent that no run says"));
  }
  SECTION("a tensor whose end is not marked") {
    program.graph.tensor(program.graph.rops[at.rop].outputs[0]).ends.clear();
    CHECK_THAT(verdict(program), Contains("writes elements of"));
  }
  SECTION("fewer guards than rTasks, phases, rOperators") {
    guard->begins.pop_back();
    CHECK_THAT(verdict(program), Contains("has a guard for"));
    program.guards[at.rop].pop_back();
    CHECK_THAT(verdict(program), Contains("has guards for other phases than its own"));
    program.guards.pop_back();
    CHECK_THAT(verdict(program), Contains("the list of guards has another length"));
  }
  SECTION("no guards at all, as of a bucket of one value") {
    program.guards.clear();
    CHECK(verdict(program).empty());
  }
  SECTION("a signal that is left away with the work") {
    for (auto& lane : program.lanes) {
      for (Instruction& instruction : lane) {
        if (instruction.rtask.rop.index() != at.rop || static_cast<size_t>(instruction.rtask.index) != at.rtask) continue;
        REQUIRE(instruction.signal.valid());
        instruction.signal = {};
      }
    }
    CHECK(!verdict(program).empty());
  }
}

TEST_CASE("a number among the arguments is one that a run says") {
  RProgram program = plain();
  for (auto& guards : program.guards) std::fill(guards.begin(), guards.end(), std::nullopt);
  CHECK(verdict(program).empty());
  program.extents.clear();
  CHECK_THAT(verdict(program), Contains("'p' has an extent that no run says"));
}

TEST_CASE("what a later phase reads is made") {
  RProgram program = with_splits();
  REQUIRE(verdict(program).empty());
  const Place at = place_of(program, [](const RKernel& rkernel, size_t p) { return p + 1 < rkernel.phases.size(); });
  auto& begins = program.guards[at.rop][at.phase]->begins;
  ++begins[at.rtask];
  CHECK_THAT(verdict(program), Contains("reads what it leaves"));
  --begins[at.rtask];
  program.guards[at.rop][at.phase + 1].reset();
  CHECK_THAT(verdict(program), Contains("reads what it leaves"));
}

TEST_CASE("all members of a cluster work or none does") {
  RProgram program = with_clusters();
  REQUIRE(verdict(program).empty());
  const Place at = place_of(program, [](const RKernel& rkernel, size_t p) { return rkernel.phases[p].cluster > 1; });
  program.guards[at.rop][at.phase]->begins[at.rtask] = 0;
  CHECK_THAT(verdict(program), Contains("of a cluster have different guards"));
}

TEST_CASE("a value of a loop ends where the next iteration reads it") {
  RProgram program = with_loop();
  REQUIRE(verdict(program).empty());
  const auto value = [&](bool is_next) -> Tensor& {  // what is there at first, or what the next iteration has
    for (const ROperator& rop : program.graph.rops) {
      Tensor& made = program.graph.tensor(rop.outputs[0]);
      const bool is_value = made.name == "a" || rop.ends_iteration;
      if (is_value && made.shape.size() == 2 && rop.ends_iteration == is_next) return made;
    }
    FAIL("no such value");
    return program.graph.tensors[0];
  };
  REQUIRE(value(false).ends == LengthAxes{{0, {0}}});
  REQUIRE(value(true).ends == LengthAxes{{0, {0}}});
  SECTION("a value that an iteration needs whole") { value(false).ends.clear(); }
  SECTION("a value whose maker leaves nothing out") { value(true).ends.clear(); }
  const std::vector<std::string> violations = schedule::verify(program);
  CHECK(std::any_of(violations.begin(), violations.end(),
                    [](const std::string& text) { return text.find("which is the same value of a loop, does not") != std::string::npos; }));
}
