// What the frontend makes of Loop, Scan and If that it can unroll, and what it refuses.
#include <algorithm>

#include "compiler/ir/loops.h"
#include "compiler/ops/ops.h"
#include "test/support/catch.h"
#include "test/support/onnx_model.h"

namespace tamp {
namespace {

using namespace test;

constexpr int kBool = onnx::TensorProto::BOOL;

// y = x + (the step's number as a float) at every step; scan output: the new value.
Model adding_body() {
  Model body;
  body.input("i", {}, onnx::TensorProto::INT64).input("cond", {}, kBool).input("h", {2});
  body.node("Cast", {"i"}, {"f"}, {attribute("to", 1)}).node("Add", {"h", "f"}, {"next"}).node("Identity", {"next"}, {"each"});
  body.node("Identity", {"cond"}, {"go_on"});
  return body.output("go_on").output("next").output("each");
}

Model loop_of(const Model& body, int64_t trips, const std::vector<std::string>& outputs = {"y", "all"}) {
  Model model;
  model.input("x", {2}).constant(scalar("M", trips)).constant(scalar("yes", 1, kBool));
  model.node("Loop", {"M", "yes", "x"}, outputs, {attribute("body", body.proto.graph())}, "l");
  for (const std::string& name : outputs) model.output(name);
  return model;
}

std::vector<Floats> run(const Model& model, const Floats& x) {
  const Graph graph = model.read();
  return floats_of_all(ops::run(graph, {value(graph.tensor(graph.inputs[0]).shape, x)}));
}

}  // namespace

TEST_CASE("a Loop is written out") {
  const Model model = loop_of(adding_body(), 3);
  CHECK(run(model, {1, 2}) == std::vector<Floats>{{4, 5}, {1, 2, 2, 3, 4, 5}});
  const Graph graph = model.read();
  CHECK(graph.rops[0].name == "l/Add#1.0");
  CHECK(graph.rops[1].name == "l/Add#1.1");
  CHECK(graph.rops[1].origin == std::vector<std::string>{"l/Add#1"});
  CHECK(run(loop_of(adding_body(), 0, {"y"}), {1, 2}) == std::vector<Floats>{{1, 2}});
}

TEST_CASE("a Loop ends where its condition says so") {
  Model body;
  body.input("i", {}, onnx::TensorProto::INT64).input("cond", {}, kBool).input("h", {2});
  body.constant(scalar("last", 2)).node("Less", {"i", "last"}, {"go_on"}).node("Add", {"h", "h"}, {"next"});
  body.output("go_on").output("next");
  CHECK(run(loop_of(body, 100, {"y"}), {1, 2}) == std::vector<Floats>{{8, 16}});
  Model unconditional = loop_of(body, 4, {"y"});  // then the body's condition does not count
  *unconditional.proto.mutable_graph()->mutable_node(0)->mutable_input(1) = "";
  CHECK(run(unconditional, {1, 2}) == std::vector<Floats>{{16, 32}});
}

TEST_CASE("bodies read the names around them, their own first") {
  Model inner;  // reads x of the model, s of the outer body, and a w of its own
  inner.input("j", {}, onnx::TensorProto::INT64).input("c", {}, kBool).input("p", {2}).constant(tensor("w", {}, {10}));
  inner.node("Mul", {"s", "w"}, {"q"}).node("Add", {"q", "x"}, {"r"}).node("Add", {"r", "p"}, {"next"}).node("Identity", {"c"}, {"d"});
  inner.output("d").output("next");
  Model outer;
  outer.input("i", {}, onnx::TensorProto::INT64).input("cond", {}, kBool).input("h", {2});
  outer.node("Loop", {"two", "cond", "h"}, {"next"}, {attribute("body", inner.proto.graph())});  // before s, which it needs
  outer.node("Add", {"h", "w"}, {"s"}).node("Identity", {"cond"}, {"go_on"});
  outer.output("go_on").output("next");
  Model model = loop_of(outer, 1, {"y"});
  model.constant(tensor("w", {}, {1})).constant(scalar("two", 2));
  CHECK(run(model, {1, 2}) == std::vector<Floats>{{1 + 2 * (20 + 1), 2 + 2 * (30 + 2)}});
}

TEST_CASE("a Scan takes its steps along any axis and in any direction") {
  Model body;
  body.input("s", {2}).input("e", {2});
  body.node("Add", {"s", "e"}, {"next"}).node("Identity", {"next"}, {"each"}).output("next").output("each");
  const auto scan = [&](const Shape& shape, Attributes attributes, int64_t opset = 17) {
    Model model(opset);
    model.input("x", shape).constant(tensor("zero", {2}, {0, 0}));
    attributes.push_back(attribute("num_scan_inputs", 1));
    attributes.push_back(attribute("body", body.proto.graph()));
    return model.node("Scan", {"zero", "x"}, {"y", "all"}, attributes, "s").output("y").output("all");
  };
  CHECK(run(scan({3, 2}, {}), {1, 2, 3, 4, 5, 6}) == std::vector<Floats>{{9, 12}, {1, 2, 4, 6, 9, 12}});
  CHECK(run(scan({2, 3}, {attribute("scan_input_axes", Ints{-1})}), {1, 3, 5, 2, 4, 6}) ==
        std::vector<Floats>{{9, 12}, {1, 2, 4, 6, 9, 12}});
  CHECK(run(scan({3, 2}, {attribute("scan_input_directions", Ints{1})}, 9), {1, 2, 3, 4, 5, 6}) ==
        std::vector<Floats>{{9, 12}, {5, 6, 8, 10, 9, 12}});
  CHECK(run(scan({3, 2}, {attribute("scan_output_directions", Ints{1})}), {1, 2, 3, 4, 5, 6}) ==
        std::vector<Floats>{{9, 12}, {9, 12, 4, 6, 1, 2}});
  CHECK(run(scan({3, 2}, {attribute("scan_output_axes", Ints{1})}), {1, 2, 3, 4, 5, 6}) ==
        std::vector<Floats>{{9, 12}, {1, 4, 9, 2, 6, 12}});
  CHECK_THAT(refusal(scan({3, 2}, {attribute("scan_input_axes", Ints{2})})), Catch::Contains("expected -2 to 1"));
  CHECK_THAT(refusal(scan({3, 2}, {attribute("scan_output_directions", Ints{2})})), Catch::Contains("has the value 2, expected 0 or 1"));
  CHECK_THAT(refusal(scan({3, 2}, {attribute("scan_output_axes", Ints{0, 0})})), Catch::Contains("has 2 values, expected 1"));
  CHECK_THAT(refusal(scan({3, 2}, {}, 8)), Catch::Contains("2: m.onnx: node #0 's' (Scan, opset 8): Scan of opset 8"));
  CHECK(run(scan({0, 2}, {}), {}) == std::vector<Floats>{{0, 0}, {}});
}

TEST_CASE("an If becomes the branch that is taken, and the other is not looked at") {
  Model taken, other;
  taken.node("Add", {"x", "x"}, {"t"}).output("t");
  other.node("Frobnicate", {"x"}, {"t"}).output("t");
  const auto choice = [&](bool yes, bool on_taken) {
    Model model;
    model.input("x", {2}).constant(scalar("c", yes, kBool));
    const auto first = attribute("then_branch", on_taken == yes ? taken.proto.graph() : other.proto.graph());
    const auto second = attribute("else_branch", on_taken == yes ? other.proto.graph() : taken.proto.graph());
    return model.node("If", {"c"}, {"y"}, {first, second}, "i").output("y");
  };
  CHECK(run(choice(true, true), {1, 2}) == std::vector<Floats>{{2, 4}});
  CHECK(run(choice(false, true), {1, 2}) == std::vector<Floats>{{2, 4}});
  CHECK(refusal(choice(true, false)) ==
        "2: m.onnx: node #0 'i' (If, opset 17): then_branch: node #0 (Frobnicate, opset 17): the operator is not supported ('tamp ops' "
        "lists what is)");
}

TEST_CASE("control flow that is decided at run time runs as long as it says") {
  const auto count = [](const Graph& graph) {
    return std::count_if(graph.rops.begin(), graph.rops.end(), [](const ROperator& r) { return std::holds_alternative<LoopEnd>(r.attrs); });
  };
  Model model;
  model.input("x", {2}).node("ReduceSum", {"x"}, {"s"}, {attribute("keepdims", 0)}).constant(tensor("none", {}, {0}));
  model.node("Greater", {"s", "none"}, {"c"});
  Model relu, negation;
  relu.node("Relu", {"x"}, {"t"}).output("t");
  negation.node("Neg", {"x"}, {"e"}).output("e");
  model.node("If", {"c"}, {"y"}, {attribute("then_branch", relu.proto.graph()), attribute("else_branch", negation.proto.graph())}, "i")
      .output("y");
  CHECK(count(model.read()) == 2);
  CHECK(run(model, {-1, 3}) == std::vector<Floats>{{0, 3}});
  CHECK(run(model, {-1, -3}) == std::vector<Floats>{{1, 3}});

  // h is added to itself until the sum is 100; each value is kept.
  Model body = adding_body();
  body.proto.mutable_graph()->mutable_node(3)->set_input(0, "run_time");
  body.constant(tensor("most", {}, {100})).node("ReduceSum", {"next"}, {"sum"}, {attribute("keepdims", 0)});
  body.node("Less", {"sum", "most"}, {"run_time"});
  body.proto.mutable_graph()->mutable_node(1)->set_input(1, "h");
  const Model until = loop_of(body, 5);
  CHECK(count(until.read()) == 1);
  const Graph graph = until.read();
  REQUIRE(graph.padded.size() == 1);
  const std::vector<ops::Value> found = ops::run(graph, {value({2}, {20, 10})});
  CHECK(floats_of(found[0]) == Floats{80, 40});
  CHECK(floats_of(found[1]) == Floats{40, 20, 80, 40, -1, -1, -1, -1, -1, -1});
  CHECK(ops::raw_numbers<int64_t>(found[2]) == std::vector<int64_t>{2});
  CHECK(count(loop_of(body, 1).read()) == 0);  // nobody asks for the condition any more

  Model trips = loop_of(adding_body(), 3, {"y"});
  trips.input("n", {}, onnx::TensorProto::INT64);
  trips.proto.mutable_graph()->mutable_node(0)->set_input(0, "n");
  const Graph counted = trips.read();
  for (const int64_t n : {0, 3}) {
    const ops::Value y = ops::run(counted, {value({2}, {1, 2}), ops::raw_value(DType::i64, {}, std::vector{n})})[0];
    CHECK(floats_of(y) == (n == 0 ? Floats{1, 2} : Floats{4, 5}));
  }
}

TEST_CASE("a Loop that is too long to be written out runs as one") {
  const Graph graph = loop_of(adding_body(), 200'000, {"y"}).read();
  CHECK(graph.rops.size() < 10);
  CHECK(has_loops(graph));
}

TEST_CASE("a Loop of any number of iterations whose condition counts has as many pieces") {
  Model body;
  body.input("i", {}, onnx::TensorProto::INT64).input("cond", {}, kBool).input("h", {2});
  body.constant(scalar("most", 6)).node("Less", {"i", "most"}, {"more"}).node("Neg", {"h"}, {"next"}).node("Identity", {"next"}, {"piece"});
  body.output("more").output("next").output("piece");
  const Graph graph = loop_of(body, int64_t{1} << 62).read();
  CHECK(!has_loops(graph));
  CHECK(graph.tensor(graph.outputs[1]).shape == Shape{7, 2});
}

TEST_CASE("a Scan that is too long to be written out runs as a loop") {
  Model body;
  body.input("h", {2}).input("x", {2}).node("Add", {"h", "x"}, {"next"}).node("Identity", {"next"}, {"piece"});
  body.output("next").output("piece");
  Model scan;
  scan.input("h0", {2}).input("xs", {60'000, 2}).output("y").output("ys");
  scan.node("Scan", {"h0", "xs"}, {"y", "ys"}, {attribute("num_scan_inputs", int64_t{1}), attribute("body", body.proto.graph())});
  const Graph graph = scan.read();
  CHECK(has_loops(graph));
  CHECK(graph.tensor(graph.outputs[1]).shape == Shape{60'000, 2});
}

TEST_CASE("loops of run time that change shapes, or never end, are refused") {
  Model trips = loop_of(adding_body(), 3);
  trips.input("n", {}, onnx::TensorProto::INT64);
  trips.proto.mutable_graph()->mutable_node(0)->set_input(0, "n");
  CHECK_THAT(refusal(trips), Catch::Contains("(Loop, opset 17): result 1 has as many entries as there are iterations"));
  Model growing;
  growing.input("i", {}, onnx::TensorProto::INT64).input("cond", {}, kBool).input("h", {2});
  growing.node("Concat", {"h", "h"}, {"next"}, {attribute("axis", 0)}).output("cond").output("next");
  Model grows = loop_of(growing, 3, {"y"});
  grows.input("n", {}, onnx::TensorProto::INT64);
  grows.proto.mutable_graph()->mutable_node(0)->set_input(0, "n");
  CHECK_THAT(refusal(grows), Catch::Contains("carried value 0 is f32[2] before an iteration and f32[4] behind it"));
  CHECK_THAT(refusal(loop_of(adding_body(), int64_t{1} << 62)), Catch::Contains("result 1 has as many entries as there are iterations"));
}

TEST_CASE("a body that cannot be read is refused once, with where it stands") {
  Model body = adding_body();
  body.node("Frobnicate", {"h"}, {"a"}).node("Elu", {"a"}, {"b"}).node("Nonesuch", {"h"}, {"c"});
  CHECK(refusal(loop_of(body, 3)) ==
        "2: m.onnx: node #0 'l' (Loop, opset 17): body, iteration 0: node #4 (Frobnicate, opset 17): the operator is not supported ('tamp "
        "ops' lists what is)\n"
        "m.onnx: node #0 'l' (Loop, opset 17): body, iteration 0: node #6 (Nonesuch, opset 17): the operator is not supported ('tamp ops' "
        "lists what is)");
  Model missing = adding_body();
  missing.node("Relu", {"nowhere"}, {"a"});
  CHECK_THAT(refusal(loop_of(missing, 3)),
             Catch::StartsWith("1: m.onnx: node #0 'l' (Loop, opset 17): reads 'nowhere', which is no input"));
  Model twice = adding_body();
  twice.node("Relu", {"h"}, {"next"});
  CHECK_THAT(refusal(loop_of(twice, 3)),
             Catch::Contains("body, iteration 0: node #4 (Relu, opset 17): makes 'next', which node #1 makes too"));
  Model fewer = adding_body();
  fewer.proto.mutable_graph()->mutable_input()->RemoveLast();
  CHECK_THAT(refusal(loop_of(fewer, 3)), Catch::Contains("has 2 inputs, expected 3") || Catch::Contains("reads 'h'"));
  Model few_results = adding_body();
  few_results.proto.mutable_graph()->mutable_output()->RemoveLast();
  CHECK_THAT(refusal(loop_of(few_results, 3)), Catch::Contains("has 2 outputs, attribute 'body' gives 1"));
  Model self = adding_body();
  self.node("Relu", {"y"}, {"a"});
  CHECK_THAT(refusal(loop_of(self, 3)), Catch::Contains("the graph has a cycle"));
  Model changing = adding_body();
  changing.proto.mutable_graph()->mutable_node(2)->set_op_type("Concat");
  changing.proto.mutable_graph()->mutable_node(2)->add_input("next");
  *changing.proto.mutable_graph()->mutable_node(2)->add_attribute() = attribute("axis", 0);
  CHECK(refusal(loop_of(changing, 2)) == "read");
  changing.proto.mutable_graph()->mutable_output(1)->set_name("each");
  CHECK_THAT(refusal(loop_of(changing, 2)), Catch::Contains("result 1 is f32[4] in one iteration and f32[8] in another"));
}

}  // namespace tamp
