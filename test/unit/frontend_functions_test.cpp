// A model's own functions: what a call of one means, and what is refused.
#include "compiler/ops/ops.h"
#include "test/support/catch.h"
#include "test/support/onnx_model.h"

namespace tamp {
namespace {

using namespace test;
using Catch::Matchers::Contains;

// Functions of domain "my", which the model imports.
struct Library {
  Model model;

  explicit Library(int64_t opset = 17) : model(opset) {
    auto* import = model.proto.add_opset_import();
    import->set_domain("my");
    import->set_version(1);
  }
  onnx::FunctionProto& function(const std::string& name, const std::vector<std::string>& inputs, const std::vector<std::string>& outputs,
                                int64_t opset = 17) {
    onnx::FunctionProto& made = *model.proto.add_functions();
    made.set_domain("my");
    made.set_name(name);
    for (const std::string& one : inputs) made.add_input(one);
    for (const std::string& one : outputs) made.add_output(one);
    made.add_opset_import()->set_version(opset);
    auto* own = made.add_opset_import();
    own->set_domain("my");
    own->set_version(1);
    return made;
  }
  static onnx::NodeProto& node(onnx::NodeProto& made, const std::string& op, const std::vector<std::string>& inputs,
                               const std::vector<std::string>& outputs, const std::string& domain = "") {
    made.set_op_type(op);
    made.set_domain(domain);
    for (const std::string& one : inputs) made.add_input(one);
    for (const std::string& one : outputs) made.add_output(one);
    return made;
  }
  onnx::NodeProto& call(const std::string& name, const std::vector<std::string>& inputs, const std::vector<std::string>& outputs) {
    return node(*model.proto.mutable_graph()->add_node(), name, inputs, outputs, "my");
  }
};

onnx::AttributeProto reference(const std::string& name, const std::string& of, onnx::AttributeProto::AttributeType type) {
  onnx::AttributeProto proto;
  proto.set_name(name);
  proto.set_ref_attr_name(of);
  proto.set_type(type);
  return proto;
}

std::vector<Floats> run(const Model& model, const Floats& x) {
  const Graph graph = model.read();
  return floats_of_all(ops::run(graph, {value(graph.tensor(graph.inputs[0]).shape, x)}));
}

// y = leaky relu of x with the slope that the call gives, or the function's own default.
Library leaky() {
  Library made;
  onnx::FunctionProto& function = made.function("Leaky", {"a"}, {"b"});
  onnx::NodeProto& node = Library::node(*function.add_node(), "LeakyRelu", {"a"}, {"b"});
  *node.add_attribute() = reference("alpha", "slope", onnx::AttributeProto::FLOAT);
  made.model.input("x", {2});
  return made;
}

}  // namespace

TEST_CASE("a call is its function's nodes, with the call's names and attributes") {
  Library made = leaky();
  made.model.proto.mutable_functions(0)->add_attribute("slope");
  *made.call("Leaky", {"x"}, {"h"}).add_attribute() = attribute("slope", 0.5F);
  made.call("Leaky", {"h"}, {"y"});  // the operator's own default, 0.01
  CHECK(run(made.model.output("y"), {-4, 3})[0] == Floats{-0.02F, 3});
  CHECK(made.model.read().rops.size() == 2);
}

TEST_CASE("an attribute that a call leaves out has the function's default") {
  Library made = leaky();  // of a newer field of the file format than the oldest library knows
  made.model.proto.mutable_functions(0)->mutable_unknown_fields()->AddLengthDelimited(11, attribute("slope", 0.25F).SerializeAsString());
  made.call("Leaky", {"x"}, {"h"});
  *made.call("Leaky", {"h"}, {"y"}).add_attribute() = attribute("slope", 2.0F);
  CHECK(run(made.model.output("y"), {-4, 3})[0] == Floats{-2, 3});
}

TEST_CASE("functions call functions, leave out operands, and mean operators by their own opset") {
  Library made;
  onnx::FunctionProto& inner = made.function("Bound", {"v", "low", "high"}, {"w"});
  Library::node(*inner.add_node(), "Clip", {"v", "low", "high"}, {"w"});
  onnx::FunctionProto& outer = made.function("Twice", {"p"}, {"s", "unused"}, 12);
  Library::node(*outer.add_node(), "Constant", {}, {"least"});
  *outer.mutable_node(0)->add_attribute() = attribute("value_float", 0.0F);
  Library::node(*outer.add_node(), "Bound", {"p", "least"}, {"t"}, "my");
  onnx::NodeProto& sum = Library::node(*outer.add_node(), "ReduceSum", {"t"}, {"s"});  // axes are an attribute in opset 12
  *sum.add_attribute() = attribute("axes", Ints{0});
  Library::node(*outer.add_node(), "Identity", {"p"}, {"unused"});
  made.model.input("x", {2});
  made.call("Twice", {"x"}, {"y"});
  CHECK(run(made.model.output("y"), {-4, 3})[0] == Floats{3});
}

TEST_CASE("a function sees nothing around it") {
  Library made;
  Library::node(*made.function("F", {"a"}, {"b"}).add_node(), "Add", {"a", "x"}, {"b"});
  made.model.input("x", {2});
  made.call("F", {"x"}, {"y"}).set_name("call");
  CHECK_THAT(refusal(made.model.output("y")), Contains("'call' (my.F): function") && Contains("reads 'x', which is no input"));
}

TEST_CASE("what a call gives must be what its function takes") {
  Library attribute_model = leaky();
  *attribute_model.call("Leaky", {"x"}, {"y"}).add_attribute() = attribute("tilt", 0.5F);
  CHECK_THAT(refusal(attribute_model.model.output("y")), Contains("(my.Leaky): unknown attribute 'tilt'"));
  Library operands = leaky();
  operands.call("Leaky", {"x", "x"}, {"y"});
  CHECK_THAT(refusal(operands.model.output("y")), Contains("has 2 inputs and 1 outputs, the function has 1 and 1"));
  Library unknown;
  Library::node(*unknown.function("F", {"a"}, {"b"}).add_node(), "Frob", {"a"}, {"b"});
  unknown.model.input("x", {2});
  unknown.call("F", {"x"}, {"y"});
  CHECK_THAT(refusal(unknown.model.output("y")), Contains("(my.F): function: node #0 (Frob, opset 17): the operator is not supported"));
}

TEST_CASE("recursion, and more nodes than anybody wants, are refused by name") {
  Library recursive;
  Library::node(*recursive.function("A", {"a"}, {"b"}).add_node(), "B", {"a"}, {"b"}, "my");
  Library::node(*recursive.function("B", {"a"}, {"b"}).add_node(), "A", {"a"}, {"b"}, "my");
  recursive.model.input("x", {2});
  recursive.call("A", {"x"}, {"y"});
  CHECK_THAT(refusal(recursive.model.output("y")), Contains("calls itself (my.A -> my.B -> my.A)"));

  Library bomb;  // 2^30 nodes
  Library::node(*bomb.function("F0", {"a"}, {"b"}).add_node(), "Relu", {"a"}, {"b"});
  for (int i = 1; i <= 30; ++i) {
    onnx::FunctionProto& function = bomb.function("F" + std::to_string(i), {"a"}, {"b"});
    const std::string callee = "F" + std::to_string(i - 1);
    Library::node(*function.add_node(), callee, {"a"}, {"c"}, "my");
    Library::node(*function.add_node(), callee, {"c"}, {"b"}, "my");
  }
  bomb.model.input("x", {2});
  bomb.call("F30", {"x"}, {"y"});
  CHECK_THAT(refusal(bomb.model.output("y")), Contains("the bodies of functions come to more than 100000 nodes"));

  Library deep;
  Library::node(*deep.function("F0", {"a"}, {"b"}).add_node(), "Relu", {"a"}, {"b"});
  for (int i = 1; i <= 1000; ++i) {
    Library::node(*deep.function("F" + std::to_string(i), {"a"}, {"b"}).add_node(), "F" + std::to_string(i - 1), {"a"}, {"b"}, "my");
  }
  deep.model.input("x", {2});
  deep.call("F1000", {"x"}, {"y"});
  CHECK_THAT(refusal(deep.model.output("y")), Contains("calls of functions nest deeper than 64"));

  Library twice = leaky();
  *twice.model.proto.add_functions() = twice.model.proto.functions(0);
  twice.call("Leaky", {"x"}, {"y"});
  CHECK_THAT(refusal(twice.model.output("y")), Contains("has two functions 'my.Leaky'"));
}

}  // namespace tamp
