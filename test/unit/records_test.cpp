// Records of measurements: their file, and what they change about the choice of rKernels.
#include "compiler/select/records.h"

#include <functional>
#include <set>

#include "compiler/schedule/schedule.h"
#include "compiler/support/error.h"
#include "test/support/catch.h"
#include "test/support/thrown.h"
#include "test/support/tiny_programs.h"

using namespace tamp;
using namespace tamp::test;
using select::Records;

namespace {

// One rOperator "a" of five candidates, tiles<1> to tiles<6>; the model takes tiles<4> of 4 vEUs.
Graph one_rop(int64_t elements = 12) {
  GraphBuilder b;
  b.output(b.tiles("a", {b.input("x", {elements})}, {elements}));
  return b.take();
}

select::RecordKey key_of(const Graph& graph, int64_t tiles, int64_t beside = 0) {
  select::RecordKey key;
  key.vdevice = tiny_vdevice(4).name;
  key.precision = "fp32";
  key.execution = "persistent";
  key.rop = select::signature(graph, graph.rops[0]);
  key.family = "tiles";
  key.rkernel = "tiles<" + std::to_string(tiles) + ">";
  key.config = "tiles=" + std::to_string(tiles);
  key.veus = std::min<int64_t>(tiles, 4);
  key.beside = beside;
  return key;
}

RProgram schedule_with(const Graph& graph, const Records& records, int64_t veus = 4,
                       schedule::Policy policy = schedule::Policy::wavefront) {
  return schedule::schedule(graph, tiny_vdevice(veus), {policy, Precision::fp32, &records, nullptr}, tiny_families());
}

const std::string kLine =
    R"({"vdevice":"h200","precision":"tf32","execution":"persistent","rop":"R","family":"f","rkernel":"k","config":"c=1","veus":3,"beside":0,"weights_in_l2":true,"us":4.25,"runs":15})";

std::string with(const std::string& from, const std::string& to) {
  std::string line = kLine;
  line.replace(line.find(from), from.size(), to);
  return line;
}

}  // namespace

TEST_CASE("a record changes the choice, whatever the policy") {
  const Graph graph = one_rop();
  for (const auto policy : {schedule::Policy::wavefront, schedule::Policy::sequential}) {
    const RProgram by_model = schedule_with(graph, {}, 4, policy);
    CHECK(by_model.rkernels[0].name == "tiles<4>");
    CHECK_FALSE(by_model.rkernels[0].measured);
    Records records;
    records.add(key_of(graph, 4), {9, 10});
    records.add(key_of(graph, 2), {5, 10});
    const RProgram by_record = schedule_with(graph, records, 4, policy);
    CHECK(by_record.rkernels[0].name == "tiles<2>");
    CHECK(by_record.rkernels[0].measured);
    CHECK(schedule::verify(by_record, 8, tiny_families()).empty());
  }
}

TEST_CASE("the corrected model says what was measured, and the estimate of the whole hears of it") {
  const Graph graph = one_rop();
  const ShapedVDevice d = tiny_vdevice(4);
  const select::Machine machine = select::machine_for(graph, d, Precision::fp32);
  for (const double us : {2.5, 5.0, 37.0, 400.0}) {
    Records records;
    records.add(key_of(graph, 3), {us, 1});
    auto candidates = select::candidates(tiny_families(), {graph, graph.rops[0], d, Precision::fp32});
    records.correct(candidates, graph, graph.rops[0], machine, /*alone=*/true);
    REQUIRE(candidates[2].name == "tiles<3>");
    CHECK(select::completion_us(candidates[2], machine, 4, 1) == Approx(us).epsilon(1e-4));
  }
  Records slow;
  for (const int64_t tiles : {1, 2, 3, 4, 6}) slow.add(key_of(graph, tiles), {1000, 1});
  CHECK(schedule_with(graph, slow).estimated_us > 900);
}

TEST_CASE("who was not measured is corrected as his family was, and a guess needs to be better than a measurement") {
  const Graph graph = one_rop();
  Records bad_news;  // all that is known: tiles<4> takes ten times what the model thinks, so the others will, too
  bad_news.add(key_of(graph, 4), {50, 10});
  CHECK(schedule_with(graph, bad_news).rkernels[0].name == "tiles<4>");
  Records one_is_bad = bad_news;
  one_is_bad.add(key_of(graph, 3), {6, 10});
  CHECK(schedule_with(graph, one_is_bad).rkernels[0].name == "tiles<3>");
}

TEST_CASE("records of other shapes, devices, precisions, executions and sources of weights change nothing") {
  const Graph graph = one_rop();
  const auto choice = [&](const std::function<void(select::RecordKey&)>& change) {
    select::RecordKey fast = key_of(graph, 1), slow = key_of(graph, 4);
    change(fast), change(slow);
    Records records;
    records.add(fast, {0.5, 10});
    records.add(slow, {500, 10});
    const RProgram program = schedule_with(graph, records);
    if (program.rkernels[0].name == "tiles<4>") CHECK(program.rkernels[0].phases[0].cost.correction == 0);
    return program.rkernels[0].name;
  };
  CHECK(choice([](auto&) {}) == "tiles<1>");
  CHECK(choice([](auto& key) { key.vdevice = "other"; }) == "tiles<4>");
  CHECK(choice([](auto& key) { key.precision = "tf32"; }) == "tiles<4>");
  CHECK(choice([](auto& key) { key.execution = "graph"; }) == "tiles<4>");
  CHECK(choice([](auto& key) { key.weights_in_l2 = false; }) == "tiles<4>");
  CHECK(choice([](auto& key) { key.family = "split"; }) == "tiles<4>");
  CHECK(choice([](auto& key) { key.config = "tiles=9"; }) == "tiles<4>");
  CHECK(choice([](auto& key) { key.rop = select::signature(one_rop(13), one_rop(13).rops[0]); }) == "tiles<4>");
}

TEST_CASE("what was measured beside others does not decide for one that is alone") {
  const Graph graph = one_rop();
  Records records;
  records.add(key_of(graph, 4, 0), {5, 1});
  records.add(key_of(graph, 3, 0), {8, 1});
  records.add(key_of(graph, 4, 3), {500, 100});
  records.add(key_of(graph, 3, 3), {2, 100});
  CHECK(schedule_with(graph, records).rkernels[0].name == "tiles<4>");

  GraphBuilder b;
  const TensorId x = b.input("x", {12});
  b.output(b.tiles("left", {x}, {12}));
  b.output(b.tiles("right", {x}, {12}));
  const Graph two = b.take();
  REQUIRE(select::signature(two, two.rops[1]) == key_of(graph, 3).rop);
  for (const RKernel& rkernel : schedule_with(two, records, 16).rkernels) CHECK(rkernel.name == "tiles<3>");
}

TEST_CASE("a signature holds what decides the time, and no names") {
  const Graph graph = one_rop();
  Graph renamed = graph;
  renamed.rops[0].name = "b";
  renamed.tensors[0].name = "y";
  CHECK(select::signature(renamed, renamed.rops[0]) == select::signature(graph, graph.rops[0]));
  std::set<std::string> seen = {select::signature(graph, graph.rops[0])};
  const auto differs = [&](const std::function<void(Graph&)>& change) {
    Graph other = graph;
    change(other);
    return seen.insert(select::signature(other, other.rops[0])).second;
  };
  CHECK(differs([](Graph& g) { g.tensors[0].shape = {13}; }));
  CHECK(differs([](Graph& g) { g.tensors[0].dtype = DType::i32; }));
  CHECK(differs([](Graph& g) { g.tensors[0].role = Role::constant; }));
  CHECK(differs([](Graph& g) { g.rops[0].epilogue.activation = Activation::relu; }));
  CHECK(differs([](Graph& g) { g.rops[0].epilogue.bias = TensorId(0); }));
  CHECK(differs([](Graph& g) { g.rops[0].epilogue.residual = TensorId(0); }));
  CHECK(differs([](Graph& g) { g.rops[0].attrs = Conv{{1}, {1}, {1}, {0}, {0}}; }));
  CHECK(differs([](Graph& g) { g.rops[0].attrs = Conv{{1}, {2}, {1}, {0}, {0}}; }));
}

TEST_CASE("a file of records is read back unchanged, and two files behind each other are one") {
  Records records;
  records.add(key_of(one_rop(), 4), {5.125, 15});
  records.add(key_of(one_rop(), 2, 3), {0.002, 1});
  records.add(key_of(one_rop(13), 2), {123456.789, 30});
  const std::string text = records.text();
  CHECK(select::parse_records(text, "a").text() == text);
  CHECK(std::count(text.begin(), text.end(), '\n') == 3);

  Records again;
  again.add(key_of(one_rop(), 4), {8.125, 45});
  const Records joined = select::parse_records(text + "\n" + again.text(), "a");
  CHECK(joined.size() == 3);
  CHECK(joined.times().at(key_of(one_rop(), 4)).us == Approx((5.125 * 15 + 8.125 * 45) / 60));
  CHECK(joined.times().at(key_of(one_rop(), 4)).runs == 60);

  Records replaced = records;
  replaced.replace(again);
  CHECK(replaced.times().at(key_of(one_rop(), 4)).us == 8.125);
  CHECK(replaced.size() == 3);
  CHECK(records.only({key_of(one_rop(), 4).rop}).size() == 2);
  CHECK(records.mean_us(key_of(one_rop(), 4).rop, "tiles tiles<4> tiles=4") == 5.125);
  CHECK_FALSE(records.mean_us(key_of(one_rop(), 4).rop, "tiles tiles<6> tiles=6"));
  CHECK(select::parse_records("", "empty").empty());
}

TEST_CASE("a record does not depend on the stages of the program that it comes from") {
  RKernel rkernel;
  rkernel.family = "f";
  rkernel.name = "k";
  rkernel.config = {{"shape", 4}, {"boxes_per_chunk", 3}, {"chunk_steps", 4}, {"splits", 1}};
  const std::string identity = select::identity(rkernel);
  CHECK(identity == "f k shape=4 splits=1");
  rkernel.config = {{"shape", 4}, {"boxes_per_chunk", 2}, {"chunk_steps", 2}, {"splits", 1}, {"stage_steps", 2}};
  CHECK(select::identity(rkernel) == identity);
}

TEST_CASE("a malformed or foreign file of records is refused by file and line") {
  struct Row {
    std::string line, says;
  };
  const Row rows[] = {
      {"# a comment", "is not a JSON object"},
      {kLine.substr(0, 60), "is not a JSON object"},
      {"[]", "is not a JSON object"},
      {"{}", "field 'vdevice' is missing"},
      {R"({"name":"h200","arch":"sm_90"})", "field 'vdevice' is missing"},
      {with(R"("us":4.25,)", ""), "field 'us' is missing"},
      {with("4.25", "\"fast\""), "field 'us' is not a number"},
      {with("4.25", "0"), "field 'us' is out of range"},
      {with("4.25", "-1"), "field 'us' is out of range"},
      {with("4.25", "1e300"), "field 'us' is out of range"},
      {with(":15", ":0"), "field 'runs' is out of range"},
      {with(":15", ":1.5"), "field 'runs' is not a whole number"},
      {with(":15", ":18446744073709551615"), "field 'runs' is out of range"},
      {with("\"veus\":3", "\"veus\":0"), "field 'veus' is out of range"},
      {with("true", "1"), "field 'weights_in_l2' is not true or false"},
      {with("\"R\"", "7"), "field 'rop' is not a string"},
      {with(":15", ":15,\"more\":1"), "has 13 fields, a record has 12"},
  };
  for (const Row& row : rows) {
    const std::string message = message_of([&] { select::parse_records(kLine + "\n" + row.line + "\n", "some.jsonl"); });
    INFO(row.line);
    CHECK(message.find("some.jsonl:2: " + row.says) != std::string::npos);
    CHECK(message.find('\n') == std::string::npos);
  }
  CHECK(select::parse_records(kLine, "good").size() == 1);
}

TEST_CASE("the records in this program can be read") { CHECK_NOTHROW(select::builtin_records()); }
