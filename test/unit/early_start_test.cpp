// A rTask whose inputs come by boxes (InputBoxes) starts early: the waiter copies them while rTasks before it on the same vEU may still
// run. So order on a vEU is not enough for it; there must be a Wait, and the verifier must say so where there is none.
#include <algorithm>

#include "compiler/passes/passes.h"
#include "compiler/schedule/schedule.h"
#include "test/support/catch.h"
#include "test/support/graph_text.h"

using namespace tamp;
using namespace tamp::test;

namespace {

// One vEU: all of it is in order there.
RProgram chain() {
  Graph graph = parse_graph(
      "x = input f32[1,16,6,6]\n"
      "w = const f32[16,16,1,1]\n"
      "v = const f32[8,16,3,3]\n"
      "a = Conv(x, w) {kernel=[1,1], strides=[1,1], pads=[0,0,0,0], dilations=[1,1], group=1} -> f32[1,16,6,6]\n"
      "b = MaxPool(a) {kernel=[3,3], pads=[1,1,1,1]} -> f32[1,16,6,6]\n"
      "y = Conv(b, v) {kernel=[3,3], strides=[1,1], pads=[1,1,1,1], dilations=[1,1], group=1} -> f32[1,8,6,6]\n"
      "outputs(y)\n");
  for (const passes::Pass& pass : passes::pipeline()) graph = pass.run(std::move(graph));
  ShapedVDevice vdevice = read_vdevice("cpu").with_inputs();
  vdevice.sms = 1;
  return schedule::schedule(std::move(graph), vdevice, {.precision = Precision::tf32});
}

bool has_boxes(const RProgram& program, const Instruction& i) {
  return i.rtask.rop.valid() && program.rkernels[i.rtask.rop.index()].phases[static_cast<size_t>(i.rtask.phase)].boxes.has_value();
}

}  // namespace

TEST_CASE("what starts early waits for a producer on its own vEU, too") {
  const RProgram program = chain();
  REQUIRE(schedule::verify(program).empty());
  REQUIRE(program.lanes.size() == 1);
  const auto& lane = program.lanes[0];
  const auto first = std::find_if(lane.begin(), lane.end(), [&](const Instruction& i) { return has_boxes(program, i); });
  REQUIRE(first != lane.end());
  CHECK_FALSE(first->waits.empty());
  for (const Instruction& i : lane) CHECK((has_boxes(program, i) || i.waits.empty()));  // the others need none on one vEU
}

TEST_CASE("the verifier notices where such a Wait is dropped") {
  RProgram program = chain();
  size_t dropped = 0;
  for (Instruction& i : program.lanes[0]) {
    if (!has_boxes(program, i) || i.waits.empty()) continue;
    i.waits.clear();
    ++dropped;
  }
  REQUIRE(dropped == 1);
  CHECK_FALSE(schedule::verify(program).empty());
}
