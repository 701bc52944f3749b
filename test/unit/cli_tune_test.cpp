// `tamp tune` with made-up times: what it measures, and what it makes of the times.
#include <algorithm>
#include <map>
#include <set>

#include "compiler/cli/tune.h"
#include "test/support/onnx_model.h"

using namespace tamp;
using namespace tamp::cli;
using namespace tamp::test;

namespace {

// A chain of convolutions, the second and third alike, and a wave of two.
std::string write_model(const TempFolder& folder) {
  onnx::ModelProto proto;
  proto.set_ir_version(8);
  proto.add_opset_import()->set_version(17);
  onnx::GraphProto& graph = *proto.mutable_graph();
  graph.set_name("g");
  Model::set_type(*graph.add_input(), "x", {1, 3, 20, 20}, onnx::TensorProto::FLOAT);
  const auto conv = [&](const std::string& from, const std::string& to, int64_t in, int64_t out, int64_t kernel) {
    *graph.add_initializer() = tensor("w_" + to, {out, in, kernel, kernel}, Floats(static_cast<size_t>(out * in * kernel * kernel), 0.01F));
    onnx::NodeProto& node = *graph.add_node();
    node.set_op_type("Conv");
    node.set_name(to);
    node.add_input(from);
    node.add_input("w_" + to);
    node.add_output(to);
    *node.add_attribute() = attribute("pads", Ints(4, kernel / 2));
  };
  conv("x", "a", 3, 64, 3);
  conv("a", "b", 64, 64, 3);
  conv("b", "c", 64, 64, 3);
  conv("c", "left", 64, 32, 1);
  conv("c", "right", 64, 96, 3);
  for (const char* name : {"left", "right"})
    Model::set_type(*graph.add_output(), name, {1, name[0] == 'l' ? 32 : 96, 20, 20}, onnx::TensorProto::FLOAT);
  return folder.write(proto);
}

struct Fixture {
  TempFolder folder;
  CompileOptions options;
  Prepared prepared;
  Fixture() {
    options.vdevice = "h200";
    options.precision = "tf32";
    prepared = prepare(write_model(folder), options);
  }
};

// The same for equal rKernels everywhere.
double made_up_us(const RKernel& rkernel) {
  uint64_t hash = 14695981039346656037u;
  for (const char c : select::identity(rkernel)) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211u;
  return 3 + static_cast<double>(hash % 1000) / 250;
}

RopTimes times_of(const RProgram& program) {
  RopTimes times;
  for (const RKernel& rkernel : program.rkernels) times.us.push_back(rkernel.phases.empty() ? -1 : made_up_us(rkernel));
  times.runs = 15;
  return times;
}

std::vector<std::optional<RopTimes>> measure(const std::vector<RProgram>& programs) {
  std::vector<std::optional<RopTimes>> times;
  for (const RProgram& program : programs) times.emplace_back(times_of(program));
  return times;
}

std::vector<std::string> choice_of(const RProgram& program) {
  std::vector<std::string> choice;
  for (const RKernel& rkernel : program.rkernels) choice.push_back(select::identity(rkernel));
  return choice;
}

size_t rop_named(const RProgram& program, const std::string& name) {
  for (size_t i = 0; i < program.graph.rops.size(); ++i) {
    if (program.graph.rops[i].name == name) return i;
  }
  FAIL("no rOperator " << name);
  return 0;
}

}  // namespace

TEST_CASE("a round measures rPrograms that differ, the first of them as the policy would have it") {
  const Fixture f;
  std::vector<std::vector<std::vector<std::string>>> rounds;
  tune(f.prepared, f.options, {3, 4}, [&](const std::vector<RProgram>& programs) {
    rounds.emplace_back();
    for (const RProgram& program : programs) {
      rounds.back().push_back(choice_of(program));
      CHECK(schedule::verify(program).empty());
    }
    return measure(programs);
  });
  REQUIRE(rounds.size() == 3);
  CHECK(rounds[0][0] == choice_of(plan(f.prepared, f.options, nullptr)));
  for (const auto& programs : rounds) {
    CHECK(programs.size() == 4);
    CHECK(std::set(programs.begin(), programs.end()).size() == programs.size());
  }
  // What a later round varies, nobody has measured before.
  for (const char* name : {"a", "b", "left"}) {
    const size_t rop = rop_named(plan(f.prepared, f.options, nullptr), name);
    std::set<std::string> tried;
    size_t varied = 0;
    for (const auto& programs : rounds) {
      for (size_t i = 1; i < 4; ++i) {
        if (programs[i][rop] == programs[0][rop]) continue;
        CHECK_FALSE(tried.contains(programs[i][rop]));
        ++varied;
      }
      for (size_t i = 0; i < 4; ++i) tried.insert(programs[i][rop]);
    }
    CHECK(varied >= 3);
  }
}

TEST_CASE("two tunes of equal measurements write the same file") {
  const Fixture f;
  const std::string first = tune(f.prepared, f.options, {2, 5}, measure).text();
  CHECK_FALSE(first.empty());
  CHECK(tune(f.prepared, f.options, {2, 5}, measure).text() == first);
  CHECK(tune(Fixture().prepared, f.options, {2, 5}, measure).text() == first);
  CHECK(select::parse_records(first, "first").text() == first);
}

TEST_CASE("what was measured fastest is what is compiled with the records") {
  const Fixture f;
  std::map<std::string, std::string> fastest;  // by rOperator
  const select::Records records = tune(f.prepared, f.options, {1, 6}, [&](const std::vector<RProgram>& programs) {
    // All are equal but one of each rOperator, which the model thinks less of.
    std::vector<std::optional<RopTimes>> times;
    for (size_t p = 0; p < programs.size(); ++p) {
      times.emplace_back(RopTimes{std::vector<double>(programs[p].rkernels.size(), p == 3 ? 2.9 : 8), 15});
      for (size_t i = 0; p == 3 && i < programs[p].rkernels.size(); ++i)
        fastest[programs[p].graph.rops[i].name] = select::identity(programs[p].rkernels[i]);
    }
    return times;
  });
  const RProgram by_model = plan(f.prepared, f.options, nullptr), by_records = plan(f.prepared, f.options, &records);
  for (const char* name : {"b", "c"}) {
    const size_t i = rop_named(by_records, name);
    CHECK(select::identity(by_records.rkernels[i]) == fastest.at(name));
    CHECK(by_records.rkernels[i].measured);
    CHECK(select::identity(by_model.rkernels[i]) != fastest.at(name));
    CHECK_FALSE(by_model.rkernels[i].measured);
  }
  CHECK(choice_of(plan(f.prepared, f.options, &records)) == choice_of(by_records));
}

TEST_CASE("rOperators that are alike share a record, and one beside others says so") {
  const Fixture f;
  const select::Records records = tune(f.prepared, f.options, {1, 1}, measure);
  const RProgram program = plan(f.prepared, f.options, nullptr);
  CHECK(records.times().size() == 4);
  const auto key = [&](const char* name) {
    const std::string signature = select::signature(program.graph, program.graph.rops[rop_named(program, name)]);
    for (const auto& [record, time] : records.times()) {
      if (record.rop == signature) return record;
    }
    FAIL("no record of " << name);
    return select::RecordKey{};
  };
  CHECK(key("b") == key("c"));
  CHECK(key("a").rop != key("b").rop);
  CHECK(key("b").beside == 0);
  CHECK(key("left").beside > 0);
  CHECK(key("right").beside > 0);
  CHECK(key("b").veus >= 1);
}

TEST_CASE("a variant that does not count leaves no record and is not tried again") {
  const Fixture f;
  size_t calls = 0;
  std::set<std::string> lost;
  const select::Records records = tune(f.prepared, f.options, {2, 4}, [&](const std::vector<RProgram>& programs) {
    auto times = measure(programs);
    const size_t b = rop_named(programs[0], "b");
    if (calls++ == 0) {
      times[2].reset();
      lost.insert(select::identity(programs[2].rkernels[b]));
    } else {
      for (size_t i = 1; i < programs.size(); ++i) CHECK_FALSE(lost.contains(select::identity(programs[i].rkernels[b])));
    }
    return times;
  });
  for (const auto& [key, time] : records.times()) CHECK_FALSE(lost.contains(key.family + " " + key.rkernel + " " + key.config));
}

TEST_CASE("the faster whole is kept, with the records that made it faster") {
  const Fixture f;
  const select::Records records = tune(f.prepared, f.options, {2, 6}, measure);
  const std::vector<std::string> untuned = choice_of(plan(f.prepared, f.options, nullptr));
  const RProgram tuned = plan(f.prepared, f.options, &records);
  REQUIRE(choice_of(tuned) != untuned);

  const auto constant = [&](double of_untuned, double of_others) {
    return settle(f.prepared, f.options, records, [&](const std::vector<RProgram>& programs) {
      std::vector<std::optional<double>> us;
      for (const RProgram& program : programs) us.emplace_back(choice_of(program) == untuned ? of_untuned : of_others);
      return us;
    });
  };
  CHECK(constant(100, 90).tuned_is_faster);
  CHECK(constant(100, 90).records.text() == records.text());
  CHECK_FALSE(constant(100, 110).tuned_is_faster);

  // The whole is slow as long as `b` and `c` are not what the model takes, and faster with any other change.
  const size_t b = rop_named(tuned, "b");
  REQUIRE(choice_of(tuned)[b] != untuned[b]);
  const Settled settled = settle(f.prepared, f.options, records, [&](const std::vector<RProgram>& programs) {
    std::vector<std::optional<double>> us;
    for (const RProgram& program : programs)
      us.emplace_back(choice_of(program) == untuned ? 100 : choice_of(program)[b] == untuned[b] ? 80 : 120);
    return us;
  });
  CHECK(settled.tuned_is_faster);
  CHECK(settled.tuned_us == 80);
  CHECK(choice_of(settled.tuned)[b] == untuned[b]);
  CHECK(choice_of(settled.tuned) != untuned);
  CHECK(choice_of(settled.tuned) == choice_of(plan(f.prepared, f.options, &settled.records)));
  CHECK(settled.records.size() < records.size());

  const auto nothing_works = [](const std::vector<RProgram>& programs) { return std::vector<std::optional<double>>(programs.size()); };
  CHECK_THROWS_AS(settle(f.prepared, f.options, records, nothing_works), Error);
}

TEST_CASE("no two candidates of a rOperator share an identity") {
  for (const char* precision : {"fp32", "tf32", "fp16"}) {
    Fixture f;
    f.options.precision = precision;
    f.prepared = prepare(write_model(f.folder), f.options);
    for (const ROperator& rop : f.prepared.graph.rops) {
      std::set<std::string> seen;
      for (const RKernel& rkernel : kernels::candidates({f.prepared.graph, rop, f.prepared.vdevice, f.prepared.setting.precision}))
        CHECK(seen.insert(select::identity(rkernel)).second);
    }
  }
}
