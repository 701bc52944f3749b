// Weights of few bits: how they lie in a file, what they stand for, and what is refused.
#include <cmath>
#include <limits>

#include "compiler/ops/ops.h"
#include "test/support/catch.h"
#include "test/support/onnx_model.h"

namespace tamp {
namespace {

using namespace test;

// ONNX's numbers of the types that the installed onnx.proto may lack.
enum Type : int {
  kE4m3fn = 17,
  kE4m3fnuz = 18,
  kE5m2 = 19,
  kE5m2fnuz = 20,
  kU4 = 21,
  kI4 = 22,
  kE2m1 = 23,
  kE8m0 = 24,
  kU2 = 25,
  kI2 = 26
};

onnx::TensorProto raw(const std::string& name, int type, const Shape& shape, const std::vector<int>& bytes) {
  onnx::TensorProto proto;
  proto.set_name(name);
  proto.set_data_type(type);
  for (const int64_t extent : shape) proto.add_dims(extent);
  std::string text;
  for (const int byte : bytes) text.push_back(static_cast<char>(byte));
  proto.set_raw_data(text);
  return proto;
}

onnx::TensorProto in_fields(const std::string& name, int type, const Shape& shape, const std::vector<int>& values) {
  onnx::TensorProto proto = raw(name, type, shape, {});
  proto.clear_raw_data();
  for (const int value : values) proto.add_int32_data(value);
  return proto;
}

// The model's output, without inputs.
Floats constants_of(const Model& model) {
  const Graph graph = model.read();
  return floats_of(ops::run(graph, {})[0]);
}

// `value` cast to f32.
Floats cast(const onnx::TensorProto& value) {
  Model model(23);
  return constants_of(model.constant(value).node("Cast", {value.name()}, {"y"}, {attribute("to", 1)}).output("y"));
}

Model& microsoft(Model& model) {
  model.proto.mutable_graph()->mutable_node(model.proto.graph().node_size() - 1)->set_domain("com.microsoft");
  return model;
}

// y = DequantizeLinear(w, scale): w of 4 x 4 bits "0 1 .. 15" along one row or four.
Model dequantized(const Shape& shape, const onnx::TensorProto& scale, const Attributes& attributes, int type = kU4) {
  Model model(21);
  model.constant(raw("w", type, shape, {0x10, 0x32, 0x54, 0x76, 0x98, 0xba, 0xdc, 0xfe})).constant(scale);
  model.node("DequantizeLinear", {"w", scale.name()}, {"y"}, attributes, "dq").output("y");
  return model;
}

// x[1,32] times 2 columns of 32 weights in blocks of 16.
struct NBits {
  std::vector<int> b = std::vector<int>(32, 0x98);
  Shape b_shape = {2, 2, 8}, scales_shape = {2, 2};
  Floats scales = {1, 2, 3, 4};
  Attributes attributes = {attribute("K", 32), attribute("N", 2), attribute("bits", 4), attribute("block_size", 16)};
  std::vector<std::string> operands = {"x", "b", "scales"};

  Model model() const {
    Model made(17);
    made.input("x", {1, 32}).constant(raw("b", 2, b_shape, b)).constant(tensor("scales", scales_shape, scales));
    made.constant(raw("zeros", 2, {2, 1}, {0x87, 0x79})).constant(tensor("float_zeros", {2, 2}, {8.5F, 8, 7, 8}));
    made.node("MatMulNBits", operands, {"y"}, attributes, "mm");
    return microsoft(made).output("y");
  }
  Floats run() const {
    const Graph graph = model().read();
    return floats_of(ops::run(graph, {value({1, 32}, Floats(32, 1))})[0]);
  }
};

}  // namespace

TEST_CASE("integers of four and two bits lie side by side, the lowest bits first") {
  CHECK(cast(raw("w", kU4, {3}, {0x21, 0x0f})) == Floats{1, 2, 15});
  CHECK(cast(raw("w", kI4, {3}, {0x81, 0x0f})) == Floats{1, -8, -1});
  CHECK(cast(raw("w", kU2, {5}, {0b11100100, 0b10})) == Floats{0, 1, 2, 3, 2});
  CHECK(cast(raw("w", kI2, {4}, {0b11100100})) == Floats{0, 1, -2, -1});
  CHECK(cast(in_fields("w", kI4, {3}, {0x81, 0x0f})) == Floats{1, -8, -1});
}

TEST_CASE("bytes of small integers that are too few or do not fit are refused") {
  const auto of = [](const onnx::TensorProto& value) {
    return refusal(Model(21).constant(value).node("Cast", {"w"}, {"y"}, {attribute("to", 1)}).output("y"));
  };
  CHECK(of(raw("w", kI4, {5}, {1, 2})) == "1: m.onnx: initializer 'w': holds 2 bytes, its shape and type need 3");
  CHECK(of(in_fields("w", kI4, {2}, {256})) == "1: m.onnx: initializer 'w': value 256 of element 0 does not fit u8");
}

TEST_CASE("floats of eight and four bits") {
  const auto nan = [](float x) { return std::isnan(x); };
  constexpr float kInf = std::numeric_limits<float>::infinity();
  CHECK(cast(raw("w", kE4m3fn, {5}, {0x38, 0x7e, 0x01, 0x80, 0xfe})) == Floats{1, 448, 1.0F / 512, -0.0F, -448});
  CHECK(cast(raw("w", kE4m3fnuz, {3}, {0x40, 0x7f, 0x01})) == Floats{1, 240, 1.0F / 1024});
  CHECK(cast(raw("w", kE5m2, {4}, {0x3c, 0x7b, 0x01, 0xfc})) == Floats{1, 57344, 1.0F / 65536, -kInf});
  CHECK(cast(raw("w", kE5m2fnuz, {3}, {0x40, 0x7f, 0x01})) == Floats{1, 57344, 1.0F / 131072});
  CHECK(cast(raw("w", kE2m1, {8}, {0x10, 0x32, 0x54, 0xf6})) == Floats{0, 0.5F, 1, 1.5F, 2, 3, 4, -6});
  CHECK(cast(raw("w", kE8m0, {3}, {127, 0, 130})) == Floats{1, std::ldexp(1.0F, -127), 8});
  for (const auto& [type, pattern] : {std::pair(kE4m3fn, 0xff), {kE4m3fnuz, 0x80}, {kE5m2, 0x7d}, {kE5m2fnuz, 0x80}, {kE8m0, 0xff}})
    CHECK(nan(cast(raw("w", type, {1}, {pattern}))[0]));
}

TEST_CASE("a cast to a float of few bits rounds to nearest, ties to even") {
  const auto rounded = [](const Floats& values, int type, int saturate) {
    Model model(19);
    model.constant(tensor("x", {static_cast<int64_t>(values.size())}, values));
    model.node("Cast", {"x"}, {"q"}, {attribute("to", type), attribute("saturate", saturate)});
    return constants_of(model.node("Cast", {"q"}, {"y"}, {attribute("to", 1)}).output("y"));
  };
  CHECK(rounded({17, 19, 0.3F, 463, 464, 1000, -1000, 1.0F / 1024, 3.0F / 1024}, kE4m3fn, 1) ==
        Floats{16, 20, 0.3125F, 448, 448, 448, -448, 0, 2.0F / 512});
  CHECK(std::isnan(rounded({1000}, kE4m3fn, 0)[0]));
  CHECK(rounded({-70000, 9, 1e-9F}, kE5m2, 0) == Floats{-std::numeric_limits<float>::infinity(), 8, 0});
  CHECK(std::isnan(rounded({70000}, kE5m2fnuz, 0)[0]));
  CHECK(rounded({250, -1e-9F}, kE4m3fnuz, 1) == Floats{240, 0});
}

TEST_CASE("a cast to an integer of few bits keeps the lowest ones") {
  const auto kept = [](int type) {
    Model model(21);
    model.constant(tensor("x", {4}, {3.7F, -2, 17, 9})).node("Cast", {"x"}, {"q"}, {attribute("to", type)});
    return constants_of(model.node("Cast", {"q"}, {"y"}, {attribute("to", 1)}).output("y"));
  };
  CHECK(kept(kU4) == Floats{3, 14, 1, 9});
  CHECK(kept(kI4) == Floats{3, -2, 1, -7});
}

TEST_CASE("a scale for each block") {
  CHECK(constants_of(dequantized({16}, tensor("s", {4}, {1, 10, 100, 1000}), {attribute("axis", 0), attribute("block_size", 4)})) ==
        Floats{0, 1, 2, 3, 40, 50, 60, 70, 800, 900, 1000, 1100, 12000, 13000, 14000, 15000});
  CHECK(constants_of(
            dequantized({4, 4}, tensor("s", {2, 4}, {1, 2, 3, 4, 5, 6, 7, 8}), {attribute("axis", 0), attribute("block_size", 3)})) ==
        Floats{0, 2, 6, 12, 4, 10, 18, 28, 8, 18, 30, 44, 60, 78, 98, 120});
  CHECK(constants_of(dequantized({16}, tensor("s", {}, {0.5F}), {}, kI4)) ==
        Floats{0, 0.5F, 1, 1.5F, 2, 2.5F, 3, 3.5F, -4, -3.5F, -3, -2.5F, -2, -1.5F, -1, -0.5F});
}

TEST_CASE("scales that do not fit their blocks are refused") {
  const Attributes blocks = {attribute("axis", 0), attribute("block_size", 5)};
  CHECK(
      refusal(dequantized({16}, tensor("s", {3}, {1, 2, 3}), blocks)) ==
      "1: m.onnx: node #0 'dq' (DequantizeLinear, opset 21): x_scale has shape [3], expected [4]: one for each 5 elements (block_size) of "
      "dimension 0 of [16]");
  CHECK(refusal(dequantized({16}, tensor("s", {}, {1}), {attribute("axis", 0), attribute("block_size", -1)})) ==
        "1: m.onnx: node #0 'dq' (DequantizeLinear, opset 21): attribute 'block_size' is -1, expected 0 or more");
}

TEST_CASE("scales that are powers of two need the type of the result") {
  Model model(23);
  model.constant(raw("w", kE2m1, {4}, {0x21, 0x43})).constant(raw("s", kE8m0, {2}, {128, 126}));
  const Attributes blocks = {attribute("axis", 0), attribute("block_size", 2)};
  Attributes typed = blocks;
  typed.push_back(attribute("output_dtype", 1));
  Model untyped = model;
  untyped.node("DequantizeLinear", {"w", "s"}, {"y"}, blocks, "dq").output("y");
  CHECK(refusal(untyped) ==
        "1: m.onnx: node #0 'dq' (DequantizeLinear, opset 23): x_scale is FLOAT8E8M0, and there is no attribute 'output_dtype', expected "
        "one");
  CHECK(constants_of(model.node("DequantizeLinear", {"w", "s"}, {"y"}, typed).output("y")) == Floats{1, 2, 0.75F, 1});
}

TEST_CASE("one constant for all nodes that dequantise the same weights") {
  Model model(21);
  model.input("x", {1, 4}).constant(raw("w", kI4, {4, 4}, {1, 2, 3, 4, 5, 6, 7, 8})).constant(tensor("s", {}, {0.5F}));
  for (const std::string name : {"a", "b"}) model.node("DequantizeLinear", {"w", "s"}, {name + "w"});
  model.node("MatMul", {"x", "aw"}, {"h"}).node("MatMul", {"h", "bw"}, {"y"}).output("y");
  const Graph graph = model.read();
  REQUIRE(graph.rops.size() == 2);
  CHECK(graph.rops[0].inputs[1] == graph.rops[1].inputs[1]);
}

TEST_CASE("weights may be larger than what is folded, but only once") {
  constexpr int64_t kRows = 2048, kColumns = 65536;  // 64 MiB as the file has them, 512 as floats
  onnx::TensorProto weights = raw("w", kI4, {kRows * kColumns}, {});
  weights.set_raw_data(std::string(kRows * kColumns / 2, '\x21'));
  Model model(21);
  model.input("x", {1, kRows}).constant(weights).constant(tensor("to", Ints{kRows, kColumns}));
  model.constant(tensor("s", {}, {0.5F})).constant(tensor("t", {}, {0.25F})).node("Reshape", {"w", "to"}, {"r"});
  model.node("DequantizeLinear", {"r", "s"}, {"f"}).node("MatMul", {"x", "f"}, {"y"}).output("y");
  CHECK(model.read().rops.size() == 1);
  model.node("DequantizeLinear", {"r", "t"}, {"g"}, {}, "again").node("MatMul", {"x", "g"}, {"z"}).output("z");
  CHECK_THAT(refusal(model),
             Catch::Contains("'again' (DequantizeLinear, opset 21): would make a constant of 512.0 MB, at most 64.0 MB are folded"));
}

TEST_CASE("small types are refused where they would not be told from those that hold them") {
  Model add(21);
  add.input("x", {2}).constant(raw("w", kI4, {2}, {0x21})).node("Add", {"w", "w"}, {"y"}, {}, "n").output("y");
  CHECK(refusal(add) ==
        "2: m.onnx: node #0 'n' (Add, opset 21): input 0 ('w') is INT4, supported: as an operand of DequantizeLinear, Cast, and operators "
        "that "
        "move elements");
  Model output(21);
  output.input("x", {2}).constant(raw("s", 22, {}, {0})).constant(tensor("scale", {}, {1}));
  output.node("QuantizeLinear", {"x", "scale", "s"}, {"y"}).output("y");
  CHECK(refusal(output) ==
        "2: m.onnx: graph output 'y' has element type INT4, supported: floats of 16, 32 and 64 bits, bfloat16, integers of 8 to 64 bits, "
        "bool; "
        "add a Cast or DequantizeLinear behind it");
  Model input(21);
  input.input("x", {2}, kE4m3fn).node("Identity", {"x"}, {"y"}).output("y");
  CHECK_THAT(refusal(input), Catch::Contains("input 'x' has element type FLOAT8E4M3FN, supported: floats of 16"));
  Model power(23);
  power.input("x", {2})
      .node("Cast", {"x"}, {"q"}, {attribute("to", kE8m0)}, "c")
      .node("Cast", {"q"}, {"y"}, {attribute("to", 1)})
      .output("y");
  CHECK_THAT(refusal(power), Catch::Contains("casts to FLOAT8E8M0, supported: as the type of constants, and casts from it"));
}

TEST_CASE("integers of four bits at run time saturate at their own bounds, and move as the type that holds them") {
  Model model(21);
  model.input("x", {1, 4}).constant(raw("zero", kI4, {}, {0})).constant(tensor("scale", {}, {2})).constant(tensor("to", Ints{4}));
  model.node("QuantizeLinear", {"x", "scale", "zero"}, {"q"}).node("Reshape", {"q", "to"}, {"r"});
  model.node("DequantizeLinear", {"r", "scale", "zero"}, {"y"}).output("y");
  const Graph graph = model.read();
  CHECK(floats_of(ops::run(graph, {value({1, 4}, {100, -100, 5, -3})})[0]) == Floats{14, -16, 4, -4});
}

TEST_CASE("MatMulNBits: weights by blocks along K, zero points of both kinds") {
  NBits plain;  // 0 and 1 by turns: 8 of each in a block
  CHECK(plain.run() == Floats{8 + 16, 24 + 32});
  NBits packed = plain;  // zero points 7, 8, 9, 7
  packed.operands.push_back("zeros");
  CHECK(packed.run() == Floats{24 + 16, -24 + 96});
  NBits floats = plain;
  floats.operands.push_back("float_zeros");
  CHECK(floats.run() == Floats{0 + 16, 72 + 32});
  NBits short_row = plain;  // the last block is not full
  short_row.attributes[0] = attribute("K", 24);
  CHECK_THAT(refusal(short_row.model()), Catch::Contains("input A has shape [1,32], expected [..,24]: its last dimension is K"));
}

TEST_CASE("MatMulNBits: what does not fit is refused") {
  const auto says = [](const NBits& model, const std::string& text) { CHECK_THAT(refusal(model.model()), Catch::Contains(text)); };
  NBits b;
  b.b_shape = {2, 4, 4};
  says(b, "node #0 'mm' (com.microsoft.MatMulNBits, opset 1): input 1 (B) has shape [2,4,4], expected [2,2,8]");
  NBits scales;
  scales.scales_shape = {4, 1};
  says(scales, "input 2 (scales) has shape [4,1], expected [2,2]");
  NBits bits;
  bits.attributes[2] = attribute("bits", 3);
  says(bits, "2: m.onnx: node #0 'mm' (com.microsoft.MatMulNBits, opset 1): attribute 'bits' is 3, supported: 2, 4, 8");
  NBits block;
  block.attributes[3] = attribute("block_size", 24);
  says(block, "attribute 'block_size' is 24, expected a power of 2 from 16 on");
  NBits k;
  k.attributes.erase(k.attributes.begin());
  says(k, "attribute 'K' is missing");
  NBits prepacked;
  prepacked.attributes.push_back(attribute("weight_prepacked", 1));
  says(prepacked, "attribute 'weight_prepacked' is not 0");
  NBits zeros;
  zeros.operands = {"x", "b", "scales", "scales", "", "zeros"};
  says(zeros, "operands of different types: f32 and u8");

  Model run_time(17);
  run_time.input("x", {1, 32}).input("b", {2, 2, 8}, onnx::TensorProto::UINT8).constant(tensor("scales", {2, 2}, {1, 2, 3, 4}));
  run_time.node("MatMulNBits", {"x", "b", "scales"}, {"y"}, NBits().attributes, "mm");
  CHECK_THAT(refusal(microsoft(run_time).output("y")),
             Catch::Contains("input 1 (B, tensor 'b') is known only at run time, supported: a constant"));
}

TEST_CASE("GatherBlockQuantized: rows of a packed table") {
  Model model(17);
  std::vector<int> rows;
  for (int i = 0; i < 16; ++i) rows.push_back(i < 8 ? 0x98 : 0xa8);
  model.input("ids", {1}, onnx::TensorProto::INT64).constant(raw("table", 2, {2, 8}, rows)).constant(tensor("scales", {2, 1}, {1, 3}));
  model.node("GatherBlockQuantized", {"table", "ids", "scales"}, {"y"}, {attribute("block_size", 16)}, "g");
  const Graph graph = microsoft(model).output("y").read();
  const ops::Value one = ops::raw_value<int64_t>(DType::i64, {1}, {1});
  CHECK(floats_of(ops::run(graph, {one})[0]) == Floats{0, 6, 0, 6, 0, 6, 0, 6, 0, 6, 0, 6, 0, 6, 0, 6});
  Model wrong = model;
  *wrong.proto.mutable_graph()->mutable_initializer(1) = tensor("scales", {1, 2}, {1, 3});
  CHECK_THAT(refusal(wrong), Catch::Contains("input 2 (scales) has shape [1,2], expected [2,1]"));
}

TEST_CASE("operators of ONNX Runtime's quantiser have one scale for a tensor") {
  Model model(17);
  model.input("x", {2}, onnx::TensorProto::UINT8).constant(tensor("s", {2}, {1, 2}));
  model.node("QLinearSigmoid", {"x", "s", "", "s"}, {"y"}, {}, "n");
  CHECK_THAT(refusal(microsoft(model).output("y")), Catch::Contains("input 1, a scale, has shape [2], expected one element"));
}

}  // namespace tamp
