// Which buffers of a program in tf32 may be f16: bounds that hold for every input, and readers that round anyway.
#include "compiler/passes/place/value_bounds.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>

#include "compiler/ops/number.h"
#include "compiler/ops/ops.h"
#include "compiler/passes/place/assign_layout.h"
#include "kernels/narrow.h"
#include "test/support/catch.h"
#include "test/support/check_pass.h"
#include "test/support/graph_text.h"

using namespace tamp;
using namespace tamp::test;

namespace {

TensorId tensor_of(const Graph& graph, const std::string& name) {
  for (size_t i = 0; i < graph.tensors.size(); ++i) {
    if (graph.tensors[i].name == name) return TensorId(static_cast<uint32_t>(i));
  }
  FAIL("no tensor " << name);
  return {};
}

// A placed graph, its constants multiplied.
struct Model {
  Graph graph;

  explicit Model(const std::string& text) : graph(passes::assign_layout(parse_graph(text))) {}
  Model& times(const std::string& name, float factor, int64_t first = 0, int64_t count = INT64_MAX) {
    Tensor& tensor = graph.tensor(tensor_of(graph, name));
    std::vector<float> values(f32_data(tensor), f32_data(tensor) + element_count(tensor.shape));
    for (int64_t i = first; i < std::min(first + count, static_cast<int64_t>(values.size())); ++i) values[static_cast<size_t>(i)] *= factor;
    Bytes bytes(values.size() * sizeof(float));
    std::memcpy(bytes.data(), values.data(), bytes.size());
    tensor.data = std::make_shared<const Bytes>(std::move(bytes));
    return *this;
  }
  // Values that differ by a tenth from this.
  Model& to_about(const std::string& name, float value) {
    const Tensor& tensor = graph.tensor(tensor_of(graph, name));
    const std::vector<float> values(f32_data(tensor), f32_data(tensor) + element_count(tensor.shape));
    for (size_t i = 0; i < values.size(); ++i) times(name, value * (1 + 0.1F * values[i]) / values[i], static_cast<int64_t>(i), 1);
    return *this;
  }
  bool may(const std::string& name) const {
    passes::WeightNormsCache norms;
    const BufferId buffer = graph.tensor(tensor_of(graph, name)).place.buffer;
    return passes::half_use(graph, norms).buffers[buffer.index()];
  }
  bool may_compute(const std::string& result) const {
    passes::WeightNormsCache norms;
    const passes::HalfUse use = passes::half_use(graph, norms);
    for (size_t i = 0; i < graph.rops.size(); ++i) {
      if (graph.tensor(graph.rops[i].outputs[0]).name == result) return use.rops[i];
    }
    FAIL("nobody makes " << result);
    return false;
  }
};

// Feed-forward block of a transformer that normalises in front, behind a sum with constant positions: n and h are read by products alone,
// r by the next normalisation.
const char* const kBlock = R"(
  i = input f32[16,64]
  p = const f32[16,64]
  x = Elementwise(i, p) {add(i0, i1)} -> f32[16,64]
  s = const f32[64]
  b = const f32[64]
  w1 = const f32[64,128]
  b1 = const f32[128]
  w2 = const f32[128,64]
  t = const f32[64]
  w3 = const f32[64,8]
  n = Normalize(x, s, b) {axes=[1], epsilon=1e-5} -> f32[16,64]
  h = MatMul(n, w1) epilogue{bias=b1, act=gelu} -> f32[16,128]
  r = MatMul(h, w2) epilogue{residual=x} -> f32[16,64]
  m = Normalize(r, t) {axes=[1], epsilon=1e-5} -> f32[16,64]
  y = MatMul(m, w3) -> f32[16,8]
  outputs(y)
)";

TEST_CASE("normalised rows and what products make of them may be fp16, sums with the input may not") {
  const Model model(kBlock);
  CHECK(model.may("n"));
  CHECK(model.may("h"));
  CHECK(model.may("m"));
  CHECK_FALSE(model.may("r"));
  for (const char* product : {"h", "r", "y"}) CHECK(model.may_compute(product));
}

TEST_CASE("a scale decides: too large is no bound, too small loses bits") {
  CHECK(Model(kBlock).times("s", 1e3F).may("n"));
  CHECK_FALSE(Model(kBlock).times("s", 1e4F).may("n"));  // up to 8 * 1e4
  CHECK_FALSE(Model(kBlock).times("s", 1e4F).may_compute("h"));
  CHECK_FALSE(Model(kBlock).times("s", 1e-4F).times("b", 1e-4F).times("b1", 0).may("n"));
  CHECK(Model(kBlock).times("s", 1e-4F).times("b", 1e-4F).may("n"));  // what it loses is little beside b1
  CHECK_FALSE(Model(kBlock).times("b", 1e5F).may("n"));
  CHECK_FALSE(Model(kBlock).times("s", std::numeric_limits<float>::infinity(), 3, 1).may("n"));
}

TEST_CASE("weights decide about results, by the length of their rows where that is the smaller bound") {
  CHECK(Model(kBlock).times("w1", 300).may("h"));  // rows of about 4.6 * 300 by 8 at most; by sums of magnitudes 8 * 32 * 300
  CHECK_FALSE(Model(kBlock).times("w1", 3e3F).may("h"));
  CHECK(Model(kBlock).times("w1", 3e3F).may("n"));
  CHECK_FALSE(Model(kBlock).times("b1", 1e5F).may("h"));
  CHECK_FALSE(Model(kBlock).times("w1", 1e-5F).times("b1", 0).may_compute("h"));
}

// Rows normalised, a product, an activation, a product. `front` is behind the first product, `behind` behind the second.
Model between_products(const std::string& front, const std::string& behind = "") {
  return Model(R"(
    x = input f32[16,64]
    w = const f32[64,64]
    v = const f32[64,64]
    b = const f32[64]
    n = Normalize(x) {axes=[1], epsilon=1e-5} -> f32[16,64]
    a = MatMul(n, w) )" +
               front + R"( -> f32[16,64]
    y = MatMul(a, v) )" +
               behind + R"( -> f32[16,64]
    outputs(y)
  )");
}

TEST_CASE("values that an activation may make as small as it likes stay in fp32, others may be fp16") {
  for (const char* act :
       {"sigmoid", "silu", "gelu", "gelu_tanh", "hard_sigmoid, a=0.00001, b=0.5", "leaky_relu, a=0.00001", "clip, a=0, b=0.00001"}) {
    INFO(act);
    CHECK_FALSE(between_products(std::string("epilogue{act=") + act + "}").may("a"));
    CHECK_FALSE(between_products(std::string("epilogue{bias=b, act=") + act + "}").may("a"));
    CHECK(between_products(std::string("epilogue{act=") + act + "}").may("n"));
  }
  // What is small is so by a difference of large terms, whose errors in tf32 are larger, or is 0.
  for (const char* act : {"none", "relu", "tanh", "hard_swish", "hard_sigmoid, a=0.2, b=0.5", "leaky_relu, a=0.1", "clip, a=0, b=6"}) {
    INFO(act);
    CHECK(between_products(std::string("epilogue{act=") + act + "}").may("a"));
  }
}

TEST_CASE("small values may be fp16 where other terms of the sum are large whatever the input is") {
  for (const char* act : {"sigmoid", "silu", "gelu"}) {
    INFO(act);
    const std::string front = std::string("epilogue{act=") + act + "}";
    CHECK(between_products(front, "epilogue{bias=b}").may("a"));
    CHECK(between_products(front, "epilogue{residual=n}").may("a"));
    CHECK_FALSE(between_products(front, "epilogue{residual=x}").may("a"));  // an input may be as small
    CHECK_FALSE(between_products(front, "epilogue{bias=b}").times("b", 1e-4F).may("a"));
    CHECK_FALSE(between_products(front, "epilogue{bias=b}").times("v", 1e6F).may("a"));
  }
}

TEST_CASE("a bias that is the same in all columns is no term, since a normalisation takes it away") {
  Model model = between_products("epilogue{act=sigmoid}", "epilogue{bias=b}");
  const float first = *f32_data(model.graph.tensor(tensor_of(model.graph, "b")));
  for (int64_t i = 0; i < 64; ++i) {
    const float value = f32_data(model.graph.tensor(tensor_of(model.graph, "b")))[i];
    model.times("b", first / value, i, 1);
  }
  CHECK_FALSE(model.may("a"));
}

TEST_CASE("operands that a fused normalisation lacks are none, whatever lies behind its list of operands") {
  const Model model(R"(
    x = input f32[16,64]
    r = input f32[16,64]
    w = const f32[64,64]
    v = const f32[64,8]
    s = const f32[64]
    n = Fused(x, w) {title=rows, steps=[s = MatMul(i0, i1) -> f32[16,64]; t = Normalize(s) {axes=[1]} -> f32[16,64]; outputs(t)]} -> f32[16,64]
    a = MatMul(n, v) -> f32[16,8]
    m = Fused(x, w, r, s) {title=rows, steps=[s = MatMul(i0, i1) epilogue{residual=i2} -> f32[16,64]; t = Normalize(s, i3) {axes=[1]} -> f32[16,64]; outputs(t)]} -> f32[16,64]
    b = MatMul(m, v) -> f32[16,8]
    outputs(a, b)
  )");
  CHECK(model.may("n"));
  CHECK(model.may("m"));
}

TEST_CASE("what a fused MLP keeps to itself in fp16 follows the same rule") {
  const auto model = [](const std::string& act, const std::string& operand = "", const std::string& epilogue = "") {
    return Model(R"(
    x = input f32[16,32]
    t = Normalize(x) {axes=[1], epsilon=1e-5} -> f32[16,32]
    a = const f32[32,64]
    b = const f32[64,32]
    d = const f32[32]
    z = Fused(x, a, b)" +
                 operand +
                 R"() {title=MLP, steps=[n = Normalize(i0) {axes=[1], epsilon=1e-5} -> f32[16,32]; h = MatMul(n, i1) epilogue{act=)" + act +
                 R"(} -> f32[16,64]; s = MatMul(h, i2))" + epilogue + R"( -> f32[16,32]; outputs(s)]} -> f32[16,32]
    outputs(z)
  )");
  };
  CHECK_FALSE(model("gelu").may_compute("z"));
  CHECK_FALSE(model("silu", "", " epilogue{residual=i0}").may_compute("z"));
  CHECK(model("gelu", ", d", " epilogue{bias=i3}").may_compute("z"));
  CHECK(model("gelu", ", t", " epilogue{residual=i3}").may_compute("z"));
  CHECK(model("relu").may_compute("z"));
}

TEST_CASE("norms of a constant are of the rows that are asked for, however often it is used otherwise") {
  const Graph graph = parse_graph("w = const f32[64,8]\nx = input f32[1,64]\ny = MatMul(x, w) -> f32[1,8]\noutputs(y)");
  passes::WeightNormsCache norms;
  const Tensor& w = graph.tensor(tensor_of(graph, "w"));
  const double whole = norms.of(w, 1, false).largest_length;
  CHECK(norms.of(w, 64, false).largest_length < whole);
  CHECK(norms.of(w, 8, true).largest_length < whole);
}

TEST_CASE("a product with a row of weights that fp16 cannot hold stays in tf32, and so does what it reads") {
  Model model(kBlock);
  for (int64_t k = 0; k < 64; ++k) model.times("w3", 1e-6F, k * 8 + 5, 1);  // output 5
  CHECK_FALSE(model.may_compute("y"));
  CHECK_FALSE(model.may("m"));
  CHECK(model.may_compute("r"));
}

TEST_CASE("small weights are multiplied in fp16 where what is added to their product is large whatever the input is") {
  CHECK(Model(kBlock).times("w2", 1e-6F).may_compute("r"));
  CHECK(Model(kBlock).times("w2", 1e-6F).may("h"));
  CHECK_FALSE(Model(kBlock).times("w2", 1e-6F).times("p", 1e-4F).may_compute("r"));
  CHECK_FALSE(Model(kBlock).times("w2", 1e6F).may_compute("r"));
}

TEST_CASE("a normalisation of what may be far below the root of its epsilon gives small values") {
  const auto model = [](const std::string& act, const std::string& epsilon, const std::string& factors) {
    return Model(R"(
    x = input f32[16,64]
    w = const f32[64,64]
    v = const f32[64,64]
    s = const f32[64]
    t = const f32[64]
    n = Normalize(x) {axes=[1], epsilon=1e-5} -> f32[16,64]
    a = MatMul(n, w) epilogue{act=)" +
                 act + R"(} -> f32[16,64]
    p = MatMul(a, v) -> f32[16,64]
    m = Normalize(p)" +
                 factors + ") {axes=[1], epsilon=" + epsilon + R"(} -> f32[16,64]
    y = MatMul(m, v) -> f32[16,64]
    outputs(y)
  )");
  };
  CHECK_FALSE(model("sigmoid", "1e-5", "").may("m"));
  CHECK_FALSE(model("gelu", "1e-5", ", s").may("m"));
  CHECK(model("sigmoid", "0", "").may("m"));
  CHECK(model("sigmoid", "1e-5", ", s, t").may("m"));  // a shift is there in any case
  CHECK(model("relu", "1e-5", "").may("m"));
  CHECK_FALSE(model("relu", "1e-5", "").times("v", 1e-7F).may("m"));
}

TEST_CASE("who reads without rounding keeps a buffer in fp32") {
  CHECK_FALSE(Model(R"(
    x = input f32[16,64]
    w = const f32[64,64]
    n = Normalize(x) {axes=[1], epsilon=1e-5} -> f32[16,64]
    a = MatMul(n, w) -> f32[16,64]
    y = Elementwise(a, n) {mul(i0, i1)} -> f32[16,64]
    outputs(y)
  )")
                  .may("n"));
}

TEST_CASE("a depthwise convolution does not round what it reads") {
  const auto model = [](const std::string& weights, const std::string& group) {
    return Model("x = input f32[1,8,6,6]\nw = const f32[" + weights + R"(]
    v = const f32[8,8,1,1]
    n = Normalize(x) {axes=[1,2,3], epsilon=1e-5} -> f32[1,8,6,6]
    a = Conv(n, w) {kernel=[3,3], pads=[1,1,1,1])" +
                 group + R"(} -> f32[1,8,6,6]
    y = Conv(a, v) {kernel=[1,1]} -> f32[1,8,6,6]
    outputs(y)
  )");
  };
  CHECK_FALSE(model("8,1,3,3", ", group=8").may("n"));
  CHECK(model("8,8,3,3", "").may("n"));
  CHECK(model("8,8,3,3", "").may("a"));
}

TEST_CASE("a clip bounds, also with one end only") {
  const auto may = [](const std::string& ends) {
    return Model(R"(
    x = input f32[16,64]
    w = const f32[64,64]
    v = const f32[64,8]
    n = Normalize(x) {axes=[1], epsilon=1e-5} -> f32[16,64]
    a = MatMul(n, w) epilogue{act=clip, )" +
                 ends + R"(} -> f32[16,64]
    y = MatMul(a, v) -> f32[16,8]
    outputs(y)
  )")
        .times("w", 3e3F)
        .may("a");
  };
  CHECK(may("a=0, b=6"));
  CHECK_FALSE(may("a=0, b=inf"));
  CHECK_FALSE(may("a=-inf, b=6"));
  CHECK_FALSE(may("a=0, b=1e6"));
}

TEST_CASE("normalised rows may be a residual, other bounded values may not") {
  const Model model(R"(
    x = input f32[16,64]
    w = const f32[64,64]
    v = const f32[64,64]
    n = Normalize(x) {axes=[1], epsilon=1e-5} -> f32[16,64]
    a = MatMul(n, w) -> f32[16,64]
    r = MatMul(a, v) epilogue{residual=n} -> f32[16,64]
    q = MatMul(a, w) epilogue{residual=a} -> f32[16,64]
    y = Elementwise(r, q) {add(i0, i1)} -> f32[16,64]
    outputs(y)
  )");
  CHECK(model.may("n"));
  CHECK_FALSE(model.may("a"));
}

TEST_CASE("an unbounded operand, a model's input, is multiplied in tf32") {
  const Model model(R"(
    x = input f32[16,64]
    w = const f32[64,64]
    v = const f32[64,64]
    c = Elementwise(x) {identity(i0)} -> f32[16,64]
    a = MatMul(c, w) epilogue{act=relu} -> f32[16,64]
    y = MatMul(a, v) -> f32[16,64]
    outputs(y)
  )");
  CHECK_FALSE(model.may("a"));
  CHECK_FALSE(model.may_compute("a"));
}

TEST_CASE("attention is bounded by its values") {
  const std::string text = R"(
    x = input f32[2,16,64]
    wq = const f32[64,64]
    wk = const f32[64,64]
    wv = const f32[64,64]
    wo = const f32[64,64]
    n = Normalize(x) {axes=[2], epsilon=1e-5} -> f32[2,16,64]
    q = MatMul(n, wq) -> f32[2,16,64]
    k = MatMul(n, wk) -> f32[2,16,64]
    v = MatMul(n, wv) -> f32[2,16,64]
    a = Attention(q, k, v) {scale=0.125} -> f32[2,16,64]
    y = MatMul(a, wo) -> f32[2,16,64]
    outputs(y)
  )";
  for (const char* name : {"n", "q", "k", "v", "a"}) CHECK(Model(text).may(name));
  const Model large = Model(text).times("wv", 3e3F);
  CHECK_FALSE(large.may("v"));
  CHECK_FALSE(large.may("a"));
  CHECK_FALSE(large.may_compute("a"));
  CHECK_FALSE(large.may("q"));  // its only reader stays in tf32
  CHECK(large.may("n"));
}

TEST_CASE("copies carry what they copy, if their readers round it") {
  const Model model(R"(
    x = input f32[16,64]
    w = const f32[66,32]
    n = Normalize(x) {axes=[1], epsilon=1e-5} -> f32[16,64]
    p = Pad(n) {before=[0,1], after=[0,1]} -> f32[16,66]
    y = MatMul(p, w) -> f32[16,32]
    outputs(y)
  )");
  CHECK(model.may("p"));
  CHECK(model.may("n"));
  const Model added(R"(
    x = input f32[16,64]
    n = Normalize(x) {axes=[1], epsilon=1e-5} -> f32[16,64]
    p = Pad(n) {before=[0,1], after=[0,1]} -> f32[16,66]
    y = Elementwise(p) {relu(i0)} -> f32[16,66]
    outputs(y)
  )");
  CHECK_FALSE(added.may("p"));
  CHECK_FALSE(added.may("n"));
}

TEST_CASE("rows that attention within a Fused normalises stay in fp32, and its results are means of bounded values") {
  const auto model = [](const char* epilogue = "") {
    return Model(std::string(R"(
    x = input f32[16,64]
    u = const f32[64,64]
    w = const f32[64,192]
    b = const f32[192]
    p = const f32[32,8]
    r = MatMul(x, u) -> f32[16,64]
    a = Fused(r, w, b) {title=attention, steps=[n = Normalize(i0) {axes=[1], epsilon=1e-5} -> f32[16,64]; m = MatMul(n, i1) epilogue{bias=i2} -> f32[16,192]; c = Reshape(m) -> f32[16,6,32]; t = Transpose(c) {perm=[1,0,2]} -> f32[6,16,32]; q = Slice(t) {starts=[0,0,0], steps=[1,1,1]} -> f32[2,16,32]; k = Slice(t) {starts=[2,0,0], steps=[1,1,1]} -> f32[2,16,32]; v = Slice(t) {starts=[4,0,0], steps=[1,1,1]} -> f32[2,16,32]; a = Attention(q, k, v) {scale=0.18} -> f32[2,16,32]; outputs(a)]} -> f32[2,16,32]
    y = MatMul(a, p) )") +
                 epilogue + R"( -> f32[2,16,8]
    outputs(y)
  )");
  };
  Model plain = model();
  CHECK(!plain.may("r"));
  CHECK(plain.may("a"));
  CHECK(plain.may_compute("a"));
  // 8 times the length of a column of weights, plus the bias.
  CHECK(!model().times("w", 1e6F).may("a"));
  CHECK(!model().times("w", 1e6F).may_compute("a"));
  CHECK(!model().times("b", 1e6F).may("a"));
  CHECK(!model().times("w", 1e-7F).may_compute("a"));
}

TEST_CASE("pixels that a convolution normalises are bounded as rows of a normalisation are") {
  const char* const stem = R"(
    x = input f32[1,3,8,8]
    w = const f32[64,3,4,4]
    b = const f32[64]
    s = const f32[64]
    v = const f32[64,8]
    u = const f32[8,4]
    m = Fused(x, w, b, s) {title=normalised, steps=[c = Conv(i0, i1) {kernel=[4,4], strides=[4,4]} epilogue{bias=i2} -> f32[1,64,2,2]; t = Transpose(c) {perm=[0,2,3,1]} -> f32[1,2,2,64]; n = Normalize(t, i3) {axes=[3], epsilon=1e-05} -> f32[1,2,2,64]; outputs(n)]} -> f32[1,2,2,64]
    h = MatMul(m, v) -> f32[1,2,2,8]
    y = MatMul(h, u) -> f32[1,2,2,4]
    outputs(y)
  )";
  CHECK(Model(stem).may("m"));
  CHECK(Model(stem).may("h"));
  CHECK_FALSE(Model(stem).times("s", 1e6F).may("m"));
  CHECK_FALSE(Model(stem).may_compute("m"));  // it multiplies the image, which is not bounded
  CHECK(Model(stem).may_compute("h"));
}

TEST_CASE("rows that are read rounded may be fp16, the same rows beside them may not") {
  const Model model(R"(
    x = input f32[16,64]
    w = const f32[64,64]
    v = const f32[64,8]
    s, m, h = Fused(x, w) {title=front, steps=[s0 = MatMul(i0, i1) -> f32[16,64]; s1 = Moments(s0) -> f32[16,2,2]; s2 = Elementwise(s0) {identity(i0)} -> f32[16,64]; outputs(s0, s1, s2)]} -> f32[16,64], f32[16,2,2], f32[16,64]
    y = Fused(s, v, m, h) {title=behind, steps=[s0 = NormalizeBy(i0, i2, i3) {epsilon=1e-05} -> f32[16,64]; s1 = MatMul(s0, i1) -> f32[16,8]; outputs(s1)]} -> f32[16,8]
    outputs(y)
  )");
  CHECK(model.may("h"));
  CHECK_FALSE(model.may("s"));
  CHECK_FALSE(model.may("m"));
  CHECK(model.may_compute("y"));
  CHECK_FALSE(model.may_compute("s"));
}

TEST_CASE("the result that a fused MLP normalises is bounded by its scale") {
  const char* const text = R"(
    x = input f32[16,32]
    a = const f32[32,64]
    b = const f32[64,32]
    g = const f32[32]
    h = const f32[32]
    v = const f32[32,8]
    z = Fused(x, a, b, g, h) {title=MLP, steps=[n = Normalize(i0) {axes=[1], epsilon=1e-5} -> f32[16,32]; m = MatMul(n, i1) epilogue{act=gelu} -> f32[16,64]; s = MatMul(m, i2) epilogue{residual=i0} -> f32[16,32]; r = Normalize(s, i3, i4) {axes=[1], epsilon=1e-5} -> f32[16,32]; outputs(r)]} -> f32[16,32]
    y = MatMul(z, v) -> f32[16,8]
    outputs(y)
  )";
  CHECK(Model(text).may("z"));
  CHECK_FALSE(Model(text).times("g", 1e6F).may("z"));
  CHECK_FALSE(Model(swapped(text, "outputs(r)", "outputs(s)")).may("z"));  // x is not bounded
}

// Random rows, products, activations, sums and attention, with weights, biases and epsilons of all sizes.
std::string random_rows(std::mt19937& random) {
  const auto pick = [&](int most) { return std::uniform_int_distribution<int>(0, most)(random); };
  std::string text = "x = input f32[16,32]\nu = input f32[16,32]\n";
  std::vector<std::string> rows = {"x", "u"};
  int constants = 0;
  const auto constant = [&](const char* type) {
    text += fmt::format("c{} = const f32[{}]\n", constants, type);
    return fmt::format("c{}", constants++);
  };
  const auto any = [&] { return rows[static_cast<size_t>(std::max(0, static_cast<int>(rows.size()) - 1 - pick(2)))]; };
  const auto add = [&](const std::string& made) {
    rows.push_back(fmt::format("t{}", rows.size()));
    text += fmt::format("{} = {} -> f32[16,32]\n", rows.back(), made);
  };
  const auto normalize = [&](const std::string& of) {
    const std::string scale = pick(1) == 0 ? ", " + constant("32") : "",
                      shift = !scale.empty() && pick(1) == 0 ? ", " + constant("32") : "";
    add(fmt::format("Normalize({}{}{}) {{axes=[1], epsilon={}}}", of, scale, shift, pick(1) == 0 ? "1e-5" : "1e-20"));
  };
  const auto product = [&](const std::string& of) {
    const char* const acts[] = {"none", "none", "relu", "sigmoid", "gelu", "silu", "tanh", "hard_swish", "clip, a=0, b=6"};
    const std::string weights = constant("32,32"), bias = pick(1) == 0 ? "bias=" + constant("32") + ", " : "";
    const std::string residual = pick(2) == 0 ? "residual=" + any() + ", " : "";
    add(fmt::format("MatMul({}, {}) epilogue{{{}{}act={}}}", of, weights, bias, residual, acts[pick(8)]));
  };
  normalize("x");
  for (int i = 0; i < 8; ++i) {
    switch (pick(5)) {
      case 0: normalize(any()); break;
      case 1: add(fmt::format("Attention({}, {}, {}) {{scale=0.18}}", any(), any(), any())); break;
      case 2: add(fmt::format("Elementwise({}, {}) {{add(i0, i1)}}", any(), any())); break;
      default: product(any());
    }
  }
  product(rows.back());
  return text + "outputs(" + rows.back() + ")\n";
}

float in_tf32(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  return std::bit_cast<float>((bits + 0xFFF + (bits >> 13 & 1)) & ~uint32_t{0x1FFF});
}
float in_half(float x) { return static_cast<float>(ops::real_of(ops::Half{kernels::half_of(x)})); }
ops::Value each_of(const ops::Value& value, float (*change)(float)) {
  auto bytes = std::make_shared<Bytes>(*value.data);
  for (size_t at = 0; at < bytes->size(); at += 4) {
    float x = 0;
    std::memcpy(&x, bytes->data() + at, 4);
    x = change(x);
    std::memcpy(bytes->data() + at, &x, 4);
  }
  return {value.dtype, value.shape, std::move(bytes)};
}

enum class Run : uint8_t { exact, tf32, half };
// All tensors' values; operands of products rounded to tf32, and with `half` what may lie in fp16 to that.
std::vector<ops::Value> values_in(const Graph& graph, const std::vector<bool>& narrow, const std::vector<ops::Value>& inputs, Run run) {
  std::vector<ops::Value> values(graph.tensors.size());
  for (size_t i = 0; i < inputs.size(); ++i) values[graph.inputs[i].index()] = inputs[i];
  for (size_t i = 0; i < graph.tensors.size(); ++i) {
    if (graph.tensors[i].role == Role::constant) values[i] = {DType::f32, graph.tensors[i].shape, graph.tensors[i].data};
  }
  for (const ROperator& rop : graph.rops) {
    std::vector<ops::Value> read = values;
    if (run != Run::exact) {
      std::vector<TensorId> rounded = passes::rounded_operands(graph, rop);
      if (std::holds_alternative<MatMul>(rop.attrs)) rounded = {rop.inputs[0], rop.inputs[1]};
      for (const TensorId id : rounded) read[id.index()] = each_of(values[id.index()], in_tf32);
    }
    const ops::Value made = ops::evaluate(graph, rop, [&](TensorId id) -> const ops::Value& { return read[id.index()]; })[0];
    const size_t to = rop.outputs[0].index();
    values[to] = run == Run::half && narrow[to] ? each_of(made, in_half) : made;
  }
  return values;
}
double distance(const ops::Value& a, const ops::Value& b) {
  double apart = 0, all = 0;
  for (size_t at = 0; at < a.data->size(); at += 4) {
    float x = 0, y = 0;
    std::memcpy(&x, a.data->data() + at, 4);
    std::memcpy(&y, b.data->data() + at, 4);
    apart += (static_cast<double>(x) - y) * (static_cast<double>(x) - y);
    all += static_cast<double>(y) * y;
  }
  return all == 0 ? 0 : std::sqrt(apart / all);
}

TEST_CASE("random rows: values lie within their bounds, and fp16 is as good as tf32 where it is allowed") {
  int narrowed = 0;
  for (unsigned seed = 0; seed < 1500; ++seed) {
    std::mt19937 random(seed);
    const auto size = [&] { return std::pow(10.0F, std::uniform_real_distribution<float>(-4, 1)(random)); };
    const std::string text = random_rows(random);
    Model model(text);
    for (const Tensor& tensor : std::vector<Tensor>(model.graph.tensors)) {
      if (tensor.role != Role::constant) continue;
      if (std::uniform_int_distribution<int>(0, 3)(random) == 0) model.times(tensor.name, size());
      if (tensor.shape.size() == 1 && std::uniform_int_distribution<int>(0, 2)(random) == 0) model.to_about(tensor.name, -14);
    }
    const Graph& graph = model.graph;
    passes::WeightNormsCache norms;
    const passes::HalfUse use = passes::half_use(graph, norms);
    std::vector<bool> narrow;
    for (const Tensor& tensor : graph.tensors) narrow.push_back(tensor.place.buffer.valid() && use.buffers[tensor.place.buffer.index()]);
    narrowed += static_cast<int>(std::count(narrow.begin(), narrow.end(), true));
    for (const float scale : {1.0F, 1e3F}) {
      std::vector<ops::Value> inputs;
      for (const TensorId id : graph.inputs) {
        auto bytes = std::make_shared<Bytes>(static_cast<size_t>(element_count(graph.tensor(id).shape)) * 4);
        for (size_t at = 0; at < bytes->size(); at += 4) {
          const float x = scale * std::normal_distribution<float>()(random);
          std::memcpy(bytes->data() + at, &x, 4);
        }
        inputs.push_back({DType::f32, graph.tensor(id).shape, std::move(bytes)});
      }
      const auto exact = values_in(graph, narrow, inputs, Run::exact), tf32 = values_in(graph, narrow, inputs, Run::tf32),
                 half = values_in(graph, narrow, inputs, Run::half);
      INFO(text << "\nseed " << seed << ", inputs times " << scale);
      for (size_t i = 0; i < graph.tensors.size(); ++i) {
        if (!narrow[i]) continue;
        const double largest = use.largest[graph.tensors[i].place.buffer.index()];
        for (size_t at = 0; at < exact[i].data->size(); at += 4) {
          float x = 0;
          std::memcpy(&x, exact[i].data->data() + at, 4);
          if (std::abs(static_cast<double>(x)) > largest * 1.0001)
            FAIL_CHECK(graph.tensors[i].name << " has " << x << ", bound " << largest);
        }
      }
      const size_t y = graph.outputs[0].index();
      const double of_tf32 = distance(tf32[y], exact[y]), of_half = distance(half[y], exact[y]);
      if (!(of_half <= 3 * of_tf32 + 1e-3)) FAIL_CHECK("tf32 " << of_tf32 << ", with fp16 " << of_half);
    }
  }
  CHECK(narrowed > 400);
}

}  // namespace
