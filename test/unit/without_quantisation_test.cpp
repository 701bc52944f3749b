// Estimates of a quantised model in floats.
#include "compiler/passes/tidy/without_quantisation.h"

#include <catch2/catch.hpp>

#include "compiler/ops/ops.h"
#include "test/support/graph_text.h"

using namespace tamp;

namespace {

// Of the rOperators' attributes.
std::string kinds(const Graph& graph) {
  std::string text;
  for (const ROperator& rop : graph.rops) text += std::string(text.empty() ? "" : " ") + name_of(rop.attrs);
  return text;
}

}  // namespace

TEST_CASE("a product of integers becomes one of floats, and what is around it goes") {
  const Graph graph = test::parse_graph(R"(
    x = input f32[1,8]
    scale = const f32[] {0.5}
    zero = const i32[] {3}
    w = const i32[8,4]
    scales = const f32[4]
    a = Elementwise(x, scale) {div(i0, i1)} -> f32[1,8]
    b = Elementwise(a) {round(i0)} -> f32[1,8]
    c = Elementwise(b) {clip(i0; 0, 255)} -> f32[1,8]
    q = Elementwise(c) {cast(i0)} -> u8[1,8]
    i = Elementwise(q) {cast(i0)} -> i32[1,8]
    s = Elementwise(i, zero) {sub(i0, i1)} -> i32[1,8]
    m = MatMul(s, w, none) -> i32[1,4]
    n = Elementwise(m) {cast(i0)} -> f32[1,4]
    y = Elementwise(n, scales) {mul(i0, i1)} -> f32[1,4]
    z = Elementwise(y) {relu(i0)} -> f32[1,4]
    outputs(z)
  )");
  const auto floats = passes::without_quantisation(graph);
  REQUIRE(floats);
  CHECK(floats->integer_products == 1);
  CHECK(floats->roundings == 1);
  CHECK(kinds(floats->graph) == "MatMul Elementwise");
  tamp::verify(floats->graph);
  ops::verify_shapes(floats->graph);
}

TEST_CASE("a QuantizeLinear with its DequantizeLinear is nothing") {
  const Graph graph = test::parse_graph(R"(
    x = input f32[1,8]
    scale = const f32[] {0.5}
    w = const f32[8,4]
    a = Elementwise(x, scale) {div(i0, i1)} -> f32[1,8]
    b = Elementwise(a) {round(i0)} -> f32[1,8]
    c = Elementwise(b) {clip(i0; -128, 127)} -> f32[1,8]
    q = Elementwise(c) {cast(i0)} -> i8[1,8]
    r = Reshape(q) -> i8[2,4]
    d = Elementwise(r) {cast(i0)} -> f32[2,4]
    e = Elementwise(d, scale) {mul(i0, i1)} -> f32[2,4]
    outputs(e)
  )");
  const auto floats = passes::without_quantisation(graph);
  REQUIRE(floats);
  CHECK(floats->integer_products == 0);
  CHECK(kinds(floats->graph) == "Reshape");
  CHECK_FALSE(passes::without_quantisation(test::parse_graph(R"(
    x = input f32[1,8]
    y = Elementwise(x) {round(i0)} -> f32[1,8]
    outputs(y)
  )")));
}

TEST_CASE("an embedding of integers is quantised, an output that is rounded is not") {
  const Graph embedding = test::parse_graph(R"(
    ids = input i64[4]
    table = const u8[100,8]
    w = const i32[8,4]
    scales = const f32[4]
    g = Gather(table, ids) {axis=0} -> u8[4,8]
    i = Elementwise(g) {cast(i0)} -> i32[4,8]
    m = MatMul(i, w, none) -> i32[4,4]
    n = Elementwise(m) {cast(i0)} -> f32[4,4]
    y = Elementwise(n, scales) {mul(i0, i1)} -> f32[4,4]
    outputs(y)
  )");
  const auto floats = passes::without_quantisation(embedding);
  REQUIRE(floats);
  CHECK(kinds(floats->graph) == "Gather MatMul");
  ops::verify_shapes(floats->graph);
  CHECK_FALSE(passes::without_quantisation(test::parse_graph(R"(
    x = input f32[1,8]
    scale = const f32[] {0.5}
    a = Elementwise(x, scale) {div(i0, i1)} -> f32[1,8]
    b = Elementwise(a) {round(i0)} -> f32[1,8]
    c = Elementwise(b) {clip(i0; 0, 255)} -> f32[1,8]
    q = Elementwise(c) {cast(i0)} -> u8[1,8]
    outputs(q)
  )")));
}
