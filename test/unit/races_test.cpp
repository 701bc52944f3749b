// What rTasks were seen to touch against what they declare, and against the order of the program: touches that are exactly the declared
// ones are good, every touch more or less is noticed, and without a Wait two rTasks are in no order where the verifier says so too.
#include "compiler/schedule/races.h"

#include <algorithm>

#include "compiler/schedule/launches.h"
#include "compiler/schedule/schedule.h"
#include "test/support/catch.h"
#include "test/support/tiny_programs.h"

using namespace tamp;
using namespace tamp::test;
using schedule::Touch;

namespace {

std::vector<std::string> found(const RProgram& program, const std::vector<Touch>& touched) {
  return schedule::races(program, touched, 8, tiny_families());
}

bool is_about(const std::vector<std::string>& sentences, const std::string& part) {
  return std::any_of(sentences.begin(), sentences.end(), [&](const std::string& s) { return s.find(part) != std::string::npos; });
}

void add_touches(const RProgram& program, const RTask& rtask, const Region& region, bool is_write, std::vector<Touch>& out) {
  const Graph& graph = program.graph;
  int32_t base = schedule::kArenaBase;
  int64_t offset = program.memory.scratch_offset[rtask.rop.index()];
  if (region.tensor.valid()) {
    const size_t index = graph.tensor(region.tensor).place.buffer.index();
    const Buffer& buffer = graph.buffers[index];
    if (buffer.kind == BufferKind::constant) return;
    offset = buffer.kind == BufferKind::arena ? program.memory.buffer_offset[index] : 0;
    if (buffer.kind == BufferKind::input) base = schedule::kFirstPortBase + buffer.io_index;
    if (buffer.kind == BufferKind::output) base = schedule::kFirstPortBase + static_cast<int32_t>(graph.inputs.size()) + buffer.io_index;
  }
  for (int64_t i = 0; i < region.run.count; ++i) {
    const int64_t begin = offset + (region.run.offset + i * region.run.stride) * 4;
    out.push_back({rtask, base, is_write, begin, begin + region.run.length * 4});
  }
}

std::vector<Touch> touches_as_declared(const RProgram& program) {
  std::vector<Touch> touched;
  for (size_t i = 0; i < program.rkernels.size(); ++i) {
    const RKernel& rkernel = program.rkernels[i];
    for (size_t p = 0; p < rkernel.phases.size(); ++p) {
      for (int64_t t = 0; t < rkernel.phases[p].rtasks; ++t) {
        const RTask rtask{ROperatorId(static_cast<int64_t>(i)), static_cast<int32_t>(p), t};
        Accesses accesses;
        select::family_of(tiny_families(), rkernel).accesses(program.graph, program.graph.rops[i], rkernel, rtask.phase, t, accesses);
        for (const Region& region : accesses.reads) add_touches(program, rtask, region, false, touched);
        for (const Region& region : accesses.writes) add_touches(program, rtask, region, true, touched);
      }
    }
  }
  return touched;
}

std::vector<RProgram> programs() {
  std::vector<RProgram> all;
  for (const NamedGraph& tiny : tiny_graphs()) {
    for (const int64_t veus : {2, 3}) {
      all.push_back(schedule::schedule(tiny.graph, tiny_vdevice(veus), {.policy = schedule::Policy::wavefront}, tiny_families()));
      all.push_back(all.back());
      all.back().launches = schedule::launches_of(all.back());
    }
  }
  return all;
}

}  // namespace

TEST_CASE("touches as declared are no race") {
  for (const RProgram& program : programs()) CHECK(found(program, touches_as_declared(program)).empty());
}

TEST_CASE("a touch that is not declared, and one that is declared and missing, is noticed and named") {
  int reads = 0, writes = 0, missing = 0;
  for (const RProgram& program : programs()) {
    const std::vector<Touch> good = touches_as_declared(program);
    for (size_t i = 0; i < good.size(); ++i) {
      const std::string name = "'" + program.graph.rop(good[i].rtask.rop).name + "'";
      std::vector<Touch> touched = good;
      touched[i].begin = int64_t{1} << 40;  // behind all that there is
      touched[i].end = touched[i].begin + 4;
      const std::vector<std::string> sentences = found(program, touched);
      CHECK(is_about(sentences, name));
      CHECK(is_about(sentences, "which it does not declare"));
      ++(good[i].is_write ? writes : reads);
      if (!good[i].is_write) continue;
      touched[i] = good[i];
      touched[i].end -= 1;  // one byte
      CHECK(is_about(found(program, touched), "which it declares to write"));
      ++missing;
    }
  }
  CHECK((reads > 50 && writes > 50 && missing > 50));
}

TEST_CASE("a rTask that was never seen is noticed") {
  const RProgram program = programs().front();
  std::vector<Touch> touched = touches_as_declared(program);
  const RTask last = touched.back().rtask;
  std::erase_if(touched, [&](const Touch& t) { return t.rtask.rop == last.rop && t.rtask.index == last.index; });
  CHECK(is_about(found(program, touched), "touched no memory at all"));
}

TEST_CASE("without a Wait two rTasks are in no order exactly where the verifier says so") {
  int racing = 0, quiet = 0;
  for (const RProgram& program : programs()) {
    if (program.launches) continue;
    const std::vector<Touch> touched = touches_as_declared(program);
    for (size_t veu = 0; veu < program.lanes.size(); ++veu) {
      for (size_t p = 0; p < program.lanes[veu].size(); ++p) {
        for (size_t w = 0; w < program.lanes[veu][p].waits.size(); ++w) {
          RProgram mutant = program;
          auto& waits = mutant.lanes[veu][p].waits;
          waits.erase(waits.begin() + static_cast<std::ptrdiff_t>(w));
          const bool rejected = !schedule::verify(mutant, 8, tiny_families()).empty();
          const std::vector<std::string> sentences = found(mutant, touched);
          CAPTURE(sentences);
          CHECK(rejected == !sentences.empty());
          if (rejected) CHECK(is_about(sentences, "neither is done before the other begins"));
          ++(rejected ? racing : quiet);
        }
      }
    }
  }
  CHECK(racing > 10);
}

TEST_CASE("without a dependency between launches rTasks of two phases are in no order") {
  int racing = 0;
  for (const RProgram& program : programs()) {
    if (!program.launches) continue;
    const std::vector<Touch> touched = touches_as_declared(program);
    for (size_t n = 0; n < program.launches->size(); ++n) {
      RProgram mutant = program;
      (*mutant.launches)[n].after.clear();
      const bool rejected = !schedule::verify_launches(mutant, 8, tiny_families()).empty();
      CHECK(rejected == !found(mutant, touched).empty());
      racing += rejected;
    }
  }
  CHECK(racing > 10);
}
