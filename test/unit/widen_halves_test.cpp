// Models of half precision: f32 between their inputs and outputs, which keep 16 bits.
#include "compiler/passes/tidy/widen_halves.h"

#include <array>
#include <cstring>

#include "compiler/ops/ops.h"
#include "compiler/passes/place/assign_layout.h"
#include "compiler/passes/place/narrow_activations.h"
#include "compiler/passes/tidy/remove_identities.h"
#include "test/support/check_pass.h"

namespace tamp::test {
namespace {

// As the frontend reads a product, an activation and a sum of a model in half precision; the weights are an output, too, if asked for.
std::string half_model(const std::string& outputs, const std::string& half = "f16") {
  std::string text = R"(
    x = input H[2,4]
    i = input i64[2,1]
    w = const H[4,4]
    w32 = Elementwise(w) {cast(i0)} -> f32[4,4]
    x32 = Elementwise(x) {cast(i0)} -> f32[2,4]
    m32 = MatMul(x32, w32) {} -> f32[2,4]
    m = Elementwise(m32) {cast(i0)} -> H[2,4]
    g = Elementwise(m) {sigmoid(i0)} -> H[2,4]
    n = Elementwise(i) {cast(i0)} -> H[2,1]
    y = Elementwise(g, n) {mul(i0, i1)} -> H[2,4]
)";
  text += outputs + "\n";
  for (size_t at = text.find("H["); at != std::string::npos; at = text.find("H[")) text.replace(at, 1, half);
  return text;
}

Graph widened(const std::string& text) { return passes::widen_halves(parse_graph(text)); }

Graph with_ports(const Graph& graph, DType to, const passes::Takes& takes) {
  const Graph placed = passes::assign_layout(graph);
  const Graph made = passes::narrow_activations(placed, to, takes);
  verify(made);
  return made;
}

}  // namespace

TEST_CASE("a model of 16 bits is one of f32 between its inputs and outputs") {
  for (const auto& [half, dtype] : {std::pair{"f16", DType::f16}, std::pair{"bf16", DType::bf16}}) {
    Graph source = parse_graph(half_model("outputs(y)", half));
    const std::array<uint16_t, 4> first = dtype == DType::f16 ? std::array<uint16_t, 4>{0x3c00, 0x3800, 0x4000, 0x8000}
                                                              : std::array<uint16_t, 4>{0x3f80, 0x3f00, 0x4000, 0x8000};
    Bytes bytes(32);
    std::memcpy(bytes.data(), first.data(), sizeof first);
    for (Tensor& tensor : source.tensors) {
      if (tensor.name == "w") tensor.data = std::make_shared<const Bytes>(bytes);
    }
    const Graph made = passes::remove_identities(passes::widen_halves(source));
    ops::verify_shapes(made);
    CHECK(made.input_types == std::vector<DType>{dtype, DType::i64});
    CHECK(made.output_types == std::vector<DType>{dtype});
    for (const Tensor& tensor : made.tensors) CHECK((tensor.dtype == DType::f32 || tensor.dtype == DType::i64));
    CHECK(made.rops.size() == 4);  // the product, the sigmoid, the integers' cast, the other product
    const Tensor& weights = tensor_named(made, "w");
    CHECK(std::vector<float>(f32_data(weights), f32_data(weights) + 4) == std::vector<float>{1, 0.5F, 2, 0});
  }
}

TEST_CASE("a constant that is an output keeps its type there") {
  const Graph made = widened(half_model("outputs(y, w)"));
  ops::verify_shapes(made);
  CHECK(made.tensor(made.outputs[1]).dtype == DType::f16);
  CHECK(made.output_types == std::vector<DType>{DType::f16, DType::f16});
}

TEST_CASE("a model without 16 bits stays as it is") {
  const Graph source = parse_graph("x = input f32[2]\ny = Elementwise(x) {relu(i0)} -> f32[2]\noutputs(y)\n");
  const Graph made = passes::widen_halves(source);
  CHECK(print(made) == print(source));
  CHECK(made.input_types.empty());
}

TEST_CASE("ports of 16 bits are read and written where they lie, if bodies take them") {
  const Graph source = passes::remove_identities(widened(half_model("outputs(y)")));
  const Graph made = with_ports(source, DType::f16, [](const Graph&, const ROperator&) { return true; });
  CHECK(made.rops.size() == source.rops.size());
  CHECK(made.tensor(made.inputs[0]).dtype == DType::f16);
  CHECK(made.tensor(made.outputs[0]).dtype == DType::f16);
  CHECK(made.buffers[made.tensor(made.inputs[0]).place.buffer.index()].narrowed);
}

TEST_CASE("ports of 16 bits are cast where no body takes them, or the program's type is another") {
  const Graph source = passes::remove_identities(widened(half_model("outputs(y)")));
  const auto none = [](const Graph&, const ROperator&) { return false; };
  const auto all = [](const Graph&, const ROperator&) { return true; };
  for (const Graph& made : {with_ports(source, DType::f16, none), with_ports(source, DType::bf16, all)}) {
    CHECK(made.rops.size() == source.rops.size() + 2);
    CHECK(made.rops.front().inputs[0] == made.inputs[0]);
    CHECK(made.rops.back().outputs[0] == made.outputs[0]);
    CHECK(made.tensor(made.inputs[0]).dtype == DType::f16);
    CHECK(made.tensor(made.outputs[0]).dtype == DType::f16);
    CHECK(made.tensor(made.outputs[0]).name == "y");
    for (const TensorId id : {made.rops.front().outputs[0], made.rops.back().inputs[0]}) {
      const Buffer& buffer = made.buffers[made.tensor(id).place.buffer.index()];
      CHECK(buffer.kind == BufferKind::arena);
      CHECK(buffer.dtype == DType::f32);
    }
  }
}

TEST_CASE("an output that is an input of 16 bits keeps its type") {
  const Graph source = widened("x = input f16[2]\ny = Elementwise(x) {relu(i0)} -> f16[2]\noutputs(y, x)\n");
  CHECK(source.output_types == std::vector<DType>{DType::f16, DType::f16});
  const Graph made = with_ports(source, DType::f16, [](const Graph&, const ROperator&) { return true; });
  for (const TensorId id : made.outputs) CHECK(made.tensor(id).dtype == DType::f16);
}

}  // namespace tamp::test
