// The frontend on models written here: what each version of an operator means, what is folded, what is refused and in which
// words.
#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <tuple>
#include <utility>

#include "compiler/frontend/onnx_reader.h"
#include "compiler/support/error.h"
#include "compiler/support/text.h"
#include "test/support/catch.h"
#include "test/support/onnx_model.h"

namespace tamp {
namespace {

using namespace test;

// One node y = OP(x, c0, c1, ...), x = 1, 2, 3, ...
struct OneNode {
  std::string op;
  int64_t opset;
  Shape x;
  std::vector<onnx::AttributeProto> attributes;
  std::vector<onnx::TensorProto> operands;  // an unnamed one is left out
  Shape y;
  Floats values;

  Model model() const {
    Model made(opset);
    std::vector<std::string> inputs = {"x"};
    made.input("x", x);
    for (const auto& operand : operands) {
      inputs.push_back(operand.name());
      if (!operand.name().empty()) made.constant(operand);
    }
    return made.node(op, inputs, {"y"}, attributes, "n").output("y");
  }
};

const onnx::TensorProto kLeftOut;

}  // namespace

TEST_CASE("every version of an operator computes what its own definition says") {
  const auto a = [](const auto&... arguments) { return attribute(arguments...); };
  const auto row = GENERATE_COPY(values<OneNode>({
      // Softmax: one joint extent before 13, one axis from then on.
      {"Softmax", 11, {1, 2, 2}, {a("axis", 1)}, {}, {1, 2, 2}, {0.0320586F, 0.0871443F, 0.2368828F, 0.6439143F}},
      {"Softmax", 13, {1, 2, 2}, {a("axis", 1)}, {}, {1, 2, 2}, {0.1192029F, 0.1192029F, 0.8807971F, 0.8807971F}},
      {"Softmax", 13, {1, 2, 2}, {}, {}, {1, 2, 2}, {0.2689414F, 0.7310586F, 0.2689414F, 0.7310586F}},
      // auto_pad: the odd element goes to the end or to the start.
      {"Conv", 11, {1, 1, 4}, {a("auto_pad", "SAME_UPPER")}, {tensor("w", {1, 1, 2}, {1, 10})}, {1, 1, 4}, {21, 32, 43, 4}},
      {"Conv", 11, {1, 1, 4}, {a("auto_pad", "SAME_LOWER")}, {tensor("w", {1, 1, 2}, {1, 10})}, {1, 1, 4}, {10, 21, 32, 43}},
      {"Conv", 11, {1, 1, 4}, {a("auto_pad", "VALID"), a("pads", Ints{9, 9})}, {tensor("w", {1, 1, 2}, {1, 10})}, {1, 1, 3}, {21, 32, 43}},
      {"Conv",
       1,
       {1, 2, 1, 3},
       {a("group", 2), a("strides", Ints{1, 2})},
       {tensor("w", {2, 1, 1, 1}, {1, 2}), tensor("b", {2}, {0, 100})},
       {1, 2, 1, 2},
       {1, 3, 108, 112}},
      // ceil_mode drops a window that would start in the end pad; count_include_pad counts pads, never the overhang.
      {"MaxPool", 12, {1, 1, 5}, {a("kernel_shape", Ints{2}), a("strides", Ints{2}), a("ceil_mode", 1)}, {}, {1, 1, 3}, {2, 4, 5}},
      {"MaxPool",
       12,
       {1, 1, 3},
       {a("kernel_shape", Ints{2}), a("strides", Ints{3}), a("pads", Ints{0, 1}), a("ceil_mode", 1)},
       {},
       {1, 1, 1},
       {2}},
      {"AveragePool", 11, {1, 1, 3}, {a("kernel_shape", Ints{2}), a("pads", Ints{1, 0})}, {}, {1, 1, 3}, {1, 1.5F, 2.5F}},
      {"AveragePool",
       11,
       {1, 1, 3},
       {a("kernel_shape", Ints{2}), a("pads", Ints{1, 0}), a("count_include_pad", 1)},
       {},
       {1, 1, 3},
       {0.5F, 1.5F, 2.5F}},
      {"AveragePool", 19, {1, 1, 3}, {a("kernel_shape", Ints{2}), a("dilations", Ints{2})}, {}, {1, 1, 1}, {2}},
      {"GlobalAveragePool", 1, {1, 2, 2}, {}, {}, {1, 2, 1}, {1.5F, 3.5F}},
      {"GlobalMaxPool", 1, {1, 2, 2}, {}, {}, {1, 2, 1}, {2, 4}},
      // Bounds as attributes, as operands, left out, and crossed (max wins).
      {"Clip", 6, {3}, {a("min", 2.0F)}, {}, {3}, {2, 2, 3}},
      {"Clip", 11, {3}, {}, {kLeftOut, tensor("h", {}, {2})}, {3}, {1, 2, 2}},
      {"Clip", 13, {3}, {}, {tensor("l", {}, {2}), tensor("h", {}, {1})}, {3}, {1, 1, 1}},
      // Old broadcasting lines B up at an axis, the new one at the end.
      {"Add", 6, {2, 2}, {a("broadcast", 1), a("axis", 0)}, {tensor("b", {2}, {10, 20})}, {2, 2}, {11, 12, 23, 24}},
      {"Add", 6, {2, 2}, {a("broadcast", 1)}, {tensor("b", {2}, {10, 20})}, {2, 2}, {11, 22, 13, 24}},
      {"Add", 7, {2, 2}, {}, {tensor("b", {2}, {10, 20})}, {2, 2}, {11, 22, 13, 24}},
      {"PRelu", 6, {1, 2, 2}, {}, {tensor("s", {2}, {3, 4})}, {1, 2, 2}, {1, 2, 3, 4}},
      {"Pow", 12, {3}, {}, {tensor("e", Ints{2})}, {3}, {1, 4, 9}},
      {"Mod", 13, {3}, {a("fmod", 1)}, {tensor("d", {}, {-2})}, {3}, {1, 0, 1}},
      {"Mod", 28, {3}, {}, {tensor("d", {}, {-2})}, {3}, {-1, 0, -1}},
      {"Mean", 8, {2}, {}, {tensor("b", {}, {5}), tensor("c", {2}, {6, 8})}, {2}, {4, 5}},
      {"Sum", 8, {2}, {}, {}, {2}, {1, 2}},
      {"HardSigmoid", 6, {2}, {}, {}, {2}, {0.7F, 0.9F}},
      {"LeakyRelu", 6, {1}, {}, {}, {1}, {1}},
      {"Gelu", 20, {1}, {a("approximate", "tanh")}, {}, {1}, {0.8411920F}},
      {"Gelu", 20, {1}, {}, {}, {1}, {0.8413447F}},
      // Axes as attribute, as operand, absent (all), absent with the no-op flag.
      {"ReduceSum", 11, {2, 2}, {a("axes", Ints{-1}), a("keepdims", 0)}, {}, {2}, {3, 7}},
      {"ReduceSum", 13, {2, 2}, {}, {tensor("axes", Ints{0})}, {1, 2}, {4, 6}},
      {"ReduceMean", 17, {2, 2}, {a("axes", Ints{0, 1}), a("keepdims", 0)}, {}, {}, {2.5F}},
      {"ReduceMean", 18, {2, 2}, {}, {}, {1, 1}, {2.5F}},
      {"ReduceSumSquare", 18, {2}, {a("noop_with_empty_axes", 1)}, {}, {2}, {1, 4}},
      // Transposed operands, alpha, beta, a broadcast C; 1-D operands of MatMul.
      {"Gemm",
       13,
       {2, 1},
       {a("transA", 1), a("alpha", 2.0F), a("beta", 0.5F)},
       {tensor("b", {2, 2}, {1, 2, 3, 4}), tensor("c", {1, 1}, {10})},
       {1, 2},
       {19, 25}},
      {"Gemm",
       6,
       {1, 2},
       {a("transB", 1), a("broadcast", 1)},
       {tensor("b", {2, 2}, {1, 2, 3, 4}), tensor("c", {2}, {10, 20})},
       {1, 2},
       {15, 31}},
      {"MatMul", 13, {2}, {}, {tensor("b", {2, 2}, {1, 2, 3, 4})}, {2}, {7, 10}},
      {"MatMul", 13, {2, 2}, {}, {tensor("b", {2}, {1, 2})}, {2}, {5, 11}},
      {"MatMul", 13, {2}, {}, {tensor("b", {2}, {1, 2})}, {}, {5}},
      // Shapes.
      {"Reshape", 5, {2, 3}, {}, {tensor("s", Ints{0, -1, 1})}, {2, 3, 1}, {1, 2, 3, 4, 5, 6}},
      {"Reshape", 1, {2, 2}, {a("shape", Ints{4})}, {}, {4}, {1, 2, 3, 4}},
      {"Reshape", 14, {0, 3}, {a("allowzero", 1)}, {tensor("s", Ints{3, 0})}, {3, 0}, {}},
      {"Flatten", 11, {2, 1, 2}, {a("axis", -1)}, {}, {2, 2}, {1, 2, 3, 4}},
      {"Flatten", 9, {2, 2}, {a("axis", 2)}, {}, {4, 1}, {1, 2, 3, 4}},
      {"Squeeze", 11, {1, 2, 1}, {a("axes", Ints{0})}, {}, {2, 1}, {1, 2}},
      {"Squeeze", 13, {1, 2, 1}, {}, {}, {2}, {1, 2}},
      {"Unsqueeze", 13, {2}, {}, {tensor("a", Ints{-1, 0})}, {1, 2, 1}, {1, 2}},
      // Movement.
      {"Transpose", 13, {2, 3}, {}, {}, {3, 2}, {1, 4, 2, 5, 3, 6}},
      {"Slice", 1, {4}, {a("starts", Ints{1}), a("ends", Ints{-1})}, {}, {2}, {2, 3}},
      {"Slice", 13, {5}, {}, {tensor("s", Ints{-1}), tensor("e", Ints{-100}), tensor("a", Ints{0}), tensor("p", Ints{-2})}, {3}, {5, 3, 1}},
      {"Slice", 13, {5}, {}, {tensor("s", Ints{3}), tensor("e", Ints{1}), tensor("a", Ints{0})}, {0}, {}},
      {"Pad", 2, {2}, {a("pads", Ints{1, 1}), a("value", 9.0F)}, {}, {4}, {9, 1, 2, 9}},
      {"Pad", 13, {3}, {a("mode", "reflect")}, {tensor("p", Ints{2, 0})}, {5}, {3, 2, 1, 2, 3}},
      {"Pad", 18, {1, 2}, {a("mode", "edge")}, {tensor("p", Ints{1, 1}), kLeftOut, tensor("a", Ints{-1})}, {1, 4}, {1, 1, 2, 2}},
      {"Gather", 13, {3}, {}, {tensor("i", Ints{-1, 0})}, {2}, {3, 1}},
      {"Expand", 13, {2, 1}, {}, {tensor("s", Ints{3, 1, 2})}, {3, 2, 2}, {1, 1, 2, 2, 1, 1, 2, 2, 1, 1, 2, 2}},
      {"Tile", 13, {2, 2}, {}, {tensor("r", Ints{1, 2})}, {2, 4}, {1, 2, 1, 2, 3, 4, 3, 4}},
      {"Tile", 13, {2}, {}, {tensor("r", Ints{0})}, {0}, {}},
      {"LRN", 13, {1, 2, 1}, {a("size", 2), a("alpha", 2.0F), a("beta", 1.0F)}, {}, {1, 2, 1}, {1.0F / 6, 2.0F / 5}},
      {"Dropout", 12, {2}, {}, {}, {2}, {1, 2}},
      {"Cast", 13, {2}, {a("to", 1)}, {}, {2}, {1, 2}},
  }));
  CAPTURE(row.op, row.opset);
  const Graph graph = row.model().read();
  const ops::Value result = ops::run(graph, {value(row.x, counting(element_count(row.x)))})[0];
  CHECK(result.shape == row.y);
  CHECK(floats_of(result).size() == row.values.size());
  CHECK_THAT(floats_of(result), Catch::Approx(row.values).epsilon(1e-5));
}

TEST_CASE("an operator is refused where its definition does not allow what is asked") {
  const auto a = [](const auto&... arguments) { return attribute(arguments...); };
  struct Row {
    OneNode node;
    std::string refusal;
  };
  const auto row = GENERATE_COPY(values<Row>({
      {{"AveragePool", 11, {1, 1, 4}, {a("kernel_shape", Ints{2}), a("dilations", Ints{2})}, {}, {}, {}}, "unknown attribute 'dilations'"},
      {{"Relu", 13, {1}, {a("alpha", 1.0F)}, {}, {}, {}}, "unknown attribute 'alpha'"},
      {{"Softmax", 13, {1}, {a("axis", 1.0F)}, {}, {}, {}}, "attribute 'axis' is of kind float, expected int"},
      {{"Add", 6, {2, 2}, {}, {tensor("b", {2}, {1, 2})}, {}, {}}, "shapes [2,2] and [2] differ and attribute 'broadcast' is 0"},
      {{"Add", 13, {2}, {}, {tensor("b", {3}, {1, 2, 3})}, {}, {}}, "shapes [2] and [3] do not broadcast"},
      {{"Sum", 6, {2}, {}, {tensor("b", {1}, {1})}, {}, {}}, "broadcasting came with opset 8"},
      {{"Conv", 11, {1, 2, 3}, {a("group", 2)}, {tensor("w", {2, 2, 1}, {1, 2, 3, 4})}, {}, {}}, "expected 1 channels per group"},
      {{"MaxPool", 12, {1, 1, 3}, {a("kernel_shape", Ints{2}), a("strides", Ints{0})}, {}, {}, {}},
       "'strides' is [0], each must be at least 1"},
      {{"MaxPool", 12, {1, 1, 3}, {}, {}, {}, {}}, "attribute 'kernel_shape' is missing"},
      {{"Concat", 13, {1}, {}, {}, {}, {}}, "attribute 'axis' is missing"},
      {{"Transpose", 13, {2, 2}, {a("perm", Ints{1, 1})}, {}, {}, {}}, "'perm' is [1,1], expected an order of the 2 dimensions"},
      {{"Gather", 13, {3}, {}, {tensor("i", Ints{-4})}, {}, {}}, "index -4 is outside the 3 elements of axis 0"},
      {{"Reshape", 13, {2}, {}, {tensor("s", Ints{0, 0})}, {}, {}}, "0 at 1 copies an extent that [2] does not have"},
      {{"Split", 18, {4}, {}, {}, {}, {}}, "neither input 'split' nor attribute 'num_outputs' is given"},
      {{"Slice", 13, {4}, {}, {tensor("s", Ints{0}), tensor("e", Ints{2}), tensor("a", Ints{0}), tensor("p", Ints{0})}, {}, {}}, "step 0"},
      {{"Mod", 13, {2}, {}, {tensor("d", {}, {2})}, {}, {}}, "attribute 'fmod' is 0, which is for integers"},
      {{"ReduceSum", 13, {2}, {a("axes", Ints{0})}, {}, {}, {}}, "unknown attribute 'axes'"},
      {{"Add", 13, {1}, {}, {tensor("b", Ints{1})}, {}, {}}, "operands of different types: f32 and i64"},
  }));
  CAPTURE(row.node.op, row.node.opset);
  const std::string text = refusal(row.node.model());
  const std::string head = "1: m.onnx: node #0 'n' (" + row.node.op + ", opset " + std::to_string(row.node.opset) + "): ";
  CHECK_THAT(text, Catch::StartsWith(head));
  CHECK_THAT(text, Catch::Contains(row.refusal));
}

TEST_CASE("all that is not supported is listed at once, in the file's order") {
  Model model(13);
  model.input("x", {1, 1, 2, 2, 2, 2}).input("i", {1}, onnx::TensorProto::COMPLEX64).constant(tensor("w", {1, 1, 1, 1, 1, 1}, {1}));
  model.node("Frob", {"x"}, {"a"}, {}, "f").node("Relu", {"a"}, {"b"}).node("Conv", {"x", "w"}, {"c"}, {}, "4d");
  model.node("Gelu", {"b"}, {"d"}).node("Add", {"c", "d"}, {"y"}).output("y");
  CHECK(
      refusal(model) ==
      "2: m.onnx: input 'i' has element type COMPLEX64, supported: floats of 16, 32 and 64 bits, bfloat16, integers of 8 to 64 bits, bool; "
      "export the model without it\n"
      "m.onnx: node #0 'f' (Frob, opset 13): the operator is not supported ('tamp ops' lists what is)\n"
      "m.onnx: node #2 '4d' (Conv, opset 13): 4-D convolution (X has shape [1,1,2,2,2,2]), supported: 1-D to 3-D\n"
      "m.onnx: node #3 (Gelu, opset 13): the operator came with opset 20; export with that one or a newer one");
}

TEST_CASE("an operand that must be a constant is refused by name where it is not") {
  CHECK(
      refusal(Model().input("x", {2, 2}).input("k", {1}, onnx::TensorProto::INT64).node("TopK", {"x", "k"}, {"y"}, {}, "n").output("y")) ==
      "2: m.onnx: node #0 'n' (TopK, opset 17): input 1 (K, tensor 'k') is known only at run time, supported: a constant; "
      "it follows from input 'k': --freeze k=FILE makes a constant of it");
  Model computed;
  computed.input("x", {2, 2}).input("k", {1}, onnx::TensorProto::INT64).input("more", {1}, onnx::TensorProto::INT64);
  computed.node("Add", {"k", "more"}, {"sum"}).node("TopK", {"x", "sum"}, {"y"}, {}, "n").output("y");
  CHECK_THAT(refusal(computed),
             Catch::Contains("it follows from inputs 'k', 'more': --freeze k=FILE --freeze more=FILE make constants of them"));
}

TEST_CASE("nodes of one operator that are refused for one reason share a line") {
  Model model(17);
  model.input("x", {2}).node("Frob", {"x"}, {"a"}, {}, "first").node("Frob", {"a"}, {"b"}).node("Matmul", {"b", "b"}, {"c"});
  model.node("Frob", {"c"}, {"y"}).output("y");
  CHECK(refusal(model) ==
        "2: m.onnx: node #0 'first' (Frob, opset 17): the operator is not supported ('tamp ops' lists what is) (and 2 more nodes of Frob)\n"
        "m.onnx: node #2 (Matmul, opset 17): the operator is not supported ('tamp ops' lists what is); did you mean 'MatMul'?");
}

TEST_CASE("an operator of another domain is named with that domain's opset") {
  Model model(17);
  model.input("x", {2}).node("MatMulFpQ4", {"x"}, {"y"}).output("y");
  model.proto.mutable_graph()->mutable_node(0)->set_domain("com.microsoft");
  CHECK(refusal(model) ==
        "2: m.onnx: node #0 (com.microsoft.MatMulFpQ4, opset 1): weights of this kind are not supported; MatMulNBits and "
        "GatherBlockQuantized are");
}

TEST_CASE("shape arithmetic is folded away") {
  Model model;
  model.input("x", {2, 3, 4}).constant(tensor("zero", Ints{0})).constant(tensor("rest", Ints{-1}));
  model.node("Shape", {"x"}, {"shape"})
      .node("Gather", {"shape", "zero"}, {"n"})
      .node("Concat", {"n", "rest"}, {"to"}, {attribute("axis", 0)});
  model.node("Reshape", {"x", "to"}, {"y"}, {}, "view").output("y", {2, 12});
  const Graph graph = model.read();
  REQUIRE(graph.rops.size() == 1);
  CHECK(graph.rops[0].name == "view");
  CHECK(graph.rops[0].origin == std::vector<std::string>{"view"});
  CHECK(graph.tensors.size() == 2);
}

TEST_CASE("a model of a few bytes cannot ask for gigabytes of constants") {
  Model model;
  model.input("x", {1}).constant(tensor("s", Ints{1 << 28})).constant(tensor("one", Ints{1}));
  model.node("Expand", {"one", "s"}, {"big"}, {}, "bomb").node("Cast", {"big"}, {"f"}, {attribute("to", 1)});
  model.node("ReduceSum", {"f"}, {"sum"}).node("Add", {"x", "sum"}, {"y"}).output("y");
  CHECK_THAT(refusal(model),
             Catch::StartsWith("1: m.onnx: node #0 'bomb' (Expand, opset 17): the i64 result of shape [268435456] exceeds"));
}

TEST_CASE("a float that is repeated beyond the folding budget is repeated at run time") {
  const Graph graph = Model()
                          .input("x", {1})
                          .constant(tensor("s", Ints{1 << 25}))
                          .node("ConstantOfShape", {"s"}, {"zeros"})
                          .node("Add", {"x", "zeros"}, {"y"})
                          .output("y", {1 << 25})
                          .read();
  REQUIRE(graph.rops.size() == 2);
  CHECK(graph.tensor(graph.rops[0].outputs[0]).shape == Shape{1 << 25});
}

TEST_CASE("a condition known only at run time selects, and may be an output") {
  Model model;
  model.input("x", {3}).constant(tensor("two", {}, {2})).constant(tensor("no", {3}, {-1, -2, -3}));
  model.node("Greater", {"x", "two"}, {"big"}).node("Not", {"big"}, {"small"}).node("Where", {"small", "x", "no"}, {"y"}).output("y");
  const Graph graph = model.output("big").read();
  CHECK(floats_of(ops::run(graph, {value({3}, {1, 2, 3})})[0]) == Floats{1, 2, -3});
  const Tensor& big = graph.tensor(graph.outputs[1]);
  CHECK(big.dtype == DType::boolean);
  CHECK(big.name == "big");
}

TEST_CASE("Split gives one slice an output, the last one shorter where num_outputs does not divide") {
  const Graph graph = Model(18)
                          .input("x", {5})
                          .node("Split", {"x"}, {"a", "", "c"}, {attribute("num_outputs", 3)})
                          .output("a", {2})
                          .output("c", {1})
                          .read();
  const std::vector<ops::Value> results = ops::run(graph, {value({5}, counting(5))});
  CHECK(floats_of(results[0]) == Floats{1, 2});
  CHECK(floats_of(results[1]) == Floats{5});
  CHECK(graph.rops.size() == 2);
}

TEST_CASE("symbolic dimensions are bound by name, and every mistake with them is told") {
  Model model;
  model.input("x", {-1, 3, -2}).input("z", {-1, 1, 1}).node("Add", {"x", "z"}, {"y"}).output("y", {-7, 3, -2});
  const Graph graph = model.read({{"S1", 4}, {"S2", 5}});
  CHECK(graph.tensor(graph.outputs[0]).shape == Shape{4, 3, 5});
  CHECK(refusal(model) == "1: m.onnx: the inputs have symbolic dimensions without a value; give --dim S1=value --dim S2=value");
  CHECK(refusal(model, {{"S1", 4}}) == "1: m.onnx: the inputs have symbolic dimensions without a value; give --dim S2=value");
  CHECK(refusal(model, {{"S1", 4}, {"S2", 5}, {"B", 1}}) ==
        "1: m.onnx: --dim B: no input has a dimension of that name; symbolic dimensions: S1, S2");
  CHECK(refusal(model, {{"S1", 4}, {"S2", 0}}) == "1: m.onnx: --dim S2=0: must be at least 1");
}

TEST_CASE("declared shapes and types are claims that are checked") {
  const Model good = Model().input("x", {2}).node("Relu", {"x"}, {"t"}).node("Tanh", {"t"}, {"y"});
  CHECK(refusal(Model(good).output("y", {2})) == "read");
  CHECK(refusal(Model(good).output("y", {3})) == "1: m.onnx: output declares 'y' to be of shape [3], it is [2]");
  Model lies = Model(good).output("y");
  Model::set_type(*lies.proto.mutable_graph()->add_value_info(), "t", {2}, onnx::TensorProto::INT64);
  CHECK(refusal(lies) == "read");  // of an inner tensor: a warning
}

TEST_CASE("a domain that is imported again must be imported in the same version") {
  Model twice = Model().input("x", {2}).node("Relu", {"x"}, {"y"}).output("y");
  const int64_t opset = twice.proto.opset_import(0).version();
  onnx::OperatorSetIdProto& again = *twice.proto.add_opset_import();
  again.set_domain("ai.onnx");
  again.set_version(opset);
  CHECK(refusal(twice) == "read");
  again.set_version(opset - 1);
  CHECK_THAT(refusal(twice), Catch::Matchers::Contains("1: m.onnx: domain 'ai.onnx' is imported twice, with opsets"));
}

TEST_CASE("the wiring is sorted where it can be and refused by name where it cannot") {
  const auto start = [] { return Model().input("x", {2}); };
  CHECK(refusal(start().node("Relu", {"t"}, {"y"}).node("Tanh", {"x"}, {"t"}).output("y")) == "read");
  CHECK(refusal(start().node("Add", {"x", "b"}, {"a"}, {}, "p").node("Relu", {"a"}, {"b"}, {}, "q").output("b")) ==
        "1: m.onnx: the graph has a cycle: node #1 'q' -> node #0 'p' -> node #1 'q'");
  CHECK(refusal(start().node("Add", {"x", "gone"}, {"y"}, {}, "p").output("y")) ==
        "1: m.onnx: node #0 'p' (Add, opset 17): reads 'gone', which is no input, no initializer, and made by no node");
  CHECK(refusal(start().node("Relu", {"x"}, {"y"}).node("Tanh", {"x"}, {"y"}, {}, "q").output("y")) ==
        "1: m.onnx: node #1 'q' (Tanh, opset 17): makes 'y', which node #0 makes too");
  CHECK(refusal(start().node("Relu", {"x"}, {"x"}, {}, "p").output("x")) ==
        "1: m.onnx: node #0 'p' (Relu, opset 17): makes 'x', which a graph input or initializer makes too");
  CHECK(refusal(start().output("y")) == "1: m.onnx: graph output 'y' is made by no node");
  CHECK(refusal(start().input("x", {2}).output("x")) == "1: m.onnx: two graph inputs are named 'x'");
}

TEST_CASE("outputs keep their names and order, whatever they are") {
  Model model;
  model.input("x", {2}).constant(tensor("c", {1}, {7}));
  model.node("Relu", {"x"}, {"r"}).node("Identity", {"r"}, {"same"}).node("Identity", {"x"}, {"copy"}).node("Identity", {"c"}, {"seven"});
  for (const char* name : {"same", "copy", "x", "seven", "c", "r"}) model.output(name);
  const Graph graph = model.read();
  std::vector<std::string> names;
  for (const TensorId id : graph.outputs) names.push_back(graph.tensor(id).name);
  CHECK(names == std::vector<std::string>{"same", "copy", "x", "seven", "c", "r"});
  const std::vector<ops::Value> results = ops::run(graph, {value({2}, {-1, 1})});
  CHECK(floats_of(results[0]) == Floats{0, 1});
  CHECK(floats_of(results[1]) == Floats{-1, 1});
  CHECK(floats_of(results[3]) == Floats{7});
}

TEST_CASE("rOperators have unique names even if the nodes have none or the same") {
  Model model;
  model.input("x", {2});
  model.node("Relu", {"x"}, {"a"})
      .node("Tanh", {"a"}, {"b"}, {}, "same")
      .node("Exp", {"b"}, {"c"}, {}, "same")
      .node("Mean", {"c", "a", "x"}, {"y"}, {}, "*/\n");
  const Graph graph = model.output("y").read();
  std::vector<std::string> names;
  for (const ROperator& rop : graph.rops) names.push_back(rop.name);
  CHECK(names == std::vector<std::string>{"Relu#0", "same", "same.2", "*/\n", "*/\n.2", "*/\n.3"});
}

TEST_CASE("an initializer that is also listed as an input is a constant") {
  const Graph graph =
      Model().input("x", {2}).input("w", {2}).constant(tensor("w", {2}, {1, 2})).node("Add", {"x", "w"}, {"y"}).output("y").read();
  CHECK(graph.inputs.size() == 1);
  CHECK(refusal(Model().input("x", {2}).input("w", {3}).constant(tensor("w", {2}, {1, 2})).node("Add", {"x", "w"}, {"y"}).output("y")) ==
        "1: m.onnx: input declares 'w' to be of shape [3], it is [2]");
}

TEST_CASE("initializers of every element type and in every form arrive as they are") {
  struct Row {
    int type;
    std::string raw;
    DType dtype;
  };
  const auto row = GENERATE(values<Row>({
      {onnx::TensorProto::FLOAT16, std::string("\x00\x3c", 2), DType::f16},
      {onnx::TensorProto::BFLOAT16, std::string("\x80\x3f", 2), DType::bf16},
      {onnx::TensorProto::DOUBLE, std::string("\0\0\0\0\0\0\xf0\x3f", 8), DType::f64},
      {onnx::TensorProto::INT8, std::string("\x01", 1), DType::i8},
      {onnx::TensorProto::UINT16, std::string("\x01\0", 2), DType::u16},
      {onnx::TensorProto::INT32, std::string("\x01\0\0\0", 4), DType::i32},
      {onnx::TensorProto::UINT64, std::string("\x01\0\0\0\0\0\0\0", 8), DType::u64},
      {onnx::TensorProto::BOOL, std::string("\x01", 1), DType::boolean},
  }));
  onnx::TensorProto one;
  one.set_name("one");
  one.add_dims(1);
  one.set_data_type(row.type);
  one.set_raw_data(row.raw);
  const auto with = [](const onnx::TensorProto& constant) {
    return Model()
        .input("x", {1})
        .constant(constant)
        .node("Cast", {"one"}, {"f"}, {attribute("to", 1)})
        .node("Add", {"x", "f"}, {"y"})
        .output("y");
  };
  CAPTURE(name_of(row.dtype));
  CHECK(floats_of(ops::run(with(one).read(), {value({1}, {41})})[0]) == Floats{42});

  onnx::TensorProto short_one = one;
  short_one.set_raw_data(row.raw + "x");
  CHECK_THAT(refusal(with(short_one)), Catch::StartsWith("1: m.onnx: initializer 'one': holds "));
  onnx::TensorProto mixed = one;
  mixed.add_string_data("x");
  CHECK_THAT(refusal(with(mixed)),
             Catch::Contains("values in a field that does not belong to element type " + std::string(name_of(row.dtype))));
}

onnx::TensorProto external(int64_t count, const std::string& location, const std::string& offset, const std::string& length) {
  onnx::TensorProto w;
  w.set_name("w");
  w.add_dims(count);
  w.set_data_type(onnx::TensorProto::FLOAT);
  w.set_data_location(onnx::TensorProto::EXTERNAL);
  for (const auto& [key, text] : {std::pair<std::string, std::string>{"location", location}, {"offset", offset}, {"length", length}}) {
    auto* entry = w.add_external_data();
    entry->set_key(key);
    entry->set_value(text);
  }
  return w;
}

TEST_CASE("large external data are read when they are asked for, if nobody changed their file") {
  constexpr int64_t kCount = 1 << 20;
  const TempFolder folder;
  const std::string bytes = std::to_string(kCount * 4), file = (folder.path / "w.bin").string();
  const Floats weights(kCount, 1.5F);
  std::ofstream(file, std::ios::binary).write(reinterpret_cast<const char*>(weights.data()), kCount * 4);
  const onnx::TensorProto w = external(kCount, "w.bin", "0", bytes);
  const Graph graph =
      frontend::read_onnx(folder.write(Model().input("x", {kCount}).constant(w).node("Add", {"x", "w"}, {"y"}).output("y").proto), {});
  const auto constant = std::find_if(graph.tensors.begin(), graph.tensors.end(), [](const Tensor& t) { return t.name == "w"; });
  REQUIRE(constant != graph.tensors.end());
  CHECK(constant->data.in_memory() == nullptr);
  CHECK(f32_data(*constant)[kCount - 1] == 1.5F);
  constant->data.forget();
  std::ofstream(file, std::ios::binary | std::ios::app) << "more";
  CHECK(refusal_of([&] { f32_data(*constant); }) ==
        "1: m.onnx: initializer 'w': external data file 'w.bin': was changed while the model was read");
}

TEST_CASE("external data are read from the model's folder and from nowhere else") {
  const TempFolder folder;
  fs::create_directory(folder.path / "d");
  const Floats weights = {1, 2, 3};
  std::ofstream(folder.path / "d" / "w.bin", std::ios::binary).write(reinterpret_cast<const char*>(weights.data()), 12);
  fs::create_symlink("d/w.bin", folder.path / "link.bin");
  const auto read = [&](const std::string& location, const std::string& offset, const std::string& length, bool load = true) {
    frontend::ReadOptions options;
    options.load_weights = load;
    const onnx::TensorProto w = external(2, location, offset, length);
    return frontend::read_onnx(folder.write(Model().input("x", {2}).constant(w).node("Add", {"x", "w"}, {"y"}).output("y").proto), options);
  };
  CHECK(floats_of(ops::run(read("d/w.bin", "4", "8"), {value({2}, {0, 0})})[0]) == Floats{2, 3});
  CHECK_NOTHROW(read("d/w.bin", "4", "8", /*load=*/false));
  for (const char* location : {"../w.bin", "d/../../w.bin", "/etc/passwd", "link.bin", "", "d", "gone.bin", "d\\w.bin"}) {
    CAPTURE(location);
    CHECK_THAT(refusal_of([&] { read(location, "0", "8"); }), Catch::StartsWith("1: m.onnx: initializer 'w': external data"));
  }
  CHECK_THAT(refusal_of([&] { read("d/w.bin", "8", "8"); }), Catch::Contains("8 bytes from offset 8 end beyond its 12 bytes"));
  CHECK_THAT(refusal_of([&] { read("d/w.bin", "0", "12"); }), Catch::Contains("12 bytes are given, the tensor's shape and type need 8"));
  CHECK_THAT(refusal_of([&] { read("d/w.bin", "-4", "8"); }), Catch::Contains("offset is '-4', expected a whole number of bytes"));
}

TEST_CASE("a summary tells of a model that cannot be compiled") {
  Model model(20);
  model.proto.set_producer_name("test");
  model.input("ids", {-1, 4}, onnx::TensorProto::INT64).constant(tensor("w", {2, 2}, {1, 2, 3, 4}));
  model.node("Frob", {"ids"}, {"a"}).node("Relu", {"a"}, {"b"}).node("Relu", {"b"}, {"y"}).output("y", {-1, 2});
  const TempFolder folder;
  const frontend::ModelSummary summary = frontend::summarize_onnx(folder.write(model.proto));
  CHECK(summary.opsets == std::vector<std::pair<std::string, int64_t>>{{"ai.onnx", 20}});
  CHECK(summary.inputs[0].type == "i64");
  CHECK(summary.inputs[0].shape == "[S1,4]");
  CHECK(summary.histogram == std::vector<std::pair<std::string, int64_t>>{{"Relu", 2}, {"Frob", 1}});
  CHECK(summary.parameters == 4);
  CHECK(summary.parameter_bytes == 16);
  CHECK(summary.unsupported.size() == 1);
}

TEST_CASE("the table of operators is sorted and knows every version up to the newest opset") {
  const std::vector<frontend::SupportedOp> table = frontend::supported_ops();
  CHECK(table.size() >= 80);
  CHECK(std::is_sorted(table.begin(), table.end(),
                       [](const auto& a, const auto& b) { return std::tie(a.domain, a.name) < std::tie(b.domain, b.name); }));
  for (const frontend::SupportedOp& row : table) {
    CAPTURE(row.name);
    CHECK(!row.versions.empty());
    CHECK(std::is_sorted(row.versions.begin(), row.versions.end()));
  }
  CHECK(refusal(Model(29).input("x", {1}).node("Relu", {"x"}, {"y"}).output("y")) ==
        "2: m.onnx: opset 29 is newer than 28, the newest whose operators are known; export with opset 28");
}

TEST_CASE("tensor files are read, and broken ones refused by name") {
  const TempFolder folder;
  const ops::Value read = frontend::read_tensor_pb(folder.write(tensor("t", {2}, {1, 2}), "t.pb"));
  CHECK(floats_of(read) == Floats{1, 2});
  CHECK(refusal_of([&] {
          frontend::read_tensor_pb(folder.write(tensor("t", {3}, {1, 2}), "t.pb"));
        }) == "1: t.pb: holds 2 values, its shape needs 3");
  std::ofstream(folder.path / "text.pb") << "no tensor";
  CHECK(refusal_of([&] { frontend::read_tensor_pb((folder.path / "text.pb").string()); }) == "1: text.pb: not a tensor file (TensorProto)");
}

}  // namespace tamp
