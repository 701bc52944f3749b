// The rows of `tamp compare`, and how they are shown.
#include <nlohmann/json.hpp>

#include "compiler/cli/comparison.h"
#include "compiler/cli/papers.h"
#include "compiler/schedule/launches.h"
#include "compiler/schedule/schedule.h"
#include "test/support/catch.h"
#include "test/support/tiny_programs.h"

using namespace tamp;
using namespace tamp::cli;
using namespace tamp::test;
using Catch::Matchers::Contains;

namespace {

// A chain of three, of one rTask each or of several.
RProgram chain(schedule::Policy policy) {
  GraphBuilder builder;
  const TensorId a = builder.tiles("a", {builder.input("x", {12})}, {12});
  builder.output(builder.tiles("c", {builder.tiles("b", {a}, {12})}, {12}));
  return schedule::schedule(builder.take(), tiny_vdevice(4), {.policy = policy}, tiny_families());
}

ComparisonRow row(const std::string& policy, double simulated_us, std::optional<double> measured_us = {}) {
  ComparisonRow made;
  made.policy = policy;
  made.execution = "persistent";
  made.precision = "tf32";
  made.simulated_us = simulated_us;
  made.measured_us = measured_us;
  return made;
}

}  // namespace

TEST_CASE("a row counts launches, edges by kind and the time in which vEUs are busy") {
  RProgram program = chain(schedule::Policy::sequential);
  const ComparisonRow persistent = row_of(program, 0.5);
  CHECK(persistent.policy == "sequential");
  CHECK(persistent.execution == "persistent");
  CHECK(persistent.search_s == 0.5);
  CHECK(persistent.simulated_us == program.estimated_us);
  CHECK(persistent.launches == 1);
  int64_t rtasks = 0, waits = 0;
  for (const auto& lane : program.lanes) {
    for (const Instruction& i : lane) rtasks += i.rtask.rop.valid() ? 1 : 0, waits += static_cast<int64_t>(i.waits.size());
  }
  CHECK(persistent.rtasks == rtasks);
  CHECK(persistent.same_veu_edges + persistent.other_veu_edges == waits);
  CHECK(persistent.kernel_edges == 0);
  CHECK(persistent.busy_share > 0);
  CHECK(persistent.busy_share <= 1);
  CHECK(persistent.arena_bytes == program.memory.arena_bytes);

  program.launches = schedule::launches_of(program);
  const ComparisonRow graph = row_of(program, 0.5);
  CHECK(graph.execution == "graph");
  CHECK(graph.launches == 3);
  CHECK(graph.kernel_edges == 2);
  CHECK(graph.same_veu_edges + graph.other_veu_edges == 0);
}

TEST_CASE("an event that one vEU alone signals and awaits is an edge of its own kind") {
  RProgram program = chain(schedule::Policy::sequential);
  program.lanes.assign(4, {});
  program.events = {{"mine", 1}, {"others", 2}};
  const auto at = [](int64_t rop, std::vector<int64_t> waits, int64_t signal) {
    Instruction instruction;
    instruction.rtask.rop = ROperatorId(rop);
    for (const int64_t id : waits) instruction.waits.emplace_back(id);
    if (signal >= 0) instruction.signal = EventId(signal);
    return instruction;
  };
  program.lanes[0] = {at(0, {}, 0), at(1, {0}, 1)};
  program.lanes[1] = {at(1, {0}, 1), at(2, {1}, -1)};
  const ComparisonRow counted = row_of(program, 0);
  CHECK(counted.same_veu_edges == 1);
  CHECK(counted.other_veu_edges == 2);
}

TEST_CASE("the table compares like with like, and hides no failure") {
  ComparisonRow fp16 = row("wavefront", 40), refused, wrong = row("list", 10);
  fp16.precision = "fp16";
  refused = {.policy = "greedy", .execution = "graph", .precision = "tf32", .failure = "no graph of a gang"};
  wrong.is_wrong = true;
  const std::string text = comparison_text({row("wavefront", 100, 120.0), row("ios", 50, 60.0), fp16, refused, wrong});
  CHECK_THAT(text, Contains("MEASURED US"));
  std::vector<std::string> lines;
  for (size_t at = 0, end; (end = text.find('\n', at)) != std::string::npos; at = end + 1) lines.push_back(text.substr(at, end - at));
  REQUIRE(lines.size() == 7);
  CHECK_THAT(lines[1], Contains("120.0") && Contains("1.00"));
  CHECK_THAT(lines[2], Contains("60.0") && Contains("2.00"));
  CHECK_THAT(lines[3], Contains("fp16") && Contains("1.00"));
  CHECK_THAT(lines[5], Contains("failed"));
  CHECK_THAT(lines[6], Contains("no graph of a gang"));
  CHECK_THAT(comparison_text({row("wavefront", 100)}), !Contains("MEASURED US"));
}

TEST_CASE("JSON and bars say the same") {
  ComparisonRow batched = row("wavefront", 100, 120.0);
  batched.batch = 8;
  ComparisonRow refused = {.policy = "ios", .execution = "graph", .precision = "tf32", .failure = "not for gangs"};
  const nlohmann::json rows = nlohmann::json::parse(comparison_json({batched, row("list", 80), refused}));
  REQUIRE(rows.size() == 3);
  CHECK(rows[0]["measured_us"] == 120.0);
  CHECK(rows[0]["batch"] == 8);
  CHECK_FALSE(rows[1].contains("measured_us"));
  CHECK(rows[2]["failure"] == "not for gangs");
  CHECK_FALSE(rows[2].contains("simulated_us"));
  const std::string svg = comparison_svg("<model> & more", {batched, row("list", 80), refused});
  CHECK_THAT(svg, Contains("&lt;model&gt; &amp; more") && Contains("120.0 us<") && Contains("80.0 us (simulated)") && Contains(">none<"));
}

TEST_CASE("a paper has its networks, rows whose policies exist, and a published time or none for each network") {
  for (const std::string& name : paper_names()) {
    const Paper paper = paper_of(name);
    CHECK(paper.name == name);
    for (const auto& block : paper.blocks) {
      REQUIRE(block.size() >= 4);
      for (const Paper::Row& each : block) {
        CHECK_NOTHROW(schedule::parse_policy(each.policy));
        CHECK_NOTHROW(schedule::parse_execution(each.execution));
      }
    }
    REQUIRE_FALSE(paper.published.empty());
    for (const Paper::Published& published : paper.published) CHECK(published.ms.size() == paper.networks.size());
  }
  CHECK(paper_of("rammer").blocks.size() == 1);  // graph and persistent execution are compared with each other there
  CHECK(paper_of("ios").blocks.size() == 2);
  CHECK_THROWS_WITH(paper_of("bible"), Contains("supported: rammer, ios"));
}
