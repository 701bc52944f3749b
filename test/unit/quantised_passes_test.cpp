// Passes of quantised models: integers become floats that hold them, and scales go into weights.
#include <catch2/catch.hpp>
#include <cmath>
#include <string>
#include <vector>

#include "compiler/ir/products.h"
#include "compiler/ops/ops.h"
#include "compiler/passes/fuse/fuse_elementwise.h"
#include "compiler/passes/fuse/fuse_epilogue.h"
#include "compiler/passes/fuse/fuse_sums.h"
#include "compiler/passes/fuse/repeat_scalars.h"
#include "compiler/passes/tidy/canonicalise.h"
#include "compiler/passes/tidy/carry_integers.h"
#include "compiler/passes/tidy/fold_scales.h"
#include "compiler/passes/tidy/move_scales.h"
#include "compiler/passes/tidy/round_before_views.h"
#include "compiler/passes/tidy/scale_products.h"
#include "kernels/narrow.h"
#include "test/support/graph_text.h"

using namespace tamp;

namespace {

std::string kinds(const Graph& graph) {
  std::string text;
  for (const ROperator& rop : graph.rops) {
    const ElementwiseStep* const step = single_step(rop);
    text += (text.empty() ? "" : " ") + std::string(step ? name_of(step->op) : name_of(rop.attrs));
  }
  return text;
}

// What the first output is for numbers that lie on no tie.
std::vector<float> answer(const Graph& graph) {
  std::vector<ops::Value> inputs;
  for (const TensorId id : graph.inputs) {
    const Tensor& tensor = graph.tensor(id);
    std::vector<float> values(static_cast<size_t>(element_count(tensor.shape)));
    for (size_t i = 0; i < values.size(); ++i) values[i] = 0.37F * static_cast<float>(static_cast<int>(i * 7 % 23) - 11) + 0.013F;
    inputs.push_back(ops::raw_value(DType::f32, tensor.shape, values));
  }
  const ops::Value made = ops::run(graph, inputs).at(0);
  if (made.dtype == DType::f32) return ops::raw_numbers<float>(made);
  std::vector<float> numbers;
  for (const uint8_t q : ops::raw_numbers<uint8_t>(made)) numbers.push_back(q);
  return numbers;
}

void check_same(const Graph& before, const Graph& after) {
  tamp::verify(after);
  ops::verify_shapes(after);
  const std::vector<float> wanted = answer(before), found = answer(after);
  REQUIRE(wanted.size() == found.size());
  for (size_t i = 0; i < wanted.size(); ++i) CHECK(found[i] == Approx(wanted[i]).margin(1e-5));
}

Graph tidied(Graph graph) {
  return passes::fuse_epilogue(passes::fold_scales(passes::canonicalise(passes::scale_products(passes::carry_integers(std::move(graph))))));
}

// x, quantised with scale 0.5 and zero point 3, times integers, as DequantizeLinear of `result` with the scale of both.
std::string integer_product(const std::string& rest) {
  return R"(
    x = input f32[2,4]
    scale = const f32[] {0.5}
    three = const f32[] {3}
    zero = const i32[] {3}
    w = const i32[4,3] {1, -2, 3, 127, 5, -6, 7, 0, -128, 10, -11, 12}
    scales = const f32[3] {0.01, 0.02, 0.03}
    a = Elementwise(x, scale) {div(i0, i1)} -> f32[2,4]
    b = Elementwise(a) {round(i0)} -> f32[2,4]
    c = Elementwise(b, three) {add(i0, i1)} -> f32[2,4]
    d = Elementwise(c) {clip(i0; 0, 255)} -> f32[2,4]
    q = Elementwise(d) {cast(i0)} -> u8[2,4]
    i = Elementwise(q) {cast(i0)} -> i32[2,4]
    s = Elementwise(i, zero) {sub(i0, i1)} -> i32[2,4]
    m = MatMul(s, w) -> i32[2,3]
    n = Elementwise(m) {cast(i0)} -> f32[2,3]
)" + rest;
}

}  // namespace

TEST_CASE("a product of quantised integers becomes one of floats") {
  const Graph graph = test::parse_graph(integer_product(R"(
    y = Elementwise(n, scales) {mul(i0, i1)} -> f32[2,3]
    z = Elementwise(y) {neg(i0)} -> f32[2,3]
    outputs(z)
  )"));
  const Graph made = passes::carry_integers(graph);
  CHECK(kinds(made) == "div rounded MatMul mul neg");
  CHECK(single_step(made.rops[1])->a == -3);  // without the zero point
  CHECK(single_step(made.rops[1])->b == 252);
  check_same(graph, made);
  CHECK(kinds(tidied(graph)) == "div rounded MatMul neg");  // the scale is in the weights
}

TEST_CASE("integers that are an output stay beside the floats that carry them") {
  const Graph graph = test::parse_graph(integer_product(R"(
    y = Elementwise(n, scales) {mul(i0, i1)} -> f32[2,3]
    outputs(q, y)
  )"));
  const Graph made = passes::carry_integers(graph);
  check_same(graph, made);
  CHECK(made.tensor(made.outputs[0]).dtype == DType::u8);
}

TEST_CASE("sums of integers that are read as integers stay integers where floats would round them") {
  // 300 products of at most 255 * 32767 are more than 2^24.
  std::string weights;
  for (int i = 0; i < 300; ++i) weights += i == 0 ? "32767" : ", 32767";
  const auto graph_of = [&](const std::string& last) {
    return test::parse_graph(R"(
      x = input f32[1,300]
      zero = const i32[] {0}
      w = const i32[300,1] {)" +
                             weights + R"(}
      b = Elementwise(x) {round(i0)} -> f32[1,300]
      d = Elementwise(b) {clip(i0; 0, 255)} -> f32[1,300]
      q = Elementwise(d) {cast(i0)} -> u8[1,300]
      i = Elementwise(q) {cast(i0)} -> i32[1,300]
      m = MatMul(i, w) -> i32[1,1]
)" + last);
  };
  CHECK(kinds(passes::carry_integers(graph_of("outputs(m)"))) == "round clip cast cast MatMul");
  const Graph floats =
      passes::carry_integers(graph_of("n = Elementwise(m) {cast(i0)} -> f32[1,1]\n z = Elementwise(n) {neg(i0)} -> f32[1,1]\n outputs(z)"));
  CHECK(kinds(floats) == "rounded MatMul neg");
}

TEST_CASE("a cast that cuts off is no quantisation") {
  const Graph graph = test::parse_graph(R"(
    x = input f32[1,8]
    d = Elementwise(x) {clip(i0; 0, 255)} -> f32[1,8]
    q = Elementwise(d) {cast(i0)} -> u8[1,8]
    y = Elementwise(q) {cast(i0)} -> f32[1,8]
    outputs(y)
  )");
  CHECK(kinds(passes::carry_integers(graph)) == "clip cast cast");
}

TEST_CASE("quantised layers are products that round") {
  const Graph graph = test::parse_graph(R"(
    x = input f32[1,2,4,4]
    sx = const f32[] {0.25}
    sy = const f32[] {0.5}
    sz = const f32[] {0.125}
    w = const f32[2,2,1,1] {0.3, -0.6, 0.9, 1.2}
    bias = const f32[2] {0.25, -0.5}
    v = const f32[2,2,1,1] {0.02, 0.04, -0.06, 0.08}
    a = Elementwise(x, sx) {div(i0, i1)} -> f32[1,2,4,4]
    b = Elementwise(a) {rounded(i0; -128, 127)} -> f32[1,2,4,4]
    c = Elementwise(b, sx) {mul(i0, i1)} -> f32[1,2,4,4]
    p = MaxPool(c) {kernel=[2,2], strides=[2,2], pads=[0,0,0,0]} -> f32[1,2,2,2]
    d = Conv(p, w, bias) {kernel=[1,1]} -> f32[1,2,2,2]
    e = Elementwise(d) {relu(i0)} -> f32[1,2,2,2]
    f = Elementwise(e, sy) {div(i0, i1)} -> f32[1,2,2,2]
    g = Elementwise(f) {rounded(i0; -128, 127)} -> f32[1,2,2,2]
    h = Elementwise(g, sy) {mul(i0, i1)} -> f32[1,2,2,2]
    i = Conv(h, v) {kernel=[1,1]} -> f32[1,2,2,2]
    j = Elementwise(i, sz) {div(i0, i1)} -> f32[1,2,2,2]
    k = Elementwise(j) {rounded(i0; -128, 127)} -> f32[1,2,2,2]
    l = Elementwise(k, sz) {mul(i0, i1)} -> f32[1,2,2,2]
    outputs(l)
  )");
  const Graph made = tidied(graph);
  CHECK(kinds(made) == "div rounded MaxPool Conv Conv mul");
  CHECK(made.rops[3].epilogue.activation == Activation::rounded);
  CHECK(made.rops[3].epilogue.a == 0);  // the relu
  CHECK(made.rops[4].epilogue.a == -128);
  CHECK(holds_whole_numbers(made, made.rops[3].inputs[0]));
  CHECK(holds_whole_numbers(made, made.rops[4].inputs[0]));
  CHECK_FALSE(holds_whole_numbers(made, made.outputs[0]));
  check_same(graph, made);
}

TEST_CASE("a product of two quantised tensors has their scales as its factor, and rounds") {
  const Graph graph = test::parse_graph(R"(
    x = input f32[2,4]
    w = input f32[4,3]
    s = const f32[] {0.25}
    t = const f32[] {0.5}
    u = const f32[] {0.125}
    a = Elementwise(x) {rounded(i0; -128, 127)} -> f32[2,4]
    b = Elementwise(a, s) {mul(i0, i1)} -> f32[2,4]
    c = Elementwise(w) {rounded(i0; -128, 127)} -> f32[4,3]
    d = Elementwise(c, t) {mul(i0, i1)} -> f32[4,3]
    m = MatMul(b, d) -> f32[2,3]
    e = Elementwise(m, u) {div(i0, i1)} -> f32[2,3]
    f = Elementwise(e) {rounded(i0; -50, 50)} -> f32[2,3]
    outputs(f)
  )");
  const Graph made = tidied(graph);
  CHECK(kinds(made) == "rounded rounded MatMul");
  CHECK(std::get<MatMul>(made.rops[2].attrs).alpha == Approx(1));  // 0.25 * 0.5 / 0.125
  CHECK(made.rops[2].epilogue.activation == Activation::rounded);
  check_same(graph, made);
}

TEST_CASE("a number behind the product of two quantised tensors is its factor") {
  const Graph graph = test::parse_graph(R"(
    x = input f32[2,4]
    w = input f32[4,3]
    s = const f32[] {0.2}
    a = Elementwise(x) {rounded(i0; -128, 127)} -> f32[2,4]
    c = Elementwise(w) {rounded(i0; -128, 127)} -> f32[4,3]
    m = MatMul(a, c) -> f32[2,3]
    e = Elementwise(m, s) {mul(i0, i1)} -> f32[2,3]
    f = Elementwise(e) {rounded(i0; -50, 50)} -> f32[2,3]
    outputs(f)
  )");
  const Graph made = tidied(graph);
  CHECK(kinds(made) == "rounded rounded MatMul");
  CHECK(std::get<MatMul>(made.rops[2].attrs).alpha == 0.2F);
  check_same(graph, made);
}

TEST_CASE("a quantised tensor is normalised by its whole numbers") {
  const Graph graph = test::parse_graph(R"(
    x = input f32[2,8]
    s = const f32[] {0.25}
    a = Elementwise(x) {rounded(i0; -128, 127)} -> f32[2,8]
    b = Elementwise(a, s) {mul(i0, i1)} -> f32[2,8]
    y = Normalize(b) {axes=[1], epsilon=0.5} -> f32[2,8]
    outputs(y)
  )");
  const Graph made = passes::scale_products(graph);
  CHECK(kinds(made) == "rounded Normalize");
  CHECK(std::get<Normalize>(made.rops[1].attrs).epsilon == Approx(8));
  check_same(graph, made);
}

TEST_CASE("a sum with a constant and a product of quantised tensors are steps of whole numbers") {
  const std::string text = R"(
    x = input f32[2,4]
    s = const f32[] {0.25}
    t = const f32[] {0.5}
    u = const f32[] {0.13}
    c = const f32[4] {0.3, -0.2, 0.7, 0.1}
    a = Elementwise(x) {rounded(i0; -128, 127)} -> f32[2,4]
    b = Elementwise(a, s) {mul(i0, i1)} -> f32[2,4]
)";
  const Graph shifted = test::parse_graph(text + R"(
    d = Elementwise(c, b) {add(i0, i1)} -> f32[2,4]
    e = Elementwise(d, u) {div(i0, i1)} -> f32[2,4]
    f = Elementwise(e) {rounded(i0; -50, 50)} -> f32[2,4]
    outputs(f)
  )");
  CHECK(kinds(passes::scale_products(shifted)) == "rounded mul add rounded");
  check_same(shifted, passes::scale_products(shifted));
  const Graph multiplied = test::parse_graph(text + R"(
    w = input f32[1,4]
    g = Elementwise(w) {rounded(i0; 0, 255)} -> f32[1,4]
    h = Elementwise(g, t) {mul(i0, i1)} -> f32[1,4]
    d = Elementwise(b, h) {mul(i0, i1)} -> f32[2,4]
    e = Elementwise(d, u) {div(i0, i1)} -> f32[2,4]
    f = Elementwise(e) {rounded(i0; -50, 50)} -> f32[2,4]
    outputs(f)
  )");
  CHECK(kinds(passes::scale_products(multiplied)) == "rounded rounded mul mul rounded");
  check_same(multiplied, passes::scale_products(multiplied));
  const Graph factors = test::parse_graph(text + R"(
    d = Elementwise(b, u) {div(i0, i1)} -> f32[2,4]
    e = Elementwise(d) {erf(i0)} -> f32[2,4]
    outputs(e)
  )");
  CHECK(kinds(passes::scale_products(factors)) == "rounded mul erf");
  check_same(factors, passes::scale_products(factors));
}

TEST_CASE("the mean of a quantised tensor is that of its whole numbers") {
  const Graph graph = test::parse_graph(R"(
    x = input f32[1,2,4,4]
    s = const f32[] {0.25}
    u = const f32[] {0.13}
    a = Elementwise(x) {rounded(i0; -128, 127)} -> f32[1,2,4,4]
    b = Elementwise(a, s) {mul(i0, i1)} -> f32[1,2,4,4]
    m = Reduce(b) {kind=mean, axes=[2,3]} -> f32[1,2,1,1]
    e = Elementwise(m, u) {div(i0, i1)} -> f32[1,2,1,1]
    f = Elementwise(e) {rounded(i0; -50, 50)} -> f32[1,2,1,1]
    outputs(f)
  )");
  const Graph made = passes::scale_products(graph);
  CHECK(kinds(made) == "rounded Reduce mul rounded");
  CHECK(!holds_whole_numbers(made, made.rops[1].outputs[0]));
  check_same(graph, made);
}

TEST_CASE("whole numbers that are divided by the scale they were multiplied with are themselves") {
  const Graph graph = test::parse_graph(R"(
    x = input f32[1,8]
    s = const f32[] {0.3}
    b = Elementwise(x) {rounded(i0; 0, 100)} -> f32[1,8]
    c = Elementwise(b, s) {mul(i0, i1)} -> f32[1,8]
    d = Elementwise(c, s) {div(i0, i1)} -> f32[1,8]
    e = Elementwise(d) {rounded(i0; 0, 127)} -> f32[1,8]
    f = Elementwise(e) {neg(i0)} -> f32[1,8]
    outputs(f)
  )");
  CHECK(kinds(passes::scale_products(graph)) == "rounded neg");
  check_same(graph, passes::scale_products(graph));
}

TEST_CASE("a sum of two quantised tensors is quantised in the later product") {
  const Graph graph = test::parse_graph(R"(
    x = input f32[1,2,4,4]
    s = const f32[] {0.5}
    t = const f32[] {0.25}
    u = const f32[] {0.75}
    w = const f32[2,2,1,1] {0.3, -0.6, 0.9, 1.2}
    b = Elementwise(x) {rounded(i0; -128, 127)} -> f32[1,2,4,4]
    c = Elementwise(b, s) {mul(i0, i1)} -> f32[1,2,4,4]
    d = Conv(c, w) {kernel=[1,1]} -> f32[1,2,4,4]
    e = Elementwise(d, t) {div(i0, i1)} -> f32[1,2,4,4]
    f = Elementwise(e) {rounded(i0; -128, 127)} -> f32[1,2,4,4]
    g = Elementwise(f, t) {mul(i0, i1)} -> f32[1,2,4,4]
    h = Elementwise(g, c) {add(i0, i1)} -> f32[1,2,4,4]
    i = Elementwise(h) {relu(i0)} -> f32[1,2,4,4]
    j = Elementwise(i, u) {div(i0, i1)} -> f32[1,2,4,4]
    k = Elementwise(j) {rounded(i0; -128, 127)} -> f32[1,2,4,4]
    outputs(k)
  )");
  const Graph chain = passes::fuse_elementwise(tidied(graph));
  check_same(graph, chain);
  const auto shorter = [](const Graph& of) { return static_cast<double>(of.rops.size()); };
  const Graph made = passes::fuse_sums(chain, shorter);
  CHECK(kinds(made) == "rounded Conv");
  const Epilogue& epilogue = made.rops[1].epilogue;
  REQUIRE(epilogue.sum);
  CHECK(epilogue.sum->scale == Approx(0.25 / 0.75));
  CHECK(epilogue.sum->residual_scale == Approx(0.5 / 0.75));
  CHECK(epilogue.sum->low == 0);
  CHECK(epilogue.residual == made.rops[0].outputs[0]);
  CHECK(holds_whole_numbers(made, made.outputs[0]));
  check_same(graph, made);
  CHECK(kinds(passes::fuse_sums(chain, [](const Graph& of) { return -static_cast<double>(of.rops.size()); })) == kinds(chain));
}

TEST_CASE("sums of a kind that gains are fused without those of another") {
  const Graph graph = test::parse_graph(R"(
    x = input f32[1,2,4,4]
    w = const f32[2,2,1,1]
    v = const f32[3,2,1,1]
    u = const f32[3,3,1,1]
    s = const f32[] {0.5}
    t = const f32[] {0.25}
    q = Elementwise(x) {rounded(i0; -8, 7)} -> f32[1,2,4,4]
    a = Conv(q, w) {kernel=[1,1]} epilogue{act=rounded, a=-128, b=127} -> f32[1,2,4,4]
    b = Elementwise(a, s, q, t) {mul(i0, i1), mul(i2, i3), add(s0, s1), rounded(s2; -128, 127)} -> f32[1,2,4,4]
    c = Conv(b, v) {kernel=[1,1]} epilogue{act=rounded, a=-128, b=127} -> f32[1,3,4,4]
    d = Conv(c, u) {kernel=[1,1]} epilogue{act=rounded, a=-128, b=127} -> f32[1,3,4,4]
    e = Elementwise(d, s, c, t) {mul(i0, i1), mul(i2, i3), add(s0, s1), rounded(s2; -128, 127)} -> f32[1,3,4,4]
    outputs(e)
  )");
  // No body has sums of `channels` channels.
  const auto without = [](int64_t channels) {
    return [channels](const Graph& of) {
      const auto is_sum = [&](const ROperator& rop) { return rop.epilogue.sum && of.tensor(rop.outputs[0]).shape[1] == channels; };
      const bool has = std::any_of(of.rops.begin(), of.rops.end(), is_sum);
      return has ? 100 : static_cast<double>(of.rops.size());
    };
  };
  CHECK(kinds(passes::fuse_sums(graph, without(0))) == "rounded Conv Conv Conv");
  const Graph of_three = passes::fuse_sums(graph, without(2)), of_two = passes::fuse_sums(graph, without(3));
  CHECK(of_three.rops.size() == graph.rops.size() - 1);
  CHECK(of_three.rops.back().epilogue.sum);
  CHECK(of_two.rops.size() == graph.rops.size() - 1);
  CHECK(of_two.rops[1].epilogue.sum);
  check_same(graph, of_three);
  check_same(graph, of_two);
}

TEST_CASE("a quantisation goes in front of the views that move what it quantises") {
  const std::string text = R"(
    x = input f32[2,6]
    s = const f32[] {0.3}
    e = Elementwise(x) {exp(i0)} -> f32[2,6]
    a = Reshape(e) -> f32[2,3,2]
    b = Transpose(a) {perm=[1,0,2]} -> f32[3,2,2]
    c = Elementwise(b, s) {div(i0, i1)} -> f32[3,2,2]
    y = Elementwise(c) {rounded(i0; -128, 127)} -> f32[3,2,2]
)";
  const Graph graph = test::parse_graph(text + "outputs(y)");
  const Graph made = passes::round_before_views(graph);
  CHECK(kinds(made) == "exp div rounded Reshape Transpose");
  check_same(graph, made);
  for (const char* outputs : {"outputs(y, b)", "outputs(y, c)"})  // somebody else reads it
    CHECK(kinds(passes::round_before_views(test::parse_graph(text + outputs))).ends_with("div rounded"));
}

// A bias behind the rounding of a product, as a linear layer has it that is quantised operator by operator.
std::string shifted_product(const std::string& bias) {
  return R"(
    x = input f32[2,4]
    w = const f32[4,3] {1, -2, 3, 127, 5, -6, 7, 0, -128, 10, -11, 12}
    s = const f32[] {0.31}
    b = const f32[3] )" +
         bias + R"(
    q = Elementwise(x) {rounded(i0; -8, 7)} -> f32[2,4]
    m = MatMul(q, w) {alpha=0.0625} epilogue{act=rounded, a=-128, b=127} -> f32[2,3]
    y = Elementwise(m, s, b) {mul(i0, i1), add(s0, i2), rounded(s1; -128, 127)} -> f32[2,3]
    outputs(y)
)";
}

TEST_CASE("a bias of whole steps behind a rounding is the residual of the product") {
  const auto shorter = [](const Graph& of) { return static_cast<double>(of.rops.size()); };
  const Graph graph = test::parse_graph(shifted_product("{2.4, -9.6, 25.2}"));  // 2, -8 and 21 steps of 1.2
  const Graph made = passes::fuse_sums(graph, shorter);
  CHECK(kinds(made) == "rounded MatMul");
  const Epilogue& epilogue = made.rops[1].epilogue;
  REQUIRE(epilogue.sum);
  CHECK(epilogue.sum->scale == Approx(0.31));
  CHECK(epilogue.sum->residual_scale == Approx(1.2));
  const Tensor& residual = made.tensor(epilogue.residual);
  CHECK(residual.dtype == DType::f16);
  CHECK(residual.shape == Shape{2, 3});
  check_same(graph, made);
  // Of a program whose results have 32 bits.
  const auto wide = [&](const Graph& of) {
    const bool narrow = std::any_of(of.tensors.begin(), of.tensors.end(), [](const Tensor& tensor) { return tensor.dtype == DType::f16; });
    return narrow ? 100 : shorter(of);
  };
  const Graph wider = passes::fuse_sums(graph, wide);
  REQUIRE(kinds(wider) == "rounded MatMul");
  CHECK(wider.tensor(wider.rops[1].epilogue.residual).dtype == DType::f32);
  check_same(graph, wider);
  // No whole steps: 16 bits would round it.
  CHECK(kinds(passes::fuse_sums(test::parse_graph(shifted_product("{2.41234, -9.63171, 25.2}")), shorter)) == "rounded MatMul Elementwise");
}

// What DynamicQuantizeLinear and MatMulInteger become: whole numbers of a range that is found at run time, times integers.
std::string dynamic_product(const std::string& rest) {
  return R"(
    x = input f32[2,4]
    zero = const f32[] {0}
    steps = const f32[] {255}
    w = const f32[4,3] {1, -2, 3, 127, 5, -6, 7, 0, -128, 10, -11, 12}
    ws = const f32[] {0.01}
    bias = const f32[3] {1, -2, 3}
    most = Reduce(x) {kind=max, axes=[0,1], keepdims=0} -> f32[]
    least = Reduce(x) {kind=min, axes=[0,1], keepdims=0} -> f32[]
    low = Elementwise(least, zero) {min(i0, i1)} -> f32[]
    range = Elementwise(most, zero, low) {max(i0, i1), sub(s0, i2)} -> f32[]
    scale = Elementwise(range, steps) {div(i0, i1)} -> f32[]
    point = Elementwise(low, scale) {neg(i0), div(s0, i1), rounded(s1; 0, 255)} -> f32[]
    both = Elementwise(scale, ws) {mul(i0, i1)} -> f32[]
    q = Elementwise(x, scale, point) {div(i0, i1), round(s0), add(s1, i2), clip(s2; 0, 255), sub(s3, i2)} -> f32[2,4]
    m = MatMul(q, w) -> f32[2,3]
    y = Elementwise(m, both) {mul(i0, i1)} -> f32[2,3]
    z = Elementwise(y, bias) {add(i0, i1)} -> f32[2,3]
)" + rest;
}

TEST_CASE("a scale of run time goes in front of the product") {
  const Graph graph = test::parse_graph(dynamic_product("outputs(z)"));
  const Graph made = passes::fuse_epilogue(passes::move_scales(graph));
  check_same(graph, made);
  REQUIRE(std::holds_alternative<MatMul>(made.rops.back().attrs));
  CHECK(made.rops.back().epilogue.bias.valid());
  CHECK(f32_data(made.tensor(made.rops.back().inputs[1]))[3] == Approx(1.27F));  // the weights' scale is in them
}

TEST_CASE("two products of one dynamic quantisation share what is scaled") {
  const Graph graph = test::parse_graph(dynamic_product(R"(
    v = const f32[4,2] {1, 2, 3, 4, 5, 6, 7, 8}
    vs = const f32[2] {0.5, 0.25}
    other = Elementwise(scale, vs) {mul(i0, i1)} -> f32[2]
    n = MatMul(q, v) -> f32[2,2]
    u = Elementwise(n, other) {mul(i0, i1)} -> f32[2,2]
    outputs(z, u)
  )"));
  const Graph made = passes::move_scales(graph);
  check_same(graph, made);
  CHECK(made.rops.size() + 3 == graph.rops.size());  // no both, other, y and u, but q.scaled
}

TEST_CASE("a scale stays behind a product of what is no chain, and behind one that something else reads") {
  for (const char* const rest : {"outputs(m, z)",
                                 "p = Transpose(x) {perm=[0,1]} -> f32[2,4]\n o = MatMul(p, w) -> f32[2,3]\n"
                                 "r = Elementwise(o, scale) {mul(i0, i1)} -> f32[2,3]\n outputs(r)"}) {
    const Graph graph = test::parse_graph(dynamic_product(rest));
    CHECK(kinds(passes::move_scales(graph)) == kinds(remove_dead(graph)));
  }
}

TEST_CASE("each chain computes the single numbers that it reads") {
  const Graph graph = test::parse_graph(dynamic_product("outputs(z)"));
  const auto shorter = [](const Graph& of) { return static_cast<double>(of.rops.size()); };
  const Graph chains = passes::fuse_elementwise(graph);
  const Graph made = passes::repeat_scalars(chains, shorter);
  check_same(graph, made);
  CHECK(kinds(made) == "Reduce Reduce Elementwise MatMul Elementwise");
  for (const ROperator& rop : made.rops) {
    const auto* const chain = std::get_if<Elementwise>(&rop.attrs);
    CHECK((!chain || (chain->steps.size() <= passes::kMostChainSteps && rop.inputs.size() <= passes::kMostChainInputs)));
  }
  CHECK(kinds(passes::repeat_scalars(chains, [](const Graph& of) { return -static_cast<double>(of.rops.size()); })) == kinds(chains));
  CHECK(kinds(passes::repeat_scalars(chains, {})) == kinds(chains));
}

TEST_CASE("a single number with too many steps for a chain is computed once") {
  std::string text = "x = input f32[2,4]\n t = Reduce(x) {kind=max, axes=[0,1], keepdims=0} -> f32[]\n";
  std::string last = "t";
  for (int i = 0; i < 3; ++i) {
    const std::string next = "s" + std::to_string(i);
    text += next + " = Elementwise(" + last + ") {tanh(i0), tanh(s0), tanh(s1), tanh(s2), tanh(s3), tanh(s4)} -> f32[]\n";
    last = next;
  }
  const Graph graph = test::parse_graph(text + "y = Elementwise(x, s2) {mul(i0, i1)} -> f32[2,4]\n outputs(y)");
  const Graph made = passes::repeat_scalars(graph, [](const Graph& of) { return static_cast<double>(of.rops.size()); });
  check_same(graph, made);
  CHECK(made.rops.size() == 3);  // of 12 steps, all of x and the last 13 together
}

TEST_CASE("the scale of halves is the step of quantised weights") {
  const std::vector<float> quantised = {0.03F, -0.015F, 0.1F, 0.0F};
  CHECK(kernels::half_scale(quantised) == Approx(0.005F));
  for (const float w : quantised) {
    const float steps = w / kernels::half_scale(quantised);
    CHECK(kernels::float_of_half(kernels::half_of(steps)) == Approx(std::round(steps)));
  }
  const std::vector<float> others = {0.0301F, -0.0153F, 0.1F, 0.0777F};
  CHECK(kernels::half_scale(others) == std::ldexp(1.0F, kernels::half_exponent(others)));
  CHECK(kernels::half_scale(std::vector<float>{0, 0}) == std::ldexp(1.0F, kernels::half_exponent(std::vector<float>{0, 0})));
}
