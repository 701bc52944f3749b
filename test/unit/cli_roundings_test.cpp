// What answers of a quantised model may differ by, and that what differs for another reason is found.
#include <catch2/catch.hpp>
#include <cmath>

#include "compiler/cli/roundings.h"
#include "test/support/graph_text.h"

using namespace tamp;
using namespace tamp::cli;

namespace {

// QuantizeLinear with a scale of 0.125, DequantizeLinear, a product, and both again with a scale of 0.25.
std::string network(const std::string& weight_scale = "0.5", const std::string& last_scale = "0.25", const std::string& last_zero = "3") {
  return R"(
    x = input f32[16,64]
    w = const f32[64,32]
    scale = const f32[] {0.125}
    weight_scale = const f32[] {)" +
         weight_scale + R"(}
    scale2 = const f32[] {0.25}
    zero2 = const f32[] {3}
    last_zero = const i32[] {)" +
         last_zero + R"(}
    last_scale = const f32[] {)" +
         last_scale + R"(}
    a = Elementwise(x, scale) {div(i0, i1)} -> f32[16,64]
    b = Elementwise(a) {round(i0)} -> f32[16,64]
    c = Elementwise(b) {clip(i0; -128, 127)} -> f32[16,64]
    q = Elementwise(c) {cast(i0)} -> i8[16,64]
    d = Elementwise(q) {cast(i0)} -> f32[16,64]
    e = Elementwise(d, scale) {mul(i0, i1)} -> f32[16,64]
    v = Elementwise(w, weight_scale) {mul(i0, i1)} -> f32[64,32]
    m = MatMul(e, v) -> f32[16,32]
    f = Elementwise(m, scale2) {div(i0, i1)} -> f32[16,32]
    g = Elementwise(f) {round(i0)} -> f32[16,32]
    h = Elementwise(g, zero2) {add(i0, i1)} -> f32[16,32]
    i = Elementwise(h) {clip(i0; 0, 255)} -> f32[16,32]
    j = Elementwise(i) {cast(i0)} -> u8[16,32]
    k = Elementwise(j) {cast(i0)} -> i32[16,32]
    l = Elementwise(k, last_zero) {sub(i0, i1)} -> i32[16,32]
    n = Elementwise(l) {cast(i0)} -> f32[16,32]
    y = Elementwise(n, last_scale) {mul(i0, i1)} -> f32[16,32]
    r = Reshape(y) -> f32[512]
    s = Elementwise(m) {tanh(i0)} -> f32[16,32]
    outputs(r, s, j)
  )";
}

std::vector<ops::Value> input() {
  std::vector<float> values(16 * 64);
  for (size_t i = 0; i < values.size(); ++i) values[i] = std::sin(static_cast<float>(i * i % 977)) * 6;
  return {ops::raw_value(DType::f32, {16, 64}, values)};
}

struct Checked {
  Graph graph;
  Roundings roundings;
  std::vector<ops::Value> expected;
  std::vector<Distance> allowed;
};
Checked checked(Precision precision) {
  Checked made{test::parse_graph(network()), {}, {}, {}};
  made.roundings = roundings_of(made.graph);
  made.expected = ops::run(made.graph, input());
  made.allowed = allowed_distances(made.graph, made.roundings, input(), made.expected, precision);
  return made;
}

bool is_right(const Checked& checked, const std::vector<ops::Value>& got, size_t output) {
  const std::optional<double>& step = checked.roundings.steps[output];
  return is_within(distance(got[output], checked.expected[output], step), checked.allowed[output], step);
}

}  // namespace

TEST_CASE("the roundings of a quantised model are found, and the steps of its outputs") {
  const Roundings found = roundings_of(test::parse_graph(network()));
  CHECK(found.places.size() == 2);
  CHECK(found.bits == 8);
  REQUIRE(found.steps.size() == 3);
  CHECK(found.steps[0] == 0.25);
  CHECK_FALSE(found.steps[1]);  // through a product and a function
  CHECK(found.steps[2] == 1.0);
}

TEST_CASE("a model of floats has no roundings") {
  const Roundings found = roundings_of(test::parse_graph(R"(
    x = input f32[4]
    a = Elementwise(x) {round(i0)} -> f32[4]
    y = Elementwise(a) {cast(i0)} -> i32[4]
    outputs(y)
  )"));
  CHECK(found.places.empty());
  CHECK_FALSE(found.steps[0]);
}

TEST_CASE("a scale for each channel is no step of an output") {
  const Roundings found = roundings_of(test::parse_graph(R"(
    x = input f32[2,2]
    scales = const f32[2] {1, 2}
    a = Elementwise(x) {round(i0)} -> f32[2,2]
    b = Elementwise(a) {clip(i0; -128, 127)} -> f32[2,2]
    c = Elementwise(b) {cast(i0)} -> i8[2,2]
    d = Elementwise(c) {cast(i0)} -> f32[2,2]
    y = Elementwise(d, scales) {mul(i0, i1)} -> f32[2,2]
    outputs(y, c)
  )"));
  CHECK(found.places.size() == 1);
  CHECK_FALSE(found.steps[0]);
  CHECK(found.steps[1] == 1.0);
}

TEST_CASE("a few elements of a quantised output may differ by a step") {
  const Checked one = checked(Precision::fp32);
  CHECK(one.allowed[0].differ >= 1);
  CHECK(one.allowed[0].differ < 16);  // of 512
  std::vector<float> values = ops::raw_numbers<float>(one.expected[0]);
  values[7] += 0.25F;
  CHECK(is_right(one, {ops::raw_value(DType::f32, {512}, values)}, 0));
  values[7] += 1.25F;  // six steps
  CHECK_FALSE(is_right(one, {ops::raw_value(DType::f32, {512}, values)}, 0));
  values[7] = std::nanf("");
  CHECK_FALSE(is_right(one, {ops::raw_value(DType::f32, {512}, values)}, 0));
}

TEST_CASE("one element of few may go the other way") {
  const Roundings roundings{.places = {ROperatorId(0)}, .bits = 8, .steps = {1.0}};
  const Graph graph = test::parse_graph(R"(
    x = input f32[3]
    a = Elementwise(x) {round(i0)} -> f32[3]
    b = Elementwise(a) {clip(i0; 0, 255)} -> f32[3]
    y = Elementwise(b) {cast(i0)} -> u8[3]
    outputs(y)
  )");
  const std::vector<ops::Value> x = {ops::raw_value(DType::f32, {3}, std::vector<float>{10.2F, 100.3F, 200.1F})};
  const std::vector<ops::Value> expected = ops::run(graph, x);
  const std::vector<Distance> allowed = allowed_distances(graph, roundings, x, expected, Precision::fp32);
  const auto is_right = [&](std::vector<uint8_t> got) {
    return is_within(distance(ops::raw_value(DType::u8, {3}, got), expected[0], 1.0), allowed[0], 1.0);
  };
  CHECK(is_right({10, 100, 201}));
  CHECK_FALSE(is_right({10, 100, 202}));
  CHECK_FALSE(is_right({11, 101, 201}));
}

TEST_CASE("a wrong scale or zero point is no rounding") {
  for (const Precision precision : {Precision::fp32, Precision::tf32, Precision::fp16}) {
    const Checked one = checked(precision);
    const auto run = [](const std::string& text) { return ops::run(test::parse_graph(text), input()); };
    for (size_t output = 0; output < 3; ++output) CHECK(is_right(one, run(network()), output));
    const std::vector<ops::Value> weights = run(network("0.505"));
    CHECK_FALSE(is_right(one, weights, 0));
    CHECK_FALSE(is_right(one, weights, 2));
    CHECK_FALSE(is_right(one, run(network("0.5", "0.2525")), 0));
    CHECK_FALSE(is_right(one, run(network("0.5", "0.25", "4")), 0));
  }
}
