// Rules of lengths of run time (compiler/frontend/lengths.h), one row each: a node of x in, and out what it becomes and where its result
// ends, or why it is refused. That the results are right at each length is test/e2e/lengths_test.py's to say.
#include <fmt/format.h>

#include <functional>

#include "compiler/frontend/onnx_reader.h"
#include "compiler/support/text.h"
#include "test/support/catch.h"
#include "test/support/onnx_model.h"

using namespace tamp;
using namespace tamp::test;

namespace {

// S1 is 1 to 9, S2 4 to 12, S3 1 to 2, S4 8, 16 or 24.
std::string read(const Model& model) {
  const TempFolder folder;
  frontend::ReadOptions options;
  const std::map<std::string, DimRange> ranges = {{"S1", {1, {9}}}, {"S2", {4, {12}}}, {"S3", {1, {2}}}, {"S4", {8, {24}, false, 8}}};
  for (const auto& input : model.proto.graph().input()) {
    for (const auto& dim : input.type().tensor_type().shape().dim()) {
      if (ranges.contains(dim.dim_param())) options.ranges[dim.dim_param()] = ranges.at(dim.dim_param());
    }
  }
  Graph graph;
  const std::string refused = refusal_of([&] { graph = frontend::read_onnx(folder.write(model.proto), options); });
  if (refused != "read") return refused;
  const std::function<std::string(const Extent&)> text = [&](const Extent& e) -> std::string {
    std::string of = e.length < 0 ? "" : graph.lengths[static_cast<size_t>(e.length)].name;
    if (e.length < 0) {
      const auto& [left, right] = graph.products[static_cast<size_t>(-1 - e.length)];
      of = fmt::format("{}*{}", text(left), text(right));
    }
    const std::string value =
        fmt::format("{}{}{}", e.times == 1 ? "" : fmt::format("{}*", e.times), of, e.plus == 0 ? "" : fmt::format("{:+}", e.plus));
    return e.over == 1 ? value : fmt::format("({})/{}", value, e.over);
  };
  std::vector<std::string> parts;
  for (const ROperator& rop : graph.rops) parts.push_back(name_of(rop.attrs));
  for (size_t o = 0; o < graph.outputs.size(); ++o) {
    for (const auto& [dim, e] : graph.output_axes[o]) parts.push_back(fmt::format("{}:{}", dim, text(e)));
  }
  return join(parts, " ");
}

struct Row {
  std::string op;
  Shape x;
  std::vector<onnx::AttributeProto> attributes;
  std::vector<onnx::TensorProto> constants;  // operands behind x
  std::string becomes;
  int64_t opset = 17;
};

Floats numbers(size_t count) { return Floats(count, 1); }
const Ints kOne{1};

}  // namespace

TEST_CASE("each kind of rOperator has its rule") {
  const auto a = [](const char* name, auto value) { return attribute(name, value); };
  const Row rows[] = {
      {"Relu", {-1, 4}, {}, {}, "Pad Elementwise Pad 0:S1"},
      {"Add", {-1, 4}, {}, {tensor("c", {4}, numbers(4))}, "Pad Elementwise Pad 0:S1"},
      {"MatMul", {-3, -1, 4}, {}, {tensor("w", {4, 2}, numbers(8))}, "Pad MatMul Reshape Pad 0:S3 1:S1"},
      {"Softmax", {-3, -1}, {a("axis", int64_t{1})}, {}, "Pad Softmax Pad 0:S3 1:S1"},
      {"ReduceSum", {-3, -1}, {}, {tensor("axes", kOne)}, "Pad Reduce Pad 0:S3"},
      {"ReduceProd", {4, -1}, {a("axes", kOne)}, {}, "Pad Pad Elementwise Reduce"},
      {"ReduceMax", {4, -1}, {a("axes", kOne), a("keepdims", int64_t{0})}, {}, "Pad Pad Elementwise Reduce"},
      {"ReduceMax", {4, -1}, {a("axes", Ints{0}), a("keepdims", int64_t{0})}, {}, "Pad Reduce Pad 0:S1"},
      {"LayerNormalization", {-1, 4}, {}, {tensor("s", {4}, numbers(4))}, "Pad Normalize Pad 0:S1"},
      {"Conv", {1, 1, -2}, {a("strides", Ints{2})}, {tensor("w", {1, 1, 3}, numbers(3))}, "Pad Conv Pad 2:(S2-1)/2"},
      {"Conv", {-3, 1, -2}, {a("pads", Ints{1, 1})}, {tensor("w", {1, 1, 3}, numbers(3))}, "Pad Conv Pad 0:S3 2:S2"},
      {"MaxPool", {1, 1, -2}, {a("kernel_shape", Ints{2}), a("pads", Ints{0, 1})}, {}, "Pad Pad Elementwise MaxPool Pad 2:S2"},
      {"Transpose", {-1, 4}, {a("perm", Ints{1, 0})}, {}, "Pad Transpose Pad 1:S1"},
      {"Reshape", {-1, 4}, {}, {tensor("to", Ints{-1, 2})}, "Pad Reshape Pad 0:2*S1"},
      {"Reshape", {2, -1, 4}, {}, {tensor("to", Ints{2, -1})}, "Pad Reshape Pad 1:4*S1"},
      {"Slice", {-2, 4}, {}, {tensor("b", Ints{2}), tensor("e", Ints{99})}, "Pad Slice Pad 0:S2-2"},
      {"Slice", {-2, 4}, {}, {tensor("b", Ints{0}), tensor("e", Ints{-1})}, "Pad Slice Pad 0:S2-1"},
      {"Slice",
       {-2, 4},
       {},
       {tensor("b", Ints{1}), tensor("e", Ints{99}), tensor("at", Ints{0}), tensor("s", Ints{2})},
       "Pad Slice Pad 0:(S2)/2"},
      {"Slice",
       {-1, 4},
       {},
       {tensor("b", Ints{-1}), tensor("e", Ints{99})},
       "Pad Pad Reshape Elementwise Elementwise Elementwise Gather Slice"},
      {"Pad", {-1, 4}, {}, {tensor("p", Ints{2, 0, 0, 0})}, "Pad Pad Pad 0:S1+2"},
      {"Gather", {-1, 4}, {}, {tensor("i", Ints{0})}, "Pad Elementwise Pad Reshape Elementwise Elementwise Gather"},
      {"CumSum", {-1, 4}, {}, {scalar("axis", int64_t{0})}, "Pad CumSum Pad 0:S1"},
      {"TopK", {-2}, {a("largest", int64_t{0})}, {tensor("k", Ints{4})}, "Pad Pad Elementwise TopK"},
      {"Concat",
       {-1, 4},
       {a("axis", int64_t{0})},
       {tensor("c", {2, 4}, numbers(8))},
       "Pad Pad Reshape Elementwise Elementwise Elementwise Elementwise Elementwise Concat Gather Elementwise Pad 0:S1+2"},
      {"ArgMax", {-1, 4}, {}, {}, "Pad Pad Elementwise TopK Reshape"},
      {"Slice",
       {-2, 4},
       {},
       {tensor("b", Ints{-1}), tensor("e", Ints{-99}), tensor("at", Ints{0}), tensor("s", Ints{-1})},
       "Pad Pad Reshape Elementwise Elementwise Elementwise Gather Slice Pad 0:S2"},
      {"MaxPool",
       {1, 1, -2},
       {a("kernel_shape", Ints{2}), a("strides", Ints{2}), a("ceil_mode", int64_t{1})},
       {},
       "Pad Pad Elementwise MaxPool Pad 2:(S2+1)/2"},
      {"AveragePool",
       {1, 1, -2},
       {a("kernel_shape", Ints{2}), a("strides", Ints{2}), a("ceil_mode", int64_t{1})},
       {},
       "Pad AveragePool Pad Elementwise AveragePool Elementwise Pad 2:(S2+1)/2"},
      {"Reshape",
       {3, -1, 4},
       {},
       {tensor("to", Ints{-1, 2})},
       "Pad Elementwise Elementwise Elementwise Pad Reshape Elementwise Elementwise Elementwise Elementwise Elementwise Elementwise "
       "Elementwise Reshape Gather Pad 0:6*S1"},
      {"Reshape",
       {1, 2, -1, -2},
       {},
       {tensor("to", Ints{1, 2, -1})},
       "Pad Pad Reshape Elementwise Elementwise Elementwise Elementwise Elementwise Reshape Gather Pad 2:S1*S2"},
      {"Conv", {1, 1, -4}, {a("strides", Ints{2}), a("pads", Ints{1, 1})}, {tensor("w", {1, 1, 3}, numbers(3))}, "Pad Conv Pad 2:(S4)/2"},
      {"ScatterElements",
       {-1},
       {},
       {tensor("i", Ints{0}), tensor("u", {1}, numbers(1))},
       "Pad Elementwise Pad Reshape Elementwise Elementwise Scatter Pad 0:S1"},
      {"Upsample",
       {1, 1, -2, 3},
       {a("mode", "linear")},
       {tensor("s", {4}, Floats{1, 1, 1.5F, 1})},
       "Pad Pad Reshape Elementwise Slice Reshape Slice Reshape Gather Elementwise Slice Reshape Slice Reshape Gather Elementwise "
       "Elementwise Elementwise Pad 2:(3*S2)/2",
       9},
      // Refusals.
      {"Softmax",
       {-3, -1},
       {a("axis", int64_t{0})},
       {},
       "2: m.onnx: node 'n' (Softmax) normalises over several dimensions of 'x' together, one of which ends at a length of run time",
       11},
      {"Pad",
       {-1, 4},
       {a("mode", "edge")},
       {tensor("p", Ints{0, 0, 1, 0})},
       "2: m.onnx: node 'n' (Pad) repeats elements of 'x' behind the end of dimension 0, which is a length of run time"},
      {"Pad",
       {-1, 4},
       {},
       {tensor("p", Ints{0, 0, -1, 0})},
       "2: m.onnx: node 'n' (Pad) crops 'x' at the end of dimension 0, which is a length of run time"},
      {"LRN",
       {1, -1, 4},
       {a("size", int64_t{3})},
       {},
       "2: m.onnx: node 'n' (LRN) sums over the channels of 'x', which end at a length of run time"},
      {"ReduceMean", {-1, 4, -2, -3}, {a("axes", kOne)}, {}, "Pad Reduce Pad 0:S1 2:S2 3:S3"},
      {"TopK",
       {-2},
       {},
       {tensor("k", Ints{5})},
       "2: m.onnx: node #0 'n' (TopK, opset 17): K is 5, axis 0 of input [4] has 4 elements; that is with S2=4"},
  };
  for (const Row& row : rows) {
    Model model(row.opset);
    model.input("x", row.x);
    std::vector<std::string> inputs = {"x"};
    for (const onnx::TensorProto& one : row.constants) {
      model.constant(one);
      inputs.push_back(one.name());
    }
    model.node(row.op, inputs, {"y"}, row.attributes, "n").output("y");
    CAPTURE(row.op);
    CHECK(read(model) == row.becomes);
  }
}

TEST_CASE("what importers fold follows the length") {
  Model model;
  model.input("x", {-1, 4}).constant(tensor("zero", Ints{0})).constant(scalar("none", int64_t{0})).constant(scalar("one", int64_t{1}));
  model.node("Shape", {"x"}, {"s"}).node("Gather", {"s", "none"}, {"l"});
  SECTION("numbers of Shape") {
    CHECK(read(model.node("Relu", {"x"}, {"y"}).output("y").output("s")) == "Pad Elementwise Pad Pad Reshape Reshape Reshape Concat 0:S1");
  }
  SECTION("a table of positions") {
    model.node("Range", {"none", "l", "one"}, {"r"}).constant(tensor("t", {9, 4}, numbers(36)));
    CHECK(read(model.node("Gather", {"t", "r"}, {"p"}).node("Add", {"x", "p"}, {"y"}).output("y").output("r")) ==
          "Pad Elementwise Pad Pad 0:S1 0:S1");
  }
  SECTION("a number that is no straight line") {
    model.node("Mul", {"l", "l"}, {"q"}).node("Cast", {"q"}, {"f"}, {attribute("to", int64_t{1})});
    CHECK(read(model.node("Div", {"x", "f"}, {"y"}).output("y")) == "Pad Pad Reshape Elementwise Elementwise Elementwise Pad 0:S1");
  }
  SECTION("a table of such numbers") {
    model.node("Range", {"none", "l", "one"}, {"r"}).node("Mul", {"r", "l"}, {"q"});
    CHECK(read(model.node("Relu", {"x"}, {"y"}).output("y").node("Neg", {"q"}, {"z"}).output("z")) ==
          "Pad Elementwise Pad Reshape Elementwise Elementwise Pad Pad 0:S1 0:S1");
  }
  SECTION("an extent that falls") {
    model.constant(tensor("c", Ints{20})).node("Sub", {"c", "l"}, {"d"}).node("Expand", {"one", "d"}, {"y"}).node("Relu", {"x"}, {"z"});
    CHECK(read(model.output("y").output("z")) == "2: m.onnx: output 'y' has a dimension that falls with a length");
  }
}

TEST_CASE("a Gather of all that there is, in order, is a Reshape") {
  Model model;
  model.input("x", {-3, -1}).constant(scalar("none", int64_t{0})).constant(scalar("one", int64_t{1})).constant(tensor("at", Ints{1}));
  model.node("Shape", {"x"}, {"s"}).node("Gather", {"s", "none"}, {"b"}).node("Gather", {"s", "one"}, {"l"});
  model.node("Range", {"none", "b", "one"}, {"r"}).node("Range", {"none", "l", "one"}, {"c"}).constant(tensor("flat", Ints{-1}));
  model.node("Unsqueeze", {"r", "at"}, {"r1"}).node("Mul", {"r1", "l"}, {"rows"}).node("Add", {"rows", "c"}, {"i"});
  model.node("Reshape", {"x", "flat"}, {"row"}).node("Gather", {"row", "i"}, {"g"}).node("Relu", {"g"}, {"y"}).output("y");
  CHECK(read(model) == "Pad Reshape Reshape Elementwise Pad 0:S3 1:S1");
}

TEST_CASE("rows that a Reshape joins stay apart until another has them apart") {
  Model model;
  model.input("x", {-3, -1, 4}).constant(tensor("rows", Ints{-1, 4})).constant(tensor("w", {4, 2}, numbers(8)));
  model.node("Shape", {"x"}, {"s"}).constant(tensor("front", Ints{0, 1})).constant(tensor("two", Ints{2}));
  model.node("Reshape", {"x", "rows"}, {"a"}).node("MatMul", {"a", "w"}, {"b"}).node("Gather", {"s", "front"}, {"f"});
  SECTION("a linear layer") {
    model.node("Concat", {"f", "two"}, {"to"}, {attribute("axis", int64_t{0})});
    CHECK(read(model.node("Reshape", {"b", "to"}, {"y"}).output("y")) == "Pad Reshape MatMul Reshape Reshape Pad 0:S3 1:S1");
  }
  SECTION("an output") {
    CHECK(read(model.output("b")) ==
          "Pad Reshape MatMul Reshape Pad Reshape Elementwise Elementwise Elementwise Elementwise Elementwise Reshape Gather Pad 0:S3*S1");
  }
  SECTION("what goes along rows") {
    model.node("CumSum", {"b", "none"}, {"y"}).constant(scalar("none", int64_t{0}));
    CHECK(read(model.output("y")) ==
          "Pad Reshape MatMul Reshape Pad Reshape Elementwise Elementwise Elementwise Elementwise Elementwise Reshape Gather CumSum Pad "
          "0:S3*S1");
  }
}
