// Which buffers of a program in tf32 may be f16: bounds that hold for every input, and readers that round anyway.
#include "compiler/passes/value_bounds.h"

#include <cstring>
#include <limits>
#include <string>

#include "compiler/passes/assign_layout.h"
#include "test/support/catch.h"
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

// Feed-forward block of a transformer that normalises in front: n and h are read by products alone, r by the next normalisation.
const char* const kBlock = R"(
  x = input f32[16,64]
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
  CHECK_FALSE(Model(kBlock).times("s", 1e-4F).times("b", 1e-4F).may("n"));
  CHECK_FALSE(Model(kBlock).times("b", 1e5F).may("n"));
  CHECK_FALSE(Model(kBlock).times("s", std::numeric_limits<float>::infinity(), 3, 1).may("n"));
}

TEST_CASE("weights decide about results, by the length of their rows where that is the smaller bound") {
  CHECK(Model(kBlock).times("w1", 300).may("h"));  // rows of about 4.6 * 300 by 8 at most; by sums of magnitudes 8 * 32 * 300
  CHECK_FALSE(Model(kBlock).times("w1", 3e3F).may("h"));
  CHECK(Model(kBlock).times("w1", 3e3F).may("n"));
  CHECK_FALSE(Model(kBlock).times("b1", 1e5F).may("h"));
  CHECK_FALSE(Model(kBlock).times("w1", 1e-5F).may("h"));
}

TEST_CASE("a product with a row of weights that fp16 cannot hold stays in tf32, and so does what it reads") {
  Model model(kBlock);
  for (int64_t k = 0; k < 128; ++k) model.times("w2", 1e-6F, k * 64 + 5, 1);  // output 5
  CHECK_FALSE(model.may_compute("r"));
  CHECK_FALSE(model.may("h"));
  CHECK(model.may_compute("h"));
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

TEST_CASE("rows that a SelfAttention normalises itself stay in fp32, and its results are means of bounded values") {
  const auto model = [](const char* epilogue = "") {
    return Model(std::string(R"(
    x = input f32[16,64]
    u = const f32[64,64]
    w = const f32[64,192]
    b = const f32[192]
    p = const f32[32,8]
    r = MatMul(x, u) -> f32[16,64]
    a = SelfAttention(r, w, b) {heads=2, scale=0.18} -> f32[2,16,32]
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
    m = NormalizedConv(x, w, b, s) {kernel=[4,4], strides=[4,4]} -> f32[1,64,2,2]
    n = Transpose(m) {perm=[0,2,3,1]} -> f32[1,2,2,64]
    h = MatMul(n, v) -> f32[1,2,2,8]
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
    s, m, h = MomentMatMul(x, w) {keeps_moments=1, keeps_rounded=1} -> f32[16,64], f32[16,2,2], f32[16,64]
    y = MomentMatMul(s, v, none, none, m, h) {normalize=1} -> f32[16,8]
    outputs(y)
  )");
  CHECK(model.may("h"));
  CHECK_FALSE(model.may("s"));
  CHECK_FALSE(model.may("m"));
  CHECK(model.may_compute("y"));
  CHECK_FALSE(model.may_compute("s"));
}

TEST_CASE("what a FeedForward normalises is bounded by its scale") {
  const char* const text = R"(
    x = input f32[16,32]
    a = const f32[32,64]
    b = const f32[64,32]
    g = const f32[32]
    h = const f32[32]
    v = const f32[32,8]
    z = FeedForward(x, a, b, none, none, x, g, h) {act=gelu, normalize=1, normalize_result=1} -> f32[16,32]
    y = MatMul(z, v) -> f32[16,8]
    outputs(y)
  )";
  CHECK(Model(text).may("z"));
  CHECK_FALSE(Model(text).times("g", 1e6F).may("z"));
  const std::string plain = text;
  const size_t at = plain.find(", normalize_result=1");
  CHECK_FALSE(Model(std::string(plain).erase(at, 20).replace(plain.find(", g, h)"), 6, "")).may("z"));
}

}  // namespace
