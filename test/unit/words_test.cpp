// Values that are their own flags (docs/adr/0030): which buffers have words, where these lie, what the verifier refuses, and what rTasks
// are seen to touch.
#include "compiler/schedule/words.h"

#include <algorithm>
#include <array>
#include <functional>

#include "compiler/passes/place/assign_layout.h"
#include "compiler/schedule/races.h"
#include "compiler/schedule/schedule.h"
#include "compiler/support/text.h"
#include "kernels/attention/numbers.cuh"
#include "test/support/catch.h"
#include "test/support/check_pass.h"
#include "test/support/tiny_programs.h"

using namespace tamp;
using namespace tamp::test;

namespace {

using Execution = schedule::Execution;

// Three products of one row, the last of which adds what the first made; a Softmax, which knows no words; and one more product.
const std::string kChain = R"(
  x = input f32[1,256]
  w = const f32[256,512]
  v = const f32[512,256]
  a = MatMul(x, w) -> f32[1,512]
  b = MatMul(a, v) -> f32[1,256]
  c = MatMul(b, w) epilogue{residual=a} -> f32[1,512]
  s = Softmax(c) {axes=[1,1]} -> f32[1,512]
  d = MatMul(s, v) -> f32[1,256]
  outputs(d)
)";

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  REQUIRE(text.find(from) != std::string::npos);
  for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size()) text.replace(at, from.size(), to);
  return text;
}

std::string verdict(const RProgram& program) {
  const std::vector<std::string> violations = schedule::verify(program);
  return violations.empty() ? "" : violations[0];
}

RProgram scheduled(const std::string& text, Execution execution = Execution::persistent) {
  schedule::ScheduleOptions options;
  options.precision = Precision::fp16;
  options.execution = execution;
  options.gangs = execution == Execution::persistent;
  RProgram program = schedule::schedule(passes::assign_layout(parse_graph(text)), read_vdevice("h200").with_inputs(), options);
  CHECK(verdict(program) == "");
  return program;
}

BufferId buffer_of(const RProgram& program, const std::string& tensor) { return tensor_named(program.graph, tensor).place.buffer; }

const Phase& maker_of(const RProgram& program, const std::string& tensor) {
  for (size_t i = 0; i < program.graph.rops.size(); ++i) {
    if (program.graph.tensor(program.graph.rops[i].outputs[0]).name == tensor) return program.rkernels[i].phases.back();
  }
  FAIL("nobody makes '" + tensor + "'");
  return program.rkernels[0].phases[0];
}

// The tensors among `names` whose buffers have words.
std::string in_words(const RProgram& program, const std::string& names) {
  std::string found;
  for (const char name : names) {
    if (program.memory.words_offset[buffer_of(program, std::string(1, name)).index()] >= 0) found += name;
  }
  return found;
}

// What the rTasks of the first rOperator write, all of it f32 and in words.
std::vector<schedule::Touch> writes_of_first(const RProgram& program, BufferId buffer) {
  std::vector<schedule::Touch> touched;
  const int64_t words = program.memory.words_offset[buffer.index()];
  for (int64_t t = 0; t < program.rkernels[0].rtasks(); ++t) {
    Accesses accesses;
    select::family_of(kernels::families(), program.rkernels[0])
        .accesses(program.graph, program.graph.rops[0], program.rkernels[0], 0, t, accesses);
    const Run run = accesses.writes.at(0).run;
    for (const int64_t at : {program.memory.buffer_offset[buffer.index()], words, words + program.memory.words_bytes}) {
      const int64_t begin = at + run.offset * 4;
      touched.push_back({{ROperatorId(0), 0, t}, schedule::kArenaBase, true, begin, begin + run.length * 4});
    }
  }
  return touched;
}

}  // namespace

TEST_CASE("what one product makes and another one awaits is in words") {
  const RProgram program = scheduled(kChain);
  CHECK(in_words(program, "xabcsd") == "ab");
  const Phase &a = maker_of(program, "a"), &c = maker_of(program, "c");
  CHECK((schedule::publishes_words(a, buffer_of(program, "a")) && !schedule::awaits_words(a, buffer_of(program, "x"))));
  CHECK((schedule::awaits_words(c, buffer_of(program, "a")) && schedule::awaits_words(c, buffer_of(program, "b"))));
  CHECK_FALSE(schedule::publishes_words(c, buffer_of(program, "c")));
  const std::pair<std::string, std::string> argument = {"WORDS", std::to_string(c.words)};
  CHECK(std::count(c.template_args.begin(), c.template_args.end(), argument) == 1);
}

TEST_CASE("words are for those who can await them, beside others who cannot, and also of outputs") {
  const auto of = [](const std::string& reader, const std::string& outputs) {
    const RProgram program = scheduled(replaced(kChain, "outputs(d)", "r = " + reader + "\n  outputs(" + outputs + ")"));
    return in_words(program, "abc");
  };
  CHECK(of("Softmax(a) {axes=[1,1]} -> f32[1,512]", "d, r") == "ab");
  CHECK(of("Softmax(d) {axes=[1,1]} -> f32[1,256]", "d, r") == "ab");
  CHECK(of("MatMul(c, v) -> f32[1,256]", "d, r") == "abc");
  CHECK(of("MatMul(c, v) -> f32[1,256]", "b, r, c") == "abc");  // without s and d
}

TEST_CASE("large buffers, many rows and graph execution have no words") {
  const auto large = [](int64_t columns) {
    const RProgram program = scheduled(replaced(replaced(kChain, "512", std::to_string(columns)), "256", "16"));
    CHECK(maker_of(program, "c").may_await.size() == 2);
    return in_words(program, "abcsd");
  };
  CHECK(large(schedule::kMostWords) == "a");
  CHECK(large(schedule::kMostWords + 4).empty());
  CHECK(in_words(scheduled(replaced(kChain, "f32[1,", "f32[9,")), "abcsd").empty());
  const RProgram graph = scheduled(kChain, Execution::graph);
  CHECK((in_words(graph, "abcsd").empty() && graph.memory.words_bytes == 0 && schedule::buffers_in_words(graph).empty()));
}

TEST_CASE("attention takes query, key and value in words, or none of them") {
  const auto bits = [](const std::string& text) {
    const RProgram program = scheduled(text);
    return std::pair(maker_of(program, "y").words & rk::kStepInWords, in_words(program, "y"));
  };
  CHECK(bits(kTinyStep) == std::pair(rk::kStepInWords, std::string("y")));
  const auto none = std::pair(0U, std::string("y"));
  CHECK(bits(replaced(kTinyStep, "k = MatMul(x, w) {alpha=2}", "k = Softmax(x) {axes=[2,2]}")) == none);
  CHECK(bits(replaced(replaced(kTinyStep, "pv = input", "pw = input"),
                      "  w =", "  pv = Softmax(pw) {axes=[2,2]} -> f32[1,40,64]\n  w =")) == none);
}

TEST_CASE("words and buffers with words share memory with nothing") {
  for (const std::string& text : {kChain, kTinyStep}) {
    const RProgram program = scheduled(text);
    const MemoryPlan& memory = program.memory;
    std::vector<std::array<int64_t, 3>> parts;  // begin, end, whether alone
    for (size_t b = 0; b < program.graph.buffers.size(); ++b) {
      const int64_t at = memory.buffer_offset[b], words = memory.words_offset[b], bytes = program.graph.buffers[b].elements * 4;
      if (at >= 0) parts.push_back({at, at + bytes, words >= 0});
      if (words >= 0) parts.push_back({words, words + bytes, 1});
      if (words >= 0) parts.push_back({words + memory.words_bytes, words + memory.words_bytes + bytes, 1});
    }
    for (size_t i = 0; i < parts.size(); ++i) {
      CHECK((parts[i][0] >= 0 && parts[i][1] <= memory.arena_bytes));
      for (size_t j = 0; j < i; ++j)
        CHECK(((parts[i][2] == 0 && parts[j][2] == 0) || parts[i][1] <= parts[j][0] || parts[j][1] <= parts[i][0]));
    }
  }
}

TEST_CASE("the verifier refuses words without a place, at a place of others, or that somebody does not publish") {
  const RProgram good = scheduled(kChain);
  const size_t a = buffer_of(good, "a").index(), b = buffer_of(good, "b").index(), c = buffer_of(good, "c").index(),
               s = buffer_of(good, "s").index();
  const auto damaged = [&](const std::function<void(MemoryPlan&)>& damage) {
    RProgram program = good;
    damage(program.memory);
    return verdict(program);
  };
  const std::string of_a = "words of buffer " + std::to_string(a), shares = "shares arena memory with ";
  CHECK_THAT(damaged([&](MemoryPlan& m) { m.words_offset[a] = -1; }), Catch::Contains(of_a + " have no place"));
  CHECK_THAT(damaged([&](MemoryPlan& m) { m.words_offset[a] = m.buffer_offset[c]; }), Catch::Contains(of_a) && Catch::Contains(shares));
  CHECK_THAT(damaged([&](MemoryPlan& m) { m.words_offset[a] = m.words_offset[b]; }), Catch::Contains(of_a) && Catch::Contains(shares));
  CHECK_THAT(damaged([&](MemoryPlan& m) { m.words_offset[a] = m.arena_bytes; }), Catch::Contains("ends at byte"));
  CHECK_THAT(damaged([&](MemoryPlan& m) { m.words_bytes = 0; }), Catch::Contains(shares + "the second copy of the " + of_a));
  CHECK_THAT(damaged([&](MemoryPlan& m) { m.words_bytes = m.buffer_offset[a] - m.words_offset[a]; }),
             Catch::Contains("the second copy of the words") && Catch::Contains(shares));
  // Nobody reads b any more when s is written, so other buffers may lie so.
  CHECK_THAT(damaged([&](MemoryPlan& m) { m.buffer_offset[b] = m.buffer_offset[s]; }), Catch::Contains(shares));
  CHECK(damaged([&](MemoryPlan& m) { m.words_offset.pop_back(); }) != "");

  RProgram program = good;
  for (RKernel& rkernel : program.rkernels) {
    Phase& phase = rkernel.phases[0];
    if (schedule::publishes_words(phase, buffer_of(good, "a"))) phase.words &= ~(1U << phase.may_publish[0].bit);
  }
  CHECK_THAT(verdict(program), Catch::Contains("writes buffer " + std::to_string(a) + " and does not publish its words"));
}

TEST_CASE("both copies of words are among the declared accesses") {
  const RProgram program = scheduled(kChain);
  const BufferId a = buffer_of(program, "a");
  const int64_t at = program.memory.words_offset[a.index()];
  const std::vector<schedule::Touch> good = writes_of_first(program, a);
  const auto found = [&](const std::vector<schedule::Touch>& touched) { return join(schedule::races(program, touched, 10000), "\n"); };
  const auto word = Catch::Contains("word 0 of buffer " + std::to_string(a.value));
  CHECK_THAT(found(good), !Catch::Contains("declare"));  // the other rTasks touched nothing at all
  CHECK(schedule::exchange_bytes(program).size() == 4);
  for (const int64_t begin : {at, at + program.memory.words_bytes}) {
    std::vector<schedule::Touch> touched = good;
    REQUIRE(std::erase_if(touched, [&](const schedule::Touch& t) { return t.begin == begin; }) == 1);
    CHECK_THAT(found(touched), word && Catch::Contains("which it declares to write"));
    touched = good;
    touched.back().begin = begin, touched.back().end = begin + 4;  // by the last rTask
    CHECK_THAT(found(touched), word && Catch::Contains("which it does not declare"));
  }
}

TEST_CASE("a constant where words could be is among the weights") {
  const RProgram program =
      scheduled(replaced(replaced(kChain, "residual=a", "residual=r"), "  a = MatMul", "  r = const f32[1,512]\n  a = MatMul"));
  const auto is_r = [&](const WeightBlob& blob) { return blob.constant.valid() && program.graph.tensor(blob.constant).name == "r"; };
  CHECK(std::count_if(program.weights.begin(), program.weights.end(), is_r) == 1);
}
