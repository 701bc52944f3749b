// The fusion of a product that rounds and the chain behind it: which regions there are, and what becomes of them.
#include "kernels/tile/requantised.h"

#include "compiler/ir/products.h"
#include "compiler/passes/fuse/fuse_regions.h"
#include "test/support/catch.h"
#include "test/support/check_pass.h"
#include "test/support/graph_text.h"

namespace tamp::test {
namespace {

// A convolution of whole numbers with a chain behind it, of which i0 is the convolution, i1 to i3 are numbers and i4 is a row.
const std::string kConv = R"(
    x = input f32[2,8,4,4]
    forty = const f32[] {40}
    third = const f32[] {0.3}
    tenth = const f32[] {0.1}
    row = const f32[8,1,1] {10.25, -20.5, 0.125, 3, 4.25, -7.75, 0, 1}
    w = const f32[8,8,1,1]
    h = Elementwise(x, forty) {mul(i0, i1)} -> f32[2,8,4,4]
    q = Elementwise(h) {rounded(i0; -128, 127)} -> f32[2,8,4,4]
    c = Conv(q, w) {kernel=[1,1]} epilogue{act=rounded, a=-100, b=90} -> f32[2,8,4,4]
    y = Elementwise(CHAIN} -> f32[2,8,4,4]
)";
const std::string kMatMul = R"(
    x = input f32[5,8]
    forty = const f32[] {40}
    third = const f32[] {0.3}
    tenth = const f32[] {0.1}
    row = const f32[6] {10.25, -20.5, 0.125, 3, 4.25, -7.75}
    w = const f32[8,6]
    b = const f32[6]
    h = Elementwise(x, forty) {mul(i0, i1)} -> f32[5,8]
    q = Elementwise(h) {rounded(i0; -128, 127)} -> f32[5,8]
    c = MatMul(q, w) epilogue{bias=b, act=rounded, a=-100, b=90} -> f32[5,6]
    y = Elementwise(CHAIN} -> f32[5,6]
)";
const std::string kRow = "c, third, row) {mul(i0, i1), add(s0, i2), rounded(s1; -60, 70)";
const std::string kTable = "c, tenth, third) {mul(i0, i1), sigmoid(s0), mul(s0, s1), div(s2, i2), rounded(s3; -8, 40)";
const std::string kBoth =
    "c, third, row, tenth) {mul(i0, i1), add(s0, i2), rounded(s1; -60, 70), mul(s2, i3), gelu(s3), div(s4, i3), rounded(s5; -128, 127)";

std::string with_chain(const std::string& text, const std::string& chain) { return swapped(text, "CHAIN", chain) + "outputs(y)"; }
std::string depthwise(const std::string& text) { return swapped(swapped(text, "[8,8,1,1]", "[8,1,1,1]"), "[1,1]}", "[1,1], group=8}"); }

size_t count(const std::string& text) {
  const Graph graph = parse_graph(text);
  verify(graph);
  return kernels::requantised_products().regions(graph).size();
}

// The graph with the one region that it has.
Graph fused(const std::string& text) {
  const Graph graph = parse_graph(text);
  const auto shorter = [](const Graph& of) { return static_cast<double>(of.rops.size()); };
  const Graph made = passes::fuse_regions(graph, kernels::requantised_products(), shorter, {});
  check_pass(graph, made);
  REQUIRE(made.rops.size() == graph.rops.size() - 1);
  return made;
}

kernels::Requantised read_back(const Graph& graph) {
  const auto found = kernels::requantised_of(graph, graph.rops.back());
  REQUIRE(found);
  const auto range = whole_range(graph, graph.rops.back().outputs[0]);
  REQUIRE(range);
  CHECK(range->low == found->results.low);
  CHECK(range->high == found->results.high);
  CHECK(holds_whole_numbers(graph, graph.outputs[0]));
  return *found;
}

std::vector<float> numbers_of(const Graph& graph, TensorId id) {
  const Tensor& tensor = graph.tensor(id);
  return {f32_data(tensor), f32_data(tensor) + element_count(tensor.shape)};
}

TEST_CASE("a product and a row with a rounding become one rOperator") {
  for (const std::string& text : {kConv, kMatMul}) {
    const Graph graph = fused(with_chain(text, kRow));
    const kernels::Requantised found = read_back(graph);
    CHECK(found.scale == 0.3F);
    CHECK(found.low == -60);
    CHECK(found.high == 70);
    CHECK(numbers_of(graph, found.row)[1] == -20.5F);
    CHECK_FALSE(found.table.valid());
    CHECK(found.results.low == -60);
    CHECK(found.results.high == 70);
  }
}

TEST_CASE("a product and a function between two roundings become one rOperator") {
  for (const std::string& text : {kConv, kMatMul, depthwise(kConv)}) {
    const Graph graph = fused(with_chain(text, kTable));
    const kernels::Requantised found = read_back(graph);
    CHECK_FALSE(found.row.valid());
    CHECK(found.table_low == -100);
    const std::vector<float> table = numbers_of(graph, found.table);
    REQUIRE(table.size() == 191);
    CHECK(table[100] == 0);          // of 0
    CHECK(table[190] == 30);         // 9 * sigmoid(9) / 0.3
    CHECK(table[90] == -1);          // -1 * sigmoid(-1) / 0.3 = -0.9
    CHECK(found.results.low == -1);  // no number of the table is -8
    CHECK(found.results.high == 30);
  }
}

TEST_CASE("a product, a row and a table become one rOperator") {
  for (const std::string& text : {kConv, kMatMul}) {
    const Graph graph = fused(with_chain(text, kBoth));
    const kernels::Requantised found = read_back(graph);
    CHECK(found.scale == 0.3F);
    CHECK(found.row.valid());
    CHECK(found.low == -60);
    CHECK(found.high == 70);
    CHECK(found.table_low == -60);
    CHECK(numbers_of(graph, found.table).size() == 131);
    CHECK(numbers_of(graph, found.table).back() == 70);
    CHECK(found.results.high == 70);
  }
}

TEST_CASE("the product of a requantised product is one with the last results") {
  const Graph graph = fused(with_chain(kMatMul, kBoth));
  const kernels::Requantised found = read_back(graph);
  CHECK(std::holds_alternative<MatMul>(found.product.attrs));
  CHECK(found.product.outputs == graph.rops.back().outputs);
  CHECK(found.product.epilogue.bias.valid());
  CHECK(found.product.epilogue.a == -100);
  CHECK_FALSE(kernels::requantised_of(graph, graph.rops[0]));
}

TEST_CASE("depthwise convolutions take a table alone") {
  CHECK(count(with_chain(depthwise(kConv), kTable)) == 1);
  CHECK(count(with_chain(depthwise(kConv), kRow)) == 0);
  CHECK(count(with_chain(depthwise(kConv), kBoth)) == 0);
}

TEST_CASE("regions of a kind are equal for the estimates") {
  const auto kind = [](const std::string& text) { return kernels::requantised_products().regions(parse_graph(text)).at(0).kind; };
  CHECK(kind(with_chain(kConv, kTable)) == kind(with_chain(kConv, swapped(kTable, "sigmoid", "gelu"))));
  CHECK(kind(with_chain(kConv, kTable)) != kind(with_chain(kConv, kBoth)));
  CHECK(kind(with_chain(kConv, kRow)) != kind(with_chain(kConv, kBoth)));
  CHECK(kind(with_chain(kConv, kTable)) != kind(with_chain(depthwise(kConv), kTable)));
}

TEST_CASE("a product is left alone where the body makes no whole numbers of it") {
  const std::string text = with_chain(kConv, kTable), matmul = with_chain(kMatMul, kTable);
  REQUIRE(count(text) == 1);
  REQUIRE(count(matmul) == 1);
  CHECK(count(swapped(text, "outputs(y)", "outputs(y, c)")) == 0);  // somebody else reads the product
  CHECK(count(swapped(text, "outputs(y)", "z = Elementwise(c) {neg(i0)} -> f32[2,8,4,4]\n outputs(y, z)")) == 0);
  CHECK(count(swapped(text, "Conv(q", "Conv(h")) == 0);                       // of floats
  CHECK(count(swapped(text, "act=rounded, a=-100, b=90", "act=relu")) == 0);  // not rounded
  CHECK(count(swapped(text, "a=-100", "a=-200")) == 0);                       // to 291 numbers
  CHECK(count(swapped(text, "a=-100", "a=-99.5")) == 0);
  CHECK(count(swapped(text, "epilogue{", "epilogue{residual=h, ")) == 0);  // the sum of a block
  CHECK(count(swapped(matmul, "MatMul(q, w)", "MatMul(h, w)")) == 0);
  CHECK(count(swapped(matmul, "w = const f32[8,6]", "w = input f32[8,6]")) == 0);  // of two activations
  CHECK(count(swapped(text, "rounded(s3; -8, 40)", "relu(s3)")) == 0);             // the chain does not round
}

TEST_CASE("a product of one row is left to the bodies of one row") {
  std::string text = with_chain(kMatMul, kTable);
  for (const std::string from : {"[5,8]", "[5,8]", "[5,8]", "[5,6]", "[5,6]"}) text = swapped(text, from, "[1," + from.substr(3));
  CHECK(count(text) == 0);
}

TEST_CASE("a product that is both operands of the chain is one region") {
  const std::string text = with_chain(kConv, "c, tenth) {mul(i0, i1), mul(s0, i0), rounded(s1; 0, 255)");
  CHECK(count(text) == 1);
  fused(text);
}

}  // namespace
}  // namespace tamp::test
